package client

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// Row is one Bundle in one cluster, taken out of its TargetSlice.
type Row struct {
	Namespace string           `json:"namespace,omitempty"` // empty: a ClusterBundle
	Bundle    string           `json:"bundle"`
	Cluster   string           `json:"cluster"`
	Spec      atoll.RowSpec    `json:"spec"`
	Status    *atoll.RowStatus `json:"status,omitempty"` // nil: none reported yet
	Slice     string           `json:"slice"`
	// Ref of the Bundle, by UID too.
	Ref enginev1.BundleRef `json:"-"`
}

// ListRows decodes the TargetSlices that a label selector selects, all if it is empty, and
// gives the rows to keep, sorted by Bundle and cluster. A line that this version cannot read is an error that names its slice.
func ListRows(ctx context.Context, c *Connection, selector string, keep func(Row) bool) ([]Row, error) {
	all, err := List[enginev1.TargetSlice](ctx, c, TargetSlices, "", metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	rows := []Row{}
	for _, s := range all {
		decoded, err := rowcodec.DecodeSlice(&s)
		if err != nil {
			return nil, err
		}
		for _, d := range decoded {
			r := Row{Namespace: s.Spec.Bundle.Namespace, Bundle: s.Spec.Bundle.Name, Cluster: d.Cluster, Spec: d.Spec, Status: d.Status, Slice: s.Name, Ref: s.Spec.Bundle}
			if keep(r) {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Bundle, b.Bundle), cmp.Compare(a.Cluster, b.Cluster))
	})
	return rows, nil
}
