package client_test

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

func TestPlansAreThoseThatStillWait(t *testing.T) {
	row := func(cluster, reason string) client.Row {
		return client.Row{Cluster: cluster, Spec: atoll.RowSpec{Reason: reason}}
	}
	got := client.PendingPlans(map[string]string{atoll.AnnotationConfirm: "old", atoll.AnnotationKeep: "kept"}, []client.Row{
		row("a", "RemovalHeld plan=new: PlacementEdited"),
		row("b", "RemovalHeld plan=new: PlacementEdited"),
		row("c", "RemovalHeld plan=old"),
		row("d", "Unfit: labels"),
		row("e", "RemovedBeforeRestore plan=kept: Deployment web"),
		row("f", "RemovedBeforeRestore plan=recalled: Deployment web"),
		row("g", "RemovedBeforeRestore: the member removed it"),
	})
	if len(got) != 2 || len(got["new"].Lines) != 2 || got["new"].Recalled || !got["recalled"].Recalled {
		t.Fatalf("waiting plans are %v", got)
	}
	if got["new"].Lines[0] != "a: RemovalHeld: PlacementEdited" {
		t.Errorf("the plan says %q", got["new"].Lines[0])
	}
}
