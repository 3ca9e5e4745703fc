package scenario

import (
	"context"
	"fmt"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bench/truth"
)

// rowsNow gives what the hub wants of each row, by application and cluster.
func (s *stage) rowsNow(ctx context.Context) (map[string]atoll.RowSpec, error) {
	rows := map[string]atoll.RowSpec{}
	err := truth.EachRow(ctx, s.kube.CoreV1().RESTClient(), func(r truth.Row) error {
		rows[r.Bundle+" "+r.Cluster] = r.Spec
		return nil
	})
	return rows, err
}

// compareRows checks that no row came, went or moved, and that those of the still
// applications are what they were. Those of fresh applications are not looked at.
func (s *stage) compareRows(ctx context.Context, before map[string]atoll.RowSpec, still, fresh []app) error {
	untouched, isFresh := map[string]bool{}, map[string]bool{}
	for _, a := range still {
		untouched[a.key()] = true
	}
	for _, a := range fresh {
		isFresh[a.key()] = true
	}
	n, moved, harmed := 0, 0, 0
	example := ""
	err := truth.EachRow(ctx, s.kube.CoreV1().RESTClient(), func(r truth.Row) error {
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
	s.report.Check("no removal and no re-placement", moved == 0 && n == len(before), "%d rows before, %d after, %d moved%s", len(before), n, moved, example)
	s.report.Check("rows of applications that did not change are as they were", harmed == 0, "%d rows were ordered anew", harmed)
	return err
}
