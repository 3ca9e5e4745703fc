package atoll_test

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A row that the member's administrator has to admit says so, by the row's reason or by that of an item. An item that is
// healthy keeps nothing waiting.
func TestTheReasonOfARowThatIsRefused(t *testing.T) {
	item := func(health atoll.Health, reason atoll.Reason) atoll.ItemStatus {
		return atoll.ItemStatus{Health: health, Reason: reason}
	}
	for name, c := range map[string]struct {
		status atoll.RowStatus
		want   atoll.Reason
	}{
		"by a policy":        {atoll.RowStatus{State: atoll.RowFailed, Items: []atoll.ItemStatus{item(atoll.Unknown, atoll.ReasonDeniedByPolicy)}}, atoll.ReasonDeniedByPolicy},
		"by rights":          {atoll.RowStatus{State: atoll.RowFailed, Items: []atoll.ItemStatus{item(atoll.Unknown, atoll.ReasonServiceAccountForbidden)}}, atoll.ReasonServiceAccountForbidden},
		"the row by rights":  {atoll.RowStatus{State: atoll.RowFailed, Reason: atoll.ReasonServiceAccountForbidden}, atoll.ReasonServiceAccountForbidden},
		"a policy and right": {atoll.RowStatus{State: atoll.RowFailed, Items: []atoll.ItemStatus{item(atoll.Unknown, atoll.ReasonServiceAccountForbidden), item(atoll.Unknown, atoll.ReasonDeniedByPolicy)}}, atoll.ReasonDeniedByPolicy},
		"a healthy item":     {atoll.RowStatus{State: atoll.RowFailed, Items: []atoll.ItemStatus{item(atoll.Healthy, atoll.ReasonServiceAccountForbidden)}}, atoll.ReasonFailed},
		"another reason":     {atoll.RowStatus{State: atoll.RowFailed, Items: []atoll.ItemStatus{item(atoll.Unknown, atoll.ReasonInvalid)}}, atoll.ReasonFailed},
		"a rule that fails":  {atoll.RowStatus{State: atoll.RowProgressing, Items: []atoll.ItemStatus{item(atoll.Progressing, atoll.ReasonPending), item(atoll.Unknown, atoll.ReasonHealthRuleFailed)}}, atoll.ReasonHealthRuleFailed},
		"a rule is unmet":    {atoll.RowStatus{State: atoll.RowProgressing, Items: []atoll.ItemStatus{item(atoll.Progressing, atoll.ReasonHealthRuleUnmet)}}, atoll.ReasonProgressing},
		"a row that works":   {atoll.RowStatus{State: atoll.RowReady, Items: []atoll.ItemStatus{item(atoll.Healthy, atoll.ReasonServiceAccountForbidden)}}, ""},
	} {
		if got := c.status.WaitReason(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if actor := atoll.ActorOf(atoll.ReasonServiceAccountForbidden); actor != atoll.ActorMember {
		t.Errorf("%s must act", actor)
	}
}
