package schedule

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A workload with a volume for each of its replicas goes to one cluster, and so do not two of its copies run in a move.
func TestCopiesWithVolumesOfReplicasAreExclusive(t *testing.T) {
	c := &atoll.Content{Items: []atoll.Item{{
		Key:    atoll.ItemKey{Group: "apps.kruise.io", Kind: "CloneSet", Namespace: "shop", Name: "db"},
		Object: []byte(`{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":2,"volumeClaimTemplates":[{"metadata":{"name":"data"}}]}}`), Divided: true,
	}}}
	ws, err := WorkloadsOf(c)
	if err != nil || len(ws) != 1 {
		t.Fatalf("%v %v", ws, err)
	}
	if ws[0].needsOneCluster() != HasExclusiveCopies(c, false) {
		t.Errorf("it needs one cluster: %t, its copies are exclusive: %t", ws[0].needsOneCluster(), HasExclusiveCopies(c, false))
	}
}
