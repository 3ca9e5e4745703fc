package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab/bench"
)

const (
	// idleTime is the time in which an idle lab writes nothing but leases.
	idleTime = 30 * time.Second
	// countDelay is how long after a change its last write may come: that of the
	// policy's count of objects.
	countDelay = 12 * time.Second
	// swiftLimit is how soon a change comes true on a machine that is not busy.
	swiftLimit = 1500 * time.Millisecond
)

// writeBudgets bound the writes of the hub's API server for changes of one Deployment in
// three clusters, without the user's own request. An edit and a deletion are kept for undo, by
// one write each. A change that takes longer than swiftLimit, on a busy machine, may also write its progress: a row's and a template's,
// every second.
var writeBudgets = []struct {
	what   string
	writes float64
	change func(t *testing.T, ns string)
	done   func(ns string) func(ctx context.Context) error
}{
	{
		what: "apply to all healthy", writes: 12,
		change: func(t *testing.T, ns string) { apply(t, ns, plainDeployment) },
		done:   func(ns string) func(ctx context.Context) error { return healthyEverywhere(ns, 2) },
	}, {
		what: "scale by edit", writes: 10,
		change: func(t *testing.T, ns string) {
			patch(t, "apps/v1", "Deployment", ns, "plain", `{"spec":{"replicas":3}}`)
		},
		done: func(ns string) func(ctx context.Context) error { return healthyEverywhere(ns, 3) },
	}, {
		what: "delete", writes: 22,
		change: func(t *testing.T, ns string) { remove(t, "apps/v1", "Deployment", ns, "plain") },
		done: func(ns string) func(ctx context.Context) error {
			return inCluster("hub", "apps/v1", "Deployment", ns, "plain", false)
		},
	},
}

const plainDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain, namespace: $NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec: {containers: [{name: app, image: "registry.example/app:1"}]}
`

func healthyEverywhere(ns string, replicas int64) func(ctx context.Context) error {
	return allChecks(
		fieldIs("hub", ns, "plain", "status.availableReplicas", replicas),
		fieldIs("hub", ns, "plain", "status.updatedReplicas", replicas),
		fieldIs("member1", ns, "plain", "status.availableReplicas", replicas),
		fieldIs("member2", ns, "plain", "status.availableReplicas", replicas),
		fieldIs("member3", ns, "plain", "status.availableReplicas", replicas),
	)
}

// TestWriteBudgets checks that being alive is not a write, and the writes of changes. It
// runs beside no other test, so that all writes are counted.
func TestWriteBudgets(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	server := clients.CoreV1().RESTClient()
	ns := createNamespace(t, "budget")
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: plain, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
`)
	before := waitUntilIdle(t, server, idleTime)
	for _, budget := range writeBudgets {
		begin := time.Now()
		budget.change(t, ns)
		testwait.UntilNil(t, budget.what, budget.done(ns))
		took := time.Since(begin)
		allowed := budget.writes + 2*math.Ceil(max(0, (took-swiftLimit).Seconds()))
		after := waitUntilIdle(t, server, countDelay)
		n, words := describeWrites(before, after)
		n-- // the user's own
		t.Logf("%s: %.0f writes besides the user's own in %s: %s", budget.what, n, took.Round(100*time.Millisecond), words)
		if n > allowed {
			t.Errorf("%s cost %.0f writes in %s, %.0f are allowed: %s", budget.what, n, took, allowed, words)
		}
		before = after
	}
}

// waitUntilIdle waits until nothing was written for so long, and gives the counts.
func waitUntilIdle(t *testing.T, server rest.Interface, length time.Duration) map[string]float64 {
	t.Helper()
	var last map[string]float64
	since, late := time.Now(), ""
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, 2*testwait.HangLimit, true, func(ctx context.Context) (bool, error) {
		now, err := bench.ReadWriteRequests(ctx, server)
		if err != nil {
			return false, err
		}
		if !maps.Equal(last, now) {
			_, late = describeWrites(last, now)
			last, since = now, time.Now()
		}
		return time.Since(since) >= length, nil
	})
	if err != nil {
		t.Fatalf("the hub went on writing without any change (%v): %s", err, late)
	}
	return last
}

func describeWrites(before, after map[string]float64) (n float64, words string) {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if d := after[key] - before[key]; d > 0 {
			n += d
			parts = append(parts, fmt.Sprintf("%s %.0f", key, d))
		}
	}
	return n, strings.Join(parts, ", ")
}
