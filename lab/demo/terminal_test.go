package demo

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStepsSucceedOrNameTheMissingPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := newStoryTerminal(&out)
		looks := 0
		err := s.waitStep(t.Context(), "two looks", time.Minute, func(context.Context) string {
			if looks++; looks < 2 {
				return "one more"
			}
			return ""
		})
		if err != nil {
			t.Errorf("the step came true: %v", err)
		}
		err = s.waitStep(t.Context(), "never", time.Second, func(context.Context) string { return "the moon" })
		if err == nil || !strings.Contains(err.Error(), "not within 1s: the moon") {
			t.Errorf("the step says %v", err)
		}
		if got := out.String(); strings.Contains(got, "\x1b") || !strings.Contains(got, "✓ two looks") || !strings.Contains(got, "✗ never") {
			t.Errorf("a plain stage shows %q", got)
		}
	})
}

func TestFewerHealthyReplicasAreNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		lowest  int32
		samples int
		wrong   string
	}{
		"kept":   {5, 100, ""},
		"dipped": {4, 100, "web had 5 healthy replicas before, and 4 at the lowest"},
		"blind":  {5, 3, "only 3 samples were taken"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &healthSampler{before: map[string]int32{"web": 5}, lowest: map[string]int32{"web": c.lowest}, samples: c.samples, cancel: func() {}}
			if _, wrong := s.stop(); wrong != c.wrong {
				t.Errorf("wrong is %q, want %q", wrong, c.wrong)
			}
		})
	}
}
