package explain

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

func TestARebalanceIsTold(t *testing.T) {
	asked := testTime.Add(-5 * time.Minute)
	old, done := atoll.AppendRebalance("a.b", asked.Add(-time.Hour)), atoll.AppendRebalance("a.b", asked)
	ready := func(spec atoll.RowSpec) rollout.Row {
		spec.Generation = 1
		return rollout.Row{Spec: spec, Online: true, Status: rowStatus(spec, atoll.RowReady)}
	}
	settled := ready(atoll.RowSpec{Phase: atoll.RowActive, PlacementFingerprint: done, Since: asked.Add(-time.Hour).Unix()})
	for _, tc := range []struct {
		name string
		row  rollout.Row
		want string
	}{
		{"it stayed", settled, "Last placed from scratch 5m ago"},
		{"it has yet to be decided on", ready(atoll.RowSpec{Phase: atoll.RowActive, PlacementFingerprint: old}), "under way: 1 row yet to come, to shrink or to go"},
		{"it came, and is not ready", rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowActive, PlacementFingerprint: done, Since: asked.Unix(), Generation: 1}, Online: true}, "under way: 1 row yet"},
		{"it came", ready(atoll.RowSpec{Phase: atoll.RowActive, PlacementFingerprint: done, Since: asked.Unix()}), "Last placed"},
		{"it is due to shrink", ready(atoll.RowSpec{Phase: atoll.RowActive, PlacementFingerprint: done, ShrinkTo: map[string]int64{"x": 1}}), "under way"},
		{"it leaves", ready(atoll.RowSpec{Phase: atoll.RowLeaving, PlacementFingerprint: old}), "under way"},
		{"it is held", ready(atoll.RowSpec{Phase: atoll.RowHeld, PlacementFingerprint: ""}), "under way"},
		{"it is being removed", ready(atoll.RowSpec{Phase: atoll.RowRemoving, Reason: "Rebalanced: others were chosen"}), "under way"},
		{"it is being removed for something else", ready(atoll.RowSpec{Phase: atoll.RowRemoving, Reason: "PlacementEdited"}), "Last placed"},
	} {
		b := Bundle{Rebalance: asked, Rows: map[string]rollout.Row{"oslo": tc.row, "lima": settled}}
		e := Explanation{now: testTime}
		var text strings.Builder
		e.writeRebalance(&text, explainRebalance(b))
		if !strings.Contains(text.String(), tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, text.String(), tc.want)
		}
	}
	b := shopBundle()
	b.Rebalance = asked
	if text := Explain(explainInput(webKey, b)).FormatText(false); !strings.Contains(text, "\n  A rebalance that was requested 5m ago is under way: ") {
		t.Errorf("the explanation has no rebalance:\n%s", text)
	}
	if explainRebalance(Bundle{}) != nil {
		t.Error("an unrequested one is shown")
	}
}
