package scenario

import (
	"context"
	"fmt"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab/bench/verify"
)

// readRowSpecs returns the hub's row specs, by application and cluster.
func (s *testbed) readRowSpecs(ctx context.Context) (map[string]atoll.RowSpec, error) {
	rows := map[string]atoll.RowSpec{}
	err := verify.ForEachRow(ctx, s.kube.CoreV1().RESTClient(), func(r verify.Row) error {
		rows[r.Bundle+" "+r.Cluster] = r.Spec
		return nil
	})
	return rows, err
}

// checkRowsUnmovedExceptFresh checks that no row appeared, vanished or moved, and that the rows of the
// still applications are unchanged. The rows of fresh applications are not compared.
func (s *testbed) checkRowsUnmovedExceptFresh(ctx context.Context, before map[string]atoll.RowSpec, still, fresh []application) error {
	untouched, isFresh := map[string]bool{}, map[string]bool{}
	for _, a := range still {
		untouched[a.bundleKey()] = true
	}
	for _, a := range fresh {
		isFresh[a.bundleKey()] = true
	}
	n, moved, harmed := 0, 0, 0
	example := ""
	err := verify.ForEachRow(ctx, s.kube.CoreV1().RESTClient(), func(r verify.Row) error {
		if isFresh[r.Bundle] {
			return nil
		}
		n++
		was, ok := before[r.Bundle+" "+r.Cluster]
		switch {
		case !ok, r.Spec.Phase != was.Phase, r.Spec.Since != was.Since, r.Spec.UID != was.UID:
			moved++
			example = fmt.Sprintf("; %s in %s was %+v and is %+v", r.Bundle, r.Cluster, was, r.Spec)
		case untouched[r.Bundle] && (r.Spec.Generation != was.Generation || r.Spec.Revision != was.Revision):
			harmed++
		}
		return nil
	})
	s.report.AddCheck("no removal and no re-placement", moved == 0 && n == len(before), "%d rows before, %d after, %d moved%s", len(before), n, moved, example)
	s.report.AddCheck("rows of applications that did not change are as they were", harmed == 0, "%d rows were ordered again", harmed)
	return err
}
