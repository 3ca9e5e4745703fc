package confirm

import (
	"maps"
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

func TestPlansAreThoseThatStillWait(t *testing.T) {
	row := func(cluster, reason string) client.Row {
		return client.Row{Cluster: cluster, Spec: atoll.RowSpec{Reason: reason}}
	}
	bundle := &v1alpha1.Bundle{}
	bundle.Annotations = map[string]string{atoll.AnnotationConfirm: "old"}
	got := plans(bundle, []client.Row{
		row("a", "RemovalHeld plan=new: PlacementEdited"),
		row("b", "RemovalHeld plan=new: PlacementEdited"),
		row("c", "RemovalHeld plan=old"),
		row("d", "Unfit: labels"),
	})
	if keys := slices.Collect(maps.Keys(got)); !slices.Equal(keys, []string{"new"}) || len(got["new"]) != 2 {
		t.Errorf("waiting plans are %v", got)
	}
	if got["new"][0] != "a: RemovalHeld: PlacementEdited" {
		t.Errorf("the plan says %q", got["new"][0])
	}
}
