package apply

import (
	"testing"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A healthy object counts as Ready only with the content and the template of the present manifest. An
// object that belongs to another Bundle has the content of that Bundle.
func TestReadyIsThePresentContent(t *testing.T) {
	for name, c := range map[string]struct {
		template, owner, applied string
		want                     atoll.RowState
	}{
		"the present content":             {"t", "b1", "hx", atoll.RowReady},
		"the content before":              {"t", "b1", "hy", atoll.RowProgressing},
		"nothing since an interruption":   {"t", "b1", "", atoll.RowProgressing},
		"another template":                {"t0", "b1", "hx", atoll.RowProgressing},
		"the content of another Bundle":   {"t", "b2", "hy", atoll.RowReady},
		"another template, another owner": {"t0", "b2", "hy", atoll.RowProgressing},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineOn(t, newMemoryMember(t), ownership.Record{
				Key: confKey, APIVersion: "v1", UID: "live", Template: c.template, Owner: c.owner, Label: c.owner, Applied: c.applied, Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}, c.owner: {State: ownership.Wanted, Template: c.template}},
			}, newManifest("b1", 2, confItem("x")))
			e.ObjectSeen(observe.View{Key: confKey, UID: "live", Label: c.owner, Template: c.template, Health: atoll.Healthy})
			s, _ := e.StatusOf("b1", nil, testNow)
			if s.State != c.want || s.Applied != (c.want == atoll.RowReady) || s.Generation != 2 {
				t.Errorf("generation %d is %s, applied %t; want %s", s.Generation, s.State, s.Applied, c.want)
			}
		})
	}
}
