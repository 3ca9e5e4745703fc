package verify

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// Row is one row of a hub.
type Row struct {
	// Bundle is namespace/name, Cluster the Cluster's name.
	Bundle, Cluster string
	Spec            atoll.RowSpec
	// Status is the reported status; nil before the first report.
	Status *atoll.RowStatus
}

// ForEachRow visits all rows of a hub.
func ForEachRow(ctx context.Context, api rest.Interface, visit func(Row) error) error {
	var failed error
	err := forEachObject(ctx, api, "/apis/engine.atoll.dev/v1alpha1/targetslices", func(s *enginev1.TargetSlice) {
		if failed != nil {
			return
		}
		var rows []rowcodec.SliceRow
		if rows, failed = rowcodec.DecodeSlice(s); failed != nil {
			return
		}
		for _, d := range rows {
			r := Row{Bundle: s.Spec.Bundle.Namespace + "/" + s.Spec.Bundle.Name, Cluster: d.Cluster, Spec: d.Spec, Status: d.Status}
			if failed = visit(r); failed != nil {
				return
			}
		}
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("read rows: %w", failed)
	}
	return err
}
