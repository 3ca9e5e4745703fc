package clusterstatus

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// fleet is a table that nothing changes.
type fleet struct {
	byName, byUID map[string]*v1alpha1.Cluster
}

func (f fleet) Get(name string) (*v1alpha1.Cluster, bool)     { c, ok := f.byName[name]; return c, ok }
func (f fleet) GetByUID(uid string) (*v1alpha1.Cluster, bool) { c, ok := f.byUID[uid]; return c, ok }
func (f fleet) List() (out []*v1alpha1.Cluster)               { return nil }
func (f fleet) Subscribe(func(string))                        {}

// newVisits returns a fleet in which one cluster after the other checks in, without news: next
// is one visit. Nothing is written (there is no client).
func newVisits(b testing.TB, size int) (r *ClusterStatusReconciler, next func()) {
	b.Helper()
	table := fleet{map[string]*v1alpha1.Cluster{}, map[string]*v1alpha1.Cluster{}}
	inventory := healthyInventory()
	for i := range size {
		c := &v1alpha1.Cluster{}
		c.Name, c.UID = fmt.Sprintf("c%d", i), types.UID(fmt.Sprintf("u%d", i))
		c.Spec.Accepted = true
		checkInEvery(15 * time.Minute)(c)
		f := memberFacts{up: true, fresh: true, answers: true, inventory: inventory, compared: true}
		c.Status = deriveStatus(c, f, metav1.Now())
		table.byName[c.Name], table.byUID[string(c.UID)] = c, c
	}
	r = New(Options{Clusters: table, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	r.loop.AcceptKeys()
	b.Cleanup(r.loop.Close)
	reconcileAfter := func(name string, tell func()) {
		tell()
		if _, err := r.reconcileCluster(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	return r, func() {
		uid, name := fmt.Sprintf("u%d", i%size), fmt.Sprintf("c%d", i%size)
		i++
		reconcileAfter(name, func() { r.StreamUp(uid, "TLS") })
		reconcileAfter(name, func() {
			r.RecordInventory(uid, &pb.Inventory{
				KubernetesVersion: inventory.KubernetesVersion, AgentVersion: inventory.AgentVersion, NodesTotal: 3, NodesReady: 3, MemberReady: true,
				Allocatable: inventory.Allocatable, Requested: inventory.Requested,
			})
		})
		reconcileAfter(name, func() { r.StreamDown(uid, time.Now()) })
		if n := r.loop.CountReady(); n > min(i, size) {
			b.Fatalf("%d clusters are to be reconciled after %d check-ins", n, i)
		}
	}
}

// BenchmarkCheckIn is one check-in without news, in fleets of different sizes: it costs
// the same in all of them.
func BenchmarkCheckIn(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r, next := newVisits(b, size)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
			if r.overdue.countAt(time.Now()) != 0 {
				b.Error("a cluster is overdue")
			}
		})
	}
}

// TestACheckInAllocatesNothingForOtherClusters: it costs the same in a fleet of ten and
// in one of 10,000.
func TestACheckInAllocatesNothingForOtherClusters(t *testing.T) {
	visit := func(fleet int) float64 {
		_, next := newVisits(t, fleet)
		return testing.AllocsPerRun(100, next)
	}
	few, many := visit(10), visit(10_000)
	t.Logf("%v allocations among 10 clusters, %v among 10,000", few, many)
	if many > few+100 {
		t.Errorf("a check-in allocates %v times among 10 clusters and %v times among 10,000", few, many)
	}
}
