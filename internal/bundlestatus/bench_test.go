package bundlestatus

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// benchSizes are the rows of a Bundle in benchmarks.
var benchSizes = []int{100, 10_000, 100_000}

// newSettledReconciler returns a Reconciler that has looked at a Bundle of so many rows, all Ready.
func newSettledReconciler(b testing.TB, rows int) (*memory, *BundleReconciler) {
	b.Helper()
	return settledAmong(b, rows, rows)
}

// settledAmong more clusters than the Bundle has rows.
func settledAmong(b testing.TB, clusters, rows int) (*memory, *BundleReconciler) {
	b.Helper()
	m := newMemory()
	for i := range clusters {
		m.addCluster(fmt.Sprintf("c%06d", i))
	}
	m.apply()
	r := New(m.newConfig())
	r.started = time.Now()
	for i := range rows {
		c := fmt.Sprintf("c%06d", i)
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision = "b-r1" })
		m.reportAvailable(c, 2)
	}
	for range 2 {
		if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
	m.writes = nil
	return m, r
}

// BenchmarkLook is one look at a Bundle in which nothing has to be written.
func BenchmarkLook(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			m, r := newSettledReconciler(b, rows)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
					b.Fatal(err)
				}
			}
			if len(m.writes) > 0 {
				b.Errorf("it wrote %q", m.writes)
			}
		})
	}
}

// TestALookAllocatesNothingForOtherClusters: a row that turns, and the look at its Bundle,
// cost the same in a fleet of ten and in one of 10,000.
func TestALookAllocatesNothingForOtherClusters(t *testing.T) {
	const rows = 10
	turn := func(fleet int) float64 {
		m, r := settledAmong(t, fleet, rows)
		n := 0
		allocations := testing.AllocsPerRun(100, func() {
			m.reportAvailable(fmt.Sprintf("c%06d", n%rows), int64(1+n/rows%2))
			if _, err := r.reconcileBundle(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			n++
		})
		if len(m.writes) == 0 {
			t.Fatal("nothing was done")
		}
		return allocations
	}
	few, many := turn(rows), turn(10_000)
	t.Logf("%v allocations among 10 clusters, %v among 10,000", few, many)
	if many > few+100 {
		t.Errorf("a look allocates %v times among 10 clusters and %v times among 10,000", few, many)
	}
}

// BenchmarkRow is one row that turns, and the look at its Bundle.
func BenchmarkRow(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			m, r := newSettledReconciler(b, rows)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				m.reportAvailable(fmt.Sprintf("c%06d", n%rows), int64(1+n/rows%2))
				if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStorm is 333 rows that turn between two looks.
func BenchmarkStorm(b *testing.B) {
	m, r := newSettledReconciler(b, 10_000)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		for i := range 333 {
			m.reportAvailable(fmt.Sprintf("c%06d", (n*333+i*7919)%10_000), int64((n+i)%3))
		}
		if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnheld asks, of a template that no Bundle holds, whether all of 1,000
// Bundles were looked at.
func BenchmarkUnheld(b *testing.B) {
	m := newMemory()
	for i := range 1000 {
		m.setBundle(fmt.Sprint(i), nil)
	}
	r := New(m.newConfig())
	for i := range 1000 {
		r.index.setBundle(&bundleSnapshot{uid: fmt.Sprint(i), content: &atoll.Content{}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if !r.index.allReconciled() {
			b.Fatal("not all are known")
		}
	}
}

// BenchmarkManyItems is a look at an application of 5,000 Deployments in 100 clusters,
// of which one row turned.
func BenchmarkManyItems(b *testing.B) {
	m := newMemory()
	content := &atoll.Content{}
	for i := range 5000 {
		t := webTemplate()
		t.SetName(fmt.Sprintf("web%04d", i))
		t.SetUID(types.UID(t.GetName()))
		m.setTemplate(t)
		content.Items = append(content.Items, atoll.Item{Key: keyOf(t), UID: t.GetName(), Hash: "h1"})
	}
	m.setBundle("b", nil)
	rev := m.cutRevision("b", content)
	r := New(m.newConfig())
	r.started = time.Now()
	for i := range 100 {
		c := fmt.Sprintf("c%06d", i)
		m.addCluster(c)
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision = rev })
		m.reportAvailable(c, 2)
	}
	look := func() {
		if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
	look()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		m.reportAvailable(fmt.Sprintf("c%06d", n%100), int64(1+n/100%2))
		look()
	}
}
