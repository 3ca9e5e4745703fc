package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The times within which Ready of a Cluster follows its link.
const (
	unknownWithin = 40 * time.Second
	readyWithin   = 5 * time.Second
)

// readyIs gives a check of the condition Ready of a Cluster.
func readyIs(cluster, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Sprintf("no Cluster %s: %v", cluster, err)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
				if m["status"] == want {
					return ""
				}
				return fmt.Sprintf("Cluster %s is Ready=%s (%s), want %s", cluster, m["status"], m["reason"], want)
			}
		}
		return "Cluster " + cluster + " has no condition Ready"
	}
}

// TestReadyFollowsTheLink: Ready turns Unknown in time when a link is cut, and when it
// is half open, which no end is told of; and True again in time.
func TestReadyFollowsTheLink(t *testing.T) {
	// The hub writes nobody's silence before it was up for as long itself.
	eventually(t, 2*converge, "the lab is whole", all(readyIs("member1", "True"), readyIs("member2", "True"), readyIs("member3", "True")))
	injuries := map[string]func(context.Context, string) error{"member2": world.lab.Cut, "member3": world.lab.HalfOpen}
	t.Cleanup(func() {
		for m := range injuries {
			if err := world.lab.Heal(context.WithoutCancel(t.Context()), m); err != nil {
				t.Error(err)
			}
		}
	})
	begin := time.Now()
	for m, injure := range injuries {
		if err := injure(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []string{"member2", "member3"} {
		eventually(t, unknownWithin-time.Since(begin), "silence is told", readyIs(m, "Unknown"))
		t.Logf("%s Unknown after %s", m, time.Since(begin).Round(100*time.Millisecond))
	}
	if why := readyIs("member1", "True")(t.Context()); why != "" {
		t.Error(why)
	}
	for m, injure := range injuries {
		// What else the machine is busy with is in these times, too: one that keeps the promise
		// shows that it can be kept.
		took := returns(t, m)
		for round := 0; round < 2 && took > readyWithin; round++ {
			if err := injure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			eventually(t, converge, "silence is told again", readyIs(m, "Unknown"))
			took = min(took, returns(t, m))
		}
		if took > readyWithin {
			t.Errorf("the return of %s is told after %s", m, took)
		}
	}
}

// returns heals the link, and tells how long it takes until Ready says so.
func returns(t *testing.T, member string) time.Duration {
	t.Helper()
	begin := time.Now()
	heal(t, member)
	eventually(t, converge, "the return is told", readyIs(member, "True"))
	took := time.Since(begin)
	t.Logf("%s True after %s", member, took.Round(100*time.Millisecond))
	return took
}
