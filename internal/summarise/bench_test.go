package summarise

import (
	"fmt"
	"testing"
	"time"

	"atoll.dev/atoll/internal/state"
)

// BenchmarkLook is one look at a Bundle of 10,000 rows in which nothing has to be
// written: what a batch of changes costs.
func BenchmarkLook(b *testing.B) {
	const clusters = 10_000
	m := newMemory()
	for i := range clusters {
		m.addCluster(fmt.Sprintf("c%05d", i))
	}
	m.apply()
	for i := range clusters {
		c := fmt.Sprintf("c%05d", i)
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision = "b-r1" })
		m.report(c, 2)
	}
	r := New(m.config())
	r.started = time.Now()
	for range 2 {
		if _, err := r.reconcile(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
	m.writes = nil
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.reconcile(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
	if len(m.writes) > 0 {
		b.Errorf("it wrote %q", m.writes)
	}
}
