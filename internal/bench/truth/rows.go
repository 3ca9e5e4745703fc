package truth

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Row is one of a hub.
type Row struct {
	// Bundle as namespace/name, and the Cluster's name.
	Bundle, Cluster string
	Spec            atoll.RowSpec
	// Status as it was reported, nil if nothing was.
	Status *atoll.RowStatus
}

// EachRow visits all rows of a hub.
func EachRow(ctx context.Context, api rest.Interface, visit func(Row) error) error {
	var failed error
	err := each(ctx, api, "/apis/engine.atoll.dev/v1alpha1/targetslices", func(s *enginev1.TargetSlice) {
		for cluster, line := range s.Spec.Rows {
			if failed != nil {
				return
			}
			r := Row{Bundle: s.Spec.Bundle.Namespace + "/" + s.Spec.Bundle.Name, Cluster: cluster}
			if r.Spec, failed = atoll.ParseRowSpec(line, s.Spec.Words...); failed != nil {
				continue
			}
			if reported := s.Status.Rows[cluster]; reported != "" {
				status, err := atoll.ParseRowStatus(reported, r.Spec.UID, s.Status.Words...)
				if err != nil {
					failed = err
					continue
				}
				r.Status = &status
			}
			failed = visit(r)
		}
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("read rows: %w", failed)
	}
	return err
}
