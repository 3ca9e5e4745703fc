package apply

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A lasting blocker is reported, and so is its end, also when an earlier try had reported
// something.
func TestWhatAnAgentWaitsForIsToldWhenItLasts(t *testing.T) {
	const short = leaveTell / 2
	for _, tc := range []struct {
		name string
		on   []string // each for short
		want []string
	}{
		{"nothing, and it is over soon", []string{""}, nil},
		{"nothing for long", []string{"", "", "", "", ""}, []string{""}},
		{"something that passes", []string{"a", "", "b", "a"}, nil},
		{"something that lasts", []string{"a", "a", "a", "a"}, []string{"a"}},
		{"and goes", []string{"a", "a", "a", "", "", "", ""}, []string{"a", ""}},
		{"something else then", []string{"a", "a", "a", "b", "b", "b"}, []string{"a", "b"}},
		{"after nothing for long", []string{"", "", "", "a", "a", "a"}, []string{"", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported []string
				w := blockerReporter{tell: func(why string) { reported = append(reported, why) }}
				for _, why := range tc.on {
					w.setReason(why)
					time.Sleep(short)
				}
				if !slices.Equal(reported, tc.want) {
					t.Errorf("reported %q, want %q", reported, tc.want)
				}
			})
		})
	}
}
