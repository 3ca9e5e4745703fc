package placer

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// The first cause that holds is counted.
func TestCauseOf(t *testing.T) {
	was := atoll.RowSpec{UID: "u", Generation: 3, Phase: atoll.RowActive, Revision: "r1", Variant: "v1"}
	leaving := was
	leaving.Phase = atoll.RowLeaving
	for _, c := range []struct {
		name   string
		was    atoll.RowSpec
		change func(*atoll.RowSpec)
		want   string
	}{
		{"nothing", was, func(*atoll.RowSpec) {}, ""},
		{"a change without an order", was, func(r *atoll.RowSpec) { r.Revision = "r2" }, ""},
		{"it is removed", leaving, func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving }, "Removal"},
		{"it stays removed", atoll.RowSpec{Phase: atoll.RowRemoving}, func(r *atoll.RowSpec) { r.Generation++ }, "Replicas"},
		{"it is placed again", leaving, func(r *atoll.RowSpec) { r.Phase = atoll.RowActive }, "Placement"},
		{"of another cluster", was, func(r *atoll.RowSpec) { r.UID, r.Generation = "v", 4 }, "Placement"},
		{"it leaves", was, func(r *atoll.RowSpec) { r.Phase = atoll.RowLeaving }, "Leaving"},
		{"a revision", was, func(r *atoll.RowSpec) { r.Revision, r.Variant, r.Generation = "r2", "v2", 4 }, "Revision"},
		{"overrides", was, func(r *atoll.RowSpec) { r.Variant, r.Generation = "v2", 4 }, "Override"},
		{"replicas", was, func(r *atoll.RowSpec) { r.Generation = 4 }, "Replicas"},
	} {
		next := c.was
		c.change(&next)
		if got := rowOrderCause(c.was, &next); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := rowOrderCause(was, nil); got != "Forgotten" {
		t.Errorf("a row that is gone: %q", got)
	}
}
