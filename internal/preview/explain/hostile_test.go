package explain

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// A text or a time of an agent neither forges a line of an explanation, nor keeps the rest of it from
// people.
func TestExplanationsOfHostileReports(t *testing.T) {
	for what, since := range map[string]int64{"the last time": math.MaxInt64, "the first time": math.MinInt64, "the year 9999": atoll.MaxUnixSeconds, "the year 9000": 221_845_392_000} {
		t.Run(what, func(t *testing.T) {
			b := shopBundle()
			row := b.Rows["oslo"]
			row.Status.Since = since
			row.Status.Message = "fine\r\n  tokyo   Ready\x1b[8m"
			row.Status.Items[0].Message = "waits\n  oslo    Ready\x1b[2J \u202eon"
			row.Status.Items[0].Since = since
			b.Output = rollout.AdvanceRows(rollout.Input{
				BundleUID: "b", Rows: b.Rows, Decision: b.Decision, Revision: "b-2", ExplainWaits: true, Now: testTime,
				Variants: map[string]string{"tokyo": b.Rows["tokyo"].Spec.Variant},
			})
			e := Explain(explainInput(webKey, b))
			text := e.FormatText(true)
			if phrase.EscapeText(text) != text {
				t.Errorf("the text has control characters: %q", text)
			}
			if !strings.Contains(text, `waits\x0a  oslo    Ready\x1b[2J`) {
				t.Errorf("the message is missing:\n%s", text)
			}
			answer, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var back Explanation
			if err := json.Unmarshal(answer, &back); err != nil || len(back.Bundles) != 1 || back.Verdict != e.Verdict {
				t.Errorf("%d bytes of JSON: %v", len(answer), err)
			}
		})
	}
}
