package server

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
)

// heldAt are placements in which the clusters have a row of the Bundle of the Pod shop/db-0; true where
// the Pod is to stay.
type heldAt struct {
	Placements
	clusters map[string]bool
}

func (h heldAt) HoldersOf(key atoll.ItemKey) (map[string]bool, error) {
	if key != (atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "db-0"}) {
		return nil, nil
	}
	return h.clusters, nil
}

// A request about a template's Pod reaches no cluster in place of a disconnected one that is to have
// the Pod, whatever the other cluster claims.
func TestNoClusterStandsInForADisconnectedOne(t *testing.T) {
	for what, c := range map[string]struct {
		holders      map[string]bool
		pods, broken []string
		want         string
		refused      func(error) bool
		asked        []string
	}{
		"the placed cluster":                                   {holders: map[string]bool{"c001": true}, pods: []string{"c001"}, want: "c001", asked: []string{"c001"}},
		"a cluster without a row has one of that name":         {holders: map[string]bool{"c001": true}, pods: []string{"c000", "c001"}, want: "c001", asked: []string{"c001"}},
		"the placed one is cut off, another claims the Pod":    {holders: map[string]bool{"c001": true}, pods: []string{"c000"}, broken: []string{"c001"}, refused: apierrors.IsServiceUnavailable, asked: []string{"c001"}},
		"the placed one is cut off, one that it left has it":   {holders: map[string]bool{"c000": false, "c001": true}, pods: []string{"c000"}, broken: []string{"c001"}, refused: apierrors.IsServiceUnavailable, asked: []string{"c000", "c001"}},
		"one of two placed ones is cut off":                    {holders: map[string]bool{"c000": true, "c001": true}, pods: []string{"c000"}, broken: []string{"c001"}, refused: apierrors.IsServiceUnavailable, asked: []string{"c000", "c001"}},
		"one that it left is cut off, the placed one has it":   {holders: map[string]bool{"c000": false, "c001": true}, pods: []string{"c001"}, broken: []string{"c000"}, want: "c001", asked: []string{"c000", "c001"}},
		"one that it left still runs it, the placed not yet":   {holders: map[string]bool{"c000": false, "c001": true}, pods: []string{"c000"}, want: "c000", asked: []string{"c000", "c001"}},
		"one that it left is cut off, the placed lacks it yet": {holders: map[string]bool{"c000": false, "c001": true}, broken: []string{"c000"}, refused: apierrors.IsServiceUnavailable, asked: []string{"c000", "c001"}},
		"two have it": {holders: map[string]bool{"c000": true, "c001": true}, pods: []string{"c000", "c001"}, refused: apierrors.IsBadRequest, asked: []string{"c000", "c001"}},
		"no row":      {pods: []string{"c000"}, refused: apierrors.IsBadRequest},
	} {
		t.Run(what, func(t *testing.T) {
			f, asked := newNamedFleet(2, nil, c.pods, c.pods, c.broken)
			tables, _ := f.o.Tables()
			tables.Placements = heldAt{tables.Placements, c.holders}
			f.o.Tables = func() (Tables, bool) { return tables, true }
			ctx, _ := whoAsks(t, "jane", "shop")
			m, object, err := (&objectStorage{fleet: f, kind: kinds["pods"]}).findSoleMember(ctx, "shop", "db-0", "has no logs")
			switch {
			case c.refused != nil && (m != nil || !c.refused(err)):
				t.Errorf("it runs in %v, %v", m, err)
			case c.refused == nil && (err != nil || m.Name != c.want || object != "db-0"):
				t.Errorf("it runs in %v as %q, %v; want %s", m, object, err, c.want)
			}
			if got := slices.Compact(asked.takeNames()); !slices.Equal(got, c.asked) {
				t.Errorf("asked are %v", got)
			}
		})
	}
}
