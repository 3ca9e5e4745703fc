package bundlestatus

import (
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// An Event about the Namespace names a cluster that keeps it, and why.
func TestANamespaceThatMembersKeepIsReported(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want string }{
		"two keep it":   {"Secret shop/mine", "Secret shop/mine", "/Namespace//shop ForeignObjects: cluster a: Secret shop/mine (and 1 cluster more)"},
		"one keeps it":  {"", "Secret shop/mine", "/Namespace//shop ForeignObjects: cluster b: Secret shop/mine"},
		"none keeps it": {},
	} {
		t.Run(name, func(t *testing.T) {
			withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
				for cluster, why := range map[string]string{"a": c.a, "b": c.b} {
					m.reportRemoving(cluster)
					m.setRow("b", cluster, func(r *state.Row) {
						r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved, Message: why}
					})
				}
				step(time.Minute)
				m.mu.Lock()
				defer m.mu.Unlock()
				said := slices.DeleteFunc(slices.Clone(m.said), func(s string) bool { return s != c.want })
				if (len(said) == 1) != (c.want != "") {
					t.Errorf("events %q, want %q", m.said, c.want)
				}
			})
		})
	}
}
