package rollout

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// TestWhoHasToActOnAFailure: what a member's administrator forbids, no edit of the application
// brings there.
func TestWhoHasToActOnAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		status atoll.RowStatus
		want   string
	}{
		"the policy of the member, told of the row":  {atoll.RowStatus{Reason: atoll.DeniedByPolicy, Message: "Secret sec: AgentPolicy agent does not allow kind Secret"}, WhoMember},
		"the policy of the member, told of the item": {atoll.RowStatus{Items: []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "Secret", Name: "sec"}, Health: atoll.Degraded, Reason: atoll.DeniedByPolicy}}}, WhoMember},
		"what the application states":                {atoll.RowStatus{Reason: "Invalid", Message: "Secret sec: DeniedByPolicy"}, WhoUser},
	} {
		t.Run(name, func(t *testing.T) {
			c.status.State = atoll.RowFailed
			if got := WaitOf(Row{Status: &c.status, Online: true}); got.Who != c.want {
				t.Errorf("%s is to act: %+v", got.Who, got)
			}
		})
	}
}
