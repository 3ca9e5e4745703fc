package fleet

import (
	"strings"
	"testing"
	"time"
)

// TestAFleetThatCannotBeIsRefused: the error names the wrong option, before a hub is
// started.
func TestAFleetThatCannotBeIsRefused(t *testing.T) {
	for want, ask := range map[string]func(*Options){
		"--agents is 0":           func(o *Options) { o.Agents = 0 },
		"--agents is 10000000000": func(o *Options) { o.Agents = 10_000_000_000 },
		"--groups, --joiners":     func(o *Options) { o.JoinersAtOnce = 0 },
		"at least 1, not 1, 1 an": func(o *Options) { o.DialersAtOnce = -1 },
		"--processes is 11":       func(o *Options) { o.Processes = 11 },
		"--checkin and --rate":    func(o *Options) { o.CheckIn = -time.Second },
		"--prefix is \"UPPER_x\"": func(o *Options) { o.Prefix = "UPPER_x" },
	} {
		o := Options{Dir: t.TempDir(), Agents: 10, Groups: 1, JoinersAtOnce: 1, DialersAtOnce: 1, Prefix: "sim"}
		ask(&o)
		if err := RunSimulatedFleet(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
