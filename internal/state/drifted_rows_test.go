package state

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/rowcodec"
)

func TestDriftedRows(t *testing.T) {
	d := newDriftedRows(newRows(nil))
	var notified []string
	d.Subscribe(func(cluster string) { notified = append(notified, cluster) })
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
	if n := d.CountOfCluster("oslo"); n != 2 || d.CountOfCluster("lima") != 1 || d.CountOfCluster("rome") != 0 {
		t.Errorf("%d Bundles have drift in oslo", n)
	}
	if want := []string{"oslo", "lima", "oslo"}; !slices.Equal(notified, want) {
		t.Errorf("notified of %q, want %q: another count of a row is no other number of Bundles", notified, want)
	}
	put("b", "lima", 0)
	d.countTransitions([]RowTransition{{Bundle: "a", Cluster: "oslo", Before: rowcodec.Summary{Drifted: 1}}})
	if got := d.Bundles(); !slices.Equal(got, []string{"b"}) || len(d.ClustersOf("a")) != 0 || len(d.counts) != 1 {
		t.Errorf("Bundles %q, %d kept", got, len(d.counts))
	}
	if n := d.CountOfCluster("oslo"); n != 1 || d.CountOfCluster("lima") != 0 || len(d.bundles) != 1 || len(notified) != 5 {
		t.Errorf("%d Bundles have drift in oslo, %d clusters are kept, notified of %q", n, len(d.bundles), notified)
	}
}
