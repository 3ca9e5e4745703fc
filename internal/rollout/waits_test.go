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
