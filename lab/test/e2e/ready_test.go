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

// readyIs returns a check of the condition Ready of a Cluster.
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

// TestReadyFollowsTheLink: Ready turns Unknown in time when a link is cut, and when it is
// half open, which neither end notices; and True again in time.
func TestReadyFollowsTheLink(t *testing.T) {
	// The hub writes no silence before its own uptime is as long.
	waitUntil(t, 2*convergeLimit, "the lab is whole", allChecks(readyIs("member1", "True"), readyIs("member2", "True"), readyIs("member3", "True")))
	injuries := map[string]func(context.Context, string) error{"member2": sharedWorld.lab.CutLink, "member3": sharedWorld.lab.HalfOpen}
	t.Cleanup(func() {
		for m := range injuries {
			if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), m); err != nil {
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
		waitUntil(t, unknownWithin-time.Since(begin), "silence is shown", readyIs(m, "Unknown"))
		t.Logf("%s Unknown after %s", m, time.Since(begin).Round(100*time.Millisecond))
	}
	if why := readyIs("member1", "True")(t.Context()); why != "" {
		t.Error(why)
	}
	for m, injure := range injuries {
		// These times include other load of the machine: one that keeps the promise shows
		// that it can be kept.
		took := healAndTime(t, m)
		for round := 0; round < 2 && took > readyWithin; round++ {
			if err := injure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, convergeLimit, "silence is shown again", readyIs(m, "Unknown"))
			took = min(took, healAndTime(t, m))
		}
		if took > readyWithin {
			t.Errorf("the return of %s is shown after %s", m, took)
		}
	}
}

// healAndTime heals the link, and returns the time until Ready shows it.
func healAndTime(t *testing.T, member string) time.Duration {
	t.Helper()
	begin := time.Now()
	healLink(t, member)
	waitUntil(t, convergeLimit, "the return is shown", readyIs(member, "True"))
	took := time.Since(begin)
	t.Logf("%s True after %s", member, took.Round(100*time.Millisecond))
	return took
}
