package apply

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A correction that a person approved needs the rights of its write as well. The approval waits for them.
func TestAnApprovalNeedsTheRightsOfTheServiceAccount(t *testing.T) {
	for name, c := range map[string]struct {
		live    []string
		missing string
		refused bool
	}{
		"a missing object":                       {nil, "create", true},
		"an object that differs":                 {[]string{liveConf("live")}, "patch", true},
		"an object that differs, without create": {[]string{liveConf("live")}, "create", false},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.live...)
			a := &authorizer{Handler: api, allowed: slices.Clone(allRights)}
			item := namedItem(observeAs(confItem("x"), atoll.ObserveForApproval))
			e, _ := newApprovedEngine(t, a, item, []ownership.Record{shopNamespace, wantedRecord(item)}, nil)
			a.allowed = slices.DeleteFunc(slices.Clone(allRights), func(right string) bool { return right == c.missing+" configmaps shop/conf" })
			failure := e.workOnKey(t.Context(), confKey)
			if c.refused != (failure != nil && failure.Reason == atoll.ReasonServiceAccountForbidden) {
				t.Fatalf("without the right to %s: %+v", c.missing, failure)
			}
			if c.refused {
				api.expectWrites(t)
				a.allowed = allRights
				expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
			}
			api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
		})
	}
}
