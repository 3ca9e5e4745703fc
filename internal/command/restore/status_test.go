package restore

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

var restoredAt = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func printedStatus(t *testing.T, s *HoldStatus) string {
	t.Helper()
	var out strings.Builder
	if err := s.printStatus(&out, restoredAt.Add(10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func newRewound(accepted string, told *enginev1.RememberedRemovals) *enginev1.Rewound {
	return &enginev1.Rewound{Since: metav1.NewTime(restoredAt), Reason: "an agent reported a newer state", Accepted: accepted, Told: told}
}

func TestStatusOfAHubWithoutARestore(t *testing.T) {
	got := printedStatus(t, &HoldStatus{})
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "was not restored") {
		t.Error(got)
	}
}

func TestStatusOfAHoldingHub(t *testing.T) {
	got := printedStatus(t, &HoldStatus{
		Holding: true, Clusters: 5, Connected: 3, Rows: 7,
		Rewound: newRewound("", &enginev1.RememberedRemovals{Clusters: 2, Templates: 3, Rows: 1, Examples: []string{"ConfigMap shop/a was deleted"}}),
	})
	for _, line := range []string{
		"since 2026-01-02 12:00:00 UTC (10m): an agent reported a newer state.\n", "3 of 5 clusters are connected", "2 clusters ",
		"  3 templates ", "  1 row ", "    ConfigMap shop/a was deleted\n", "    and 3 more\n", "accept --hub      The 7 rows of this hub", "accept --members",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("lacks %q:\n%s", line, got)
		}
	}
	none := printedStatus(t, &HoldStatus{Holding: true, Rewound: newRewound("", nil)})
	if !strings.Contains(none, "0 clusters ") || strings.Contains(none, "more\n") {
		t.Errorf("before any member has reported:\n%s", none)
	}
}

func TestStatusOfAHubThatGoesOn(t *testing.T) {
	s := &HoldStatus{Rewound: newRewound("members", nil)}
	got := printedStatus(t, s)
	if !strings.Contains(got, "--members was accepted") || !strings.Contains(got, "waits for a decision") || strings.Contains(got, "atoll confirm") {
		t.Error(got)
	}
	s.Waiting = []WaitingPlan{
		{Bundle: "clusterbundle/base", Plan: "a1", Lines: []string{"remove from oslo"}},
		{Bundle: "bundle/web", Namespace: "shop", Plan: "b2"},
	}
	got = printedStatus(t, s)
	for _, line := range []string{
		"\nclusterbundle/base, plan a1\n  remove from oslo\n", "atoll confirm clusterbundle/base --plan a1\n",
		"\nbundle/web -n shop, plan b2\n", "atoll restore keep bundle/web -n shop --plan b2\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("lacks %q:\n%s", line, got)
		}
	}
}

// failingWriter fails from the second write on.
type failingWriter struct{ writes int }

var errFull = errors.New("the disk is full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		return 0, errFull
	}
	return len(p), nil
}

func TestTheFirstWriteErrorEndsTheOutput(t *testing.T) {
	w := &failingWriter{}
	if err := (&HoldStatus{Holding: true, Rewound: newRewound("", nil)}).printStatus(w, restoredAt); !errors.Is(err, errFull) || w.writes != 2 {
		t.Errorf("%v after %d writes", err, w.writes)
	}
}
