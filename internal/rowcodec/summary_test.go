package rowcodec

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// TestASummaryIsOfTheRow compares summaries with the decoded rows.
func TestASummaryIsOfTheRow(t *testing.T) {
	for _, spec := range someSpecs {
		for _, status := range append(someStatuses, atoll.RowStatus{UID: spec.UID, Generation: 7, State: atoll.RowFailed, Since: 5, Items: someStatuses[2].Items}) {
			specWords, statusWords := NewDictionary(nil), NewDictionary([]string{"another"})
			got := SummarizeRow(EncodeSpec(spec, specWords), EncodeStatus(status, statusWords), specWords.Words(), statusWords.Words())
			want := Summary{Phase: spec.Phase, Reason: spec.Reason, Revision: spec.Revision, Generation: spec.Generation, Since: spec.Since}
			if uidSuffix(status.UID) == uidSuffix(spec.UID) {
				want.IsReported, want.ReportedGeneration, want.StateTime, want.State, want.Applied = true, status.Generation, status.Since, status.State, status.Applied
				want.Drifted, want.WaitReason = status.Drifted, status.WaitReason()
			}
			if got != want {
				t.Errorf("%+v with %+v:\n%+v, want\n%+v", spec, status, got, want)
			}
		}
	}
}

func TestASummaryOfDamagedLines(t *testing.T) {
	if s := SummarizeRow("r~9", "", nil, nil); s != (Summary{}) {
		t.Errorf("a damaged spec: %+v", s)
	}
	if s := SummarizeRow("uabc g3 pL", "gx", nil, nil); s.IsReported || s.Phase != atoll.RowLeaving || s.Generation != 3 {
		t.Errorf("a damaged status: %+v", s)
	}
	if n := testing.AllocsPerRun(100, func() {
		SummarizeRow("u"+lineUID+" g3 r~0 a~1=3 s7 hx,y", "u3f1f7c0c6f7a g3 q4 pD w s9 t3 n1 ik~0;hD", []string{"r", "k"}, []string{"/ConfigMap/a/b"})
	}); n > 3 {
		t.Errorf("a summary takes %v allocations, one of them for the items of a row that waits", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		SummarizeRow("u"+lineUID+" g3 r~0 s7", "u3f1f7c0c6f7a g3 q4 s9 t3 n1 ik~0;hH", []string{"r", "k"}, []string{"/ConfigMap/a/b"})
	}); n > 2 {
		t.Errorf("a summary of a ready row takes %v allocations", n)
	}
}
