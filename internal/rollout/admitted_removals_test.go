package rollout

import (
	"strings"
	"testing"
	"time"
)

// playScript runs the lines of a script in a fleet of 20 clusters at r1, of which c01 is the first stage.
func playScript(t *testing.T, lines string) *scriptStage {
	t.Helper()
	s := newStage(t)
	for _, line := range strings.Split("fleet 20; stage first c01; settle; "+lines, "; ") {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
	return s
}

// A loss that was counted once does not cover a later loss, a larger one, or one of another kind. The budget
// allows 2 of the 20 clusters.
func TestAnAdmittedLossCoversNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		lines   string
		waiting int
	}{
		"within the budget":                 {"revision r2; unwanted /ConfigMap/ns/x c02 c03; step", 0},
		"taken back, and stated with more":  {"revision r2; unwanted /ConfigMap/ns/x c02 c03; step; after 11m; revision r3; unwanted /ConfigMap/ns/x; step; after 11m; revision r4; unwanted /ConfigMap/ns/x c02 c03 c04 c05; step", 4},
		"moved, taken back, and moved more": {"revision r2; moves x c02 c03; step; after 11m; revision r3; moves x; step; after 11m; revision r4; moves x c02 c03 c04 c05; step", 4},
		"confirmed, taken back, and stated": {"revision r2; unwanted /ConfigMap/ns/x c02 c03 c04 c05; step; confirm; step; revision r3; unwanted /ConfigMap/ns/x; step; after 11m; revision r4; unwanted /ConfigMap/ns/x c02 c03 c04 c05; step", 4},
		"excluded while rows are held":      {"revision r2; place except c02 c03 c04 c05; unwanted /ConfigMap/ns/x c02 c03 c04 c05; step; after 11m; place all; step", 4},
		"moved while rows are held":         {"revision r2; place except c02 c03 c04 c05; moves x c02 c03 c04 c05; step; after 11m; place all; step", 4},
		"orphaned first, then deleted":      {"revision r2; removal Orphan; unwanted /ConfigMap/ns/x c02 c03 c04 c05; step; after 11m; removal Delete; step", 4},
		"confirmation stated later":         {"revision r2; unwanted /ConfigMap/ns/x c02 c03; step; after 11m; must-confirm; step", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, lines := playScript(t, c.lines), 0
			if s.plan != nil {
				lines = len(s.plan.Lines)
			}
			if lines != c.waiting {
				t.Errorf("%d clusters wait for a confirmation, want %d\n%s", lines, c.waiting, s.formatRows())
			}
		})
	}
}

// A row that changes in the second of a resume changed because of it, and fails its stage like any other.
func TestAResumeDoesNotAcceptTheNextFailures(t *testing.T) {
	s := playScript(t, "stage second c02; revision r2; step; after 1m; report Degraded c01; step; after 1m; resume; step; report Degraded c02; after 1m; step")
	if got := s.rows["c02"].Spec; got.Revision != "r2" || got.FailedAt == 0 {
		t.Errorf("c02 is at %s, its stage failed at %d", got.Revision, got.FailedAt)
	}
	if got := s.rows["c03"].Spec.Revision; got != "r1" {
		t.Errorf("c03 is at %s although the stage before failed", got)
	}
}

// A resume by a clock that is ahead of this hub's takes effect when the hub's clock reaches it.
func TestAResumeOfAClockAheadTakesEffectLater(t *testing.T) {
	s := playScript(t, "revision r2; step; after 1m; report Degraded c01; step; after 1m; resume")
	s.now = s.now.Add(-3 * time.Second)
	if s.advanceOnce(); !s.requeueAt.Equal(s.baseInput.ResumedAt) {
		t.Fatalf("the next step is at %v, want the time of the resume", s.requeueAt)
	}
	s.now = s.requeueAt
	if s.advanceOnce(); s.rows["c02"].Spec.Revision != "r2" {
		t.Errorf("c02 is at %s after the resume", s.rows["c02"].Spec.Revision)
	}
}
