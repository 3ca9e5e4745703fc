package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab/relay"
)

const (
	// checkInEvery is the interval of the member that checks in. A check-in may come a
	// tenth later than that, and waits a fifth of it for health.
	checkInEvery = 10 * time.Second
	// beforeNextCheckIn is shorter than the time from a check-in to the next.
	beforeNextCheckIn = checkInEvery * 4 / 5
	// missedAfter is when Ready is Unknown after the last: two that were missed, and
	// the grace that streams get too.
	missedAfter = 2*checkInEvery + 35*time.Second
)

// readyFor returns a check of the reason of the condition Ready of a Cluster.
func readyFor(cluster, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Errorf("no Cluster %s: %v", cluster, err)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Ready" && m["reason"] == want {
				return nil
			}
		}
		return fmt.Errorf("the condition Ready of Cluster %s is not for %s: %v", cluster, want, conditions)
	}
}

// connectionCountIs returns a check of how many the member's agent has to the hub.
func connectionCountIs(member string, want int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		links, err := relay.LinkClient{Dir: sharedWorld.lab.Dir()}.ReadStatus(ctx)
		if err != nil || links[member].Connections != want {
			return fmt.Errorf("%s has %d connections, want %d (%v)", member, links[member].Connections, want, err)
		}
		return nil
	}
}

// checksIn waits until the agent has checked in once more, by its own log: a short check-in
// may pass between two polls of the connection.
func checksIn(t *testing.T, member string) {
	t.Helper()
	done := func() int {
		text, err := os.ReadFile(filepath.Join(sharedWorld.lab.Dir(), "logs", "agent-"+member+".log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "checked in")
	}
	before := done()
	testwait.UntilNilWithin(t, 3*checkInEvery, "a check-in", func(context.Context) error {
		if done() == before {
			return errors.New("none has come and gone")
		}
		return connectionCountIs(member, 0)(t.Context())
	})
}

// restsWithoutWrites watches the Cluster over some check-ins.
func restsWithoutWrites(t *testing.T, member string) {
	t.Helper()
	version := func() string {
		o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", member)
		if err != nil || o == nil {
			t.Fatalf("no Cluster %s: %v", member, err)
		}
		return o.GetResourceVersion()
	}
	before := version()
	for range 3 {
		checksIn(t, member)
		if err := readyIs(member, "True")(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if after := version(); after != before {
		t.Errorf("three check-ins wrote the Cluster: version %s became %s", before, after)
	}
}

// TestAClusterThatChecksIn: a real member that is switched to check-ins receives its orders
// at the next one, stays Ready in between without a write, is Unknown after two missed
// ones, and returns to its stream.
func TestAClusterThatChecksIn(t *testing.T) {
	const member = "member2"
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "the member holds its stream", readyFor(member, "AgentConnected"))
	ns := createNamespace(t, "check-in")
	kubectlFor(t.Context(), t, "patch", "cluster", member, "--type=merge", "-p", `{"spec": {"connection": {"type": "CheckIn", "interval": "10s"}}}`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "patch", "cluster", member, "--type=merge", "-p", `{"spec": {"connection": null}}`)
	})
	testwait.UntilNil(t, "the agent checks in", allChecks(readyFor(member, "AgentChecksIn"), connectionCountIs(member, 0)))

	begin := time.Now()
	apply(t, ns, webDeployment)
	apply(t, ns, strings.ReplaceAll(everywherePolicy, "[member1, member2, member3]", "["+member+"]"))
	testwait.UntilNilWithin(t, 2*checkInEvery, "delivered at the next check-in", inCluster(member, "apps/v1", "Deployment", ns, "web", true))
	t.Logf("delivered after %s", time.Since(begin).Round(100*time.Millisecond))
	testwait.UntilNilWithin(t, 4*checkInEvery, "its status comes back", fieldIs("hub", ns, "web", "status.readyReplicas", 2))
	t.Logf("shown ready after %s", time.Since(begin).Round(100*time.Millisecond))

	restsWithoutWrites(t, member)
	apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: $NS}\ndata: {colour: red}")
	testwait.UntilNilWithin(t, beforeNextCheckIn, "explain says when", explanationMatches("configmap/web -n "+ns, "checks in every 10s, next in about"))

	remove(t, "apps/v1", "Deployment", ns, "web")
	testwait.UntilNilWithin(t, beforeNextCheckIn, "its deletion waits for no check-in", inCluster("hub", "apps/v1", "Deployment", ns, "web", false))
	testwait.UntilNilWithin(t, 2*checkInEvery, "and gets there with the next", inCluster(member, "apps/v1", "Deployment", ns, "web", false))

	checksIn(t, member)
	takeDown(t, "agent/"+member)
	begin = time.Now()
	testwait.UntilNilWithin(t, missedAfter+checkInEvery, "two missed check-ins are shown", readyFor(member, "CheckInsMissed"))
	if d := time.Since(begin); d < missedAfter-checkInEvery {
		t.Errorf("Unknown after %s already", d)
	} else {
		t.Logf("Unknown after %s", d.Round(100*time.Millisecond))
	}
	bringBack(t, "agent/"+member)
	testwait.UntilNilWithin(t, beforeNextCheckIn, "an agent that starts checks in at once", readyFor(member, "AgentChecksIn"))

	kubectlFor(t.Context(), t, "patch", "cluster", member, "--type=merge", "-p", `{"spec": {"connection": {"type": "Stream", "interval": null}}}`)
	testwait.UntilNilWithin(t, 2*checkInEvery, "the agent holds its stream again", allChecks(readyFor(member, "AgentConnected"), connectionCountIs(member, 1)))
	apply(t, ns, strings.ReplaceAll(confInMember, "$MEMBER", member))
	testwait.UntilNil(t, "delivered", inCluster(member, "v1", "ConfigMap", ns, "at-once", true))
}

const confInMember = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: at-once, namespace: $NS, annotations: {atoll.dev/clusters: $MEMBER}}"

// TestClustersThatCheckInLeave: an orphaned one and a cleaned one, a check-in at a time.
func TestClustersThatCheckInLeave(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "rare")
	leavers := map[string]*leavingMember{"--orphan": newLeaver(t, "rare-orphan"), "--clean": newLeaver(t, "rare-clean")}
	pods := map[string]string{}
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "rare-orphan, rare-clean", 1))
	for how, l := range leavers {
		l.admit()
		pods[how] = l.runningPods(ns)
		patch(t, "atoll.dev/v1alpha1", "Cluster", "", l.name, `{"spec":{"connection":{"type":"CheckIn","interval":"10s"}}}`)
	}
	for how, l := range leavers {
		testwait.UntilNil(t, l.name+" checks in", readyFor(l.name, "AgentChecksIn"))
		runCLI(t, "remove", l.name, how, "--yes", "--no-wait")
	}
	begin := time.Now()
	for how, l := range leavers {
		testwait.UntilNilWithin(t, 6*checkInEvery, l.name+" has left", func(ctx context.Context) error {
			if o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", l.name); err != nil || o != nil {
				return fmt.Errorf("%s (%v)", conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", l.name, "Removing"), err)
			}
			return nil
		})
		t.Logf("%s: left after %s", how, time.Since(begin).Round(100*time.Millisecond))
		testwait.UntilNilWithin(t, 2*checkInEvery, "its agent logs the removal", logSays(l.log, "this cluster was removed from the hub"))
	}
	if now := leavers["--orphan"].runningPods(ns); now != pods["--orphan"] {
		t.Errorf("pods are %s, were %s", now, pods["--orphan"])
	}
	if err := leavers["--orphan"].holdsDeployment(ns, false)(t.Context()); err != nil {
		t.Errorf("Atoll's marks are left: %s", err)
	}
	if out := leavers["--clean"].runKubectl("get", "namespace", ns); !strings.Contains(out, "NotFound") && !strings.Contains(out, "not found") {
		t.Errorf("what was to be removed is there:\n%s", out)
	}
}
