package state

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/rowcodec"
)

func TestDriftedRows(t *testing.T) {
	d := &DriftedRows{counts: map[string]map[string]int32{}}
	put := func(bundle, cluster string, n int32) {
		d.countTransitions([]RowTransition{{Bundle: bundle, Cluster: cluster, After: rowcodec.Summary{Drifted: n}}})
	}
	put("b", "oslo", 3)
	put("b", "lima", 1)
	put("a", "oslo", 1)
	put("c", "oslo", 0)
	put("b", "oslo", 2)
	if got := d.Bundles(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("Bundles %q", got)
	}
	if got := d.ClustersOf("b"); !slices.Equal(got, []string{"lima", "oslo"}) {
		t.Errorf("clusters %q", got)
	}
	put("b", "lima", 0)
	d.countTransitions([]RowTransition{{Bundle: "a", Cluster: "oslo", Before: rowcodec.Summary{Drifted: 1}}})
	if got := d.Bundles(); !slices.Equal(got, []string{"b"}) || len(d.ClustersOf("a")) != 0 || len(d.counts) != 1 {
		t.Errorf("Bundles %q, %d kept", got, len(d.counts))
	}
}
