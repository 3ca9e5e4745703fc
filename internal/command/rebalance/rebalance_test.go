package rebalance

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/client"
)

func TestWhatIsAskedForNamesHowToFollowIt(t *testing.T) {
	for name, tc := range map[string]struct {
		done []string
		want string
	}{
		"one Bundle":        {[]string{"shop/bundle/web"}, "1 to place from scratch; follow it with: atoll explain bundle/web -n shop\n"},
		"one ClusterBundle": {[]string{"clusterbundle/base"}, "1 to place from scratch; follow it with: atoll explain clusterbundle/base\n"},
		"several":           {[]string{"shop/bundle/web", "clusterbundle/base"}, "2 to place from scratch; follow it with: atoll get rows -A\n"},
	} {
		if got := (rebalanceAnswer{Done: tc.done}).formatOutcome(false); !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: %q, want %q at its end", name, got, tc.want)
		}
	}
	if got := (rebalanceAnswer{}).formatOutcome(false); strings.Contains(got, "follow it with") {
		t.Errorf("nothing was asked for: %q", got)
	}
}

func TestArgumentsThatDoNotGoTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"all Bundles and one": {[]string{"-A", "bundle/web"}, "-A means all Bundles"},
		"none":                {nil, "name what to rebalance"},
		"shown and done":      {[]string{"-A", "--dry-run", "--yes"}, "none of the others can be"},
	} {
		cmd := NewCommand(&client.ConnectionFlags{})
		cmd.SetArgs(tc.args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
