package explain

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// The answer whether pods fit is in the text of a cluster, and names the item only for those that may read it.
func TestPodFitIsExplained(t *testing.T) {
	item := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for _, tc := range []struct {
		fit     schedule.PodFit
		mayRead bool
		want    string
	}{
		{schedule.PodFit{}, true, ""},
		{schedule.PodFit{When: schedule.FitNow}, true, ", pods fit now"},
		{schedule.PodFit{When: schedule.FitAfterScaleUp, Item: item, Reason: "later"}, true, ", pods fit after a scale-up (Deployment/web: later)"},
		{schedule.PodFit{When: schedule.FitNever, Item: item, Reason: "too large"}, false, ", pods never fit (too large)"},
	} {
		in := ExplanationInput{MayRead: func(atoll.ItemKey) bool { return tc.mayRead }}
		var c ClusterExplanation
		if in.explainPodFit(&c, tc.fit); !strings.HasSuffix(c.divisionText(), tc.want) || tc.want == "" && c.divisionText() != "" {
			t.Errorf("%+v: %q, want %q", tc.fit, c.divisionText(), tc.want)
		}
	}
}
