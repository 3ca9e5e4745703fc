package rollout

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// TestFailureNamesItsActor: what a member's administrator forbids, no edit of the application
// brings there.
func TestFailureNamesItsActor(t *testing.T) {
	for name, c := range map[string]struct {
		status atoll.RowStatus
		want   atoll.Actor
	}{
		"the policy of the member, reported for the row":  {atoll.RowStatus{Reason: atoll.ReasonDeniedByPolicy, Message: "Secret sec: AgentPolicy agent does not allow kind Secret"}, atoll.ActorMember},
		"the policy of the member, reported for the item": {atoll.RowStatus{Items: []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "Secret", Name: "sec"}, Health: atoll.Degraded, Reason: atoll.ReasonDeniedByPolicy}}}, atoll.ActorMember},
		"what the application states":                     {atoll.RowStatus{Reason: "Invalid", Message: "Secret sec: DeniedByPolicy"}, atoll.ActorUser},
	} {
		t.Run(name, func(t *testing.T) {
			c.status.State = atoll.RowFailed
			if got := WaitOfActiveRow(Row{Status: &c.status, Online: true}); got.Actor != c.want {
				t.Errorf("%s is to act: %+v", got.Actor, got)
			}
		})
	}
}

// Atoll makes no object that is only observed.
func TestAMissingObjectNamesItsActor(t *testing.T) {
	st := &atoll.RowStatus{State: atoll.RowProgressing, Reason: atoll.ReasonMissing, Message: "ConfigMap a: the member does not have the object"}
	if w := WaitOfActiveRow(Row{Status: st, Online: true}); w.Reason != atoll.ReasonMissing || w.Actor != atoll.ActorUser {
		t.Errorf("%+v", w)
	}
}

// A removal that the member cannot carry out names what blocks it, and its administrator. One that only takes
// time does not.
func TestWaitsOfRemovingRows(t *testing.T) {
	volume := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	backup := atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "backup"}
	for name, tc := range map[string]struct {
		offline bool
		status  *atoll.RowStatus
		reason  atoll.Reason
		awaited string
	}{
		"no report":         {reason: atoll.ReasonWaitsForRemoval, awaited: "the removal to be done"},
		"an earlier report": {status: &atoll.RowStatus{Generation: 6, State: atoll.RowFailed, Message: "old"}, reason: atoll.ReasonWaitsForRemoval, awaited: "the removal to be done"},
		"under way":         {status: &atoll.RowStatus{Generation: 7, State: atoll.RowProgressing, Reason: atoll.ReasonRemoving}, reason: atoll.ReasonWaitsForRemoval, awaited: "the removal to be done"},
		"a finalizer": {status: &atoll.RowStatus{Generation: 7, State: atoll.RowProgressing, Items: []atoll.ItemStatus{{Key: volume, Reason: atoll.ReasonTerminating, Message: "it has the finalizer example.com/\x1bkeep"}}},
			reason: atoll.ReasonWaitsForMember, awaited: `the removal, which is blocked: PersistentVolumeClaim data: it has the finalizer example.com/\x1bkeep`},
		"a hook": {status: &atoll.RowStatus{Generation: 7, State: atoll.RowProgressing, Reason: atoll.ReasonRemoving, Items: []atoll.ItemStatus{{Key: volume, Reason: atoll.ReasonRemoving, Message: "it is removed after the hook"}, {Key: backup, Reason: atoll.ReasonWaitsForHook, Message: "the removal waits"}}},
			reason: atoll.ReasonWaitsForHook, awaited: "a hook of the removal, Job backup: the removal waits"},
		"a failed hook": {status: &atoll.RowStatus{Generation: 7, State: atoll.RowFailed, Reason: atoll.ReasonHookFailed, Items: []atoll.ItemStatus{{Key: backup, Reason: atoll.ReasonHookFailed, Error: true, Message: "it failed"}}},
			reason: atoll.ReasonHookFailed, awaited: "a hook of the removal, Job backup: it failed"},
		"refused": {status: &atoll.RowStatus{Generation: 7, State: atoll.RowFailed, Reason: atoll.ReasonDeniedByPolicy, Message: "deletes are not allowed"},
			reason: atoll.ReasonWaitsForMember, awaited: "the removal, which is blocked: DeniedByPolicy deletes are not allowed"},
		"disconnected": {offline: true, status: &atoll.RowStatus{Generation: 7, State: atoll.RowFailed}, reason: atoll.ReasonWaitsForCluster, awaited: "the cluster to come back and remove what it holds, or `atoll remove --force` to give it up"},
		"removed":      {status: &atoll.RowStatus{Generation: 7, State: atoll.RowRemoved}},
	} {
		w := WaitOfRemovingRow(Row{Spec: atoll.RowSpec{Generation: 7, Phase: atoll.RowRemoving, Since: 60}, Status: tc.status, Online: !tc.offline})
		if w.Reason != tc.reason || w.For != tc.awaited || tc.reason != "" && w.Since.Unix() != 60 {
			t.Errorf("%s: %+v", name, w)
		}
		if tc.reason == atoll.ReasonWaitsForMember && w.Actor != atoll.ActorMember {
			t.Errorf("%s: %s must act", name, w.Actor)
		}
	}
}
