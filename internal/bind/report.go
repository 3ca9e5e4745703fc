package bind

import (
	"context"
	"sync"
)

// reporter keeps what people are told: the status of policies.
type reporter struct {
	b *Binder

	mu   sync.Mutex
	said map[BundleID][]Problem
}

func newReporter(b *Binder) *reporter { return &reporter{b: b, said: map[BundleID][]Problem{}} }

func (r *reporter) run(context.Context) {}

func (r *reporter) touch(policyKey) {}

// problems notes what of a Bundle cannot become an item.
func (r *reporter) problems(id BundleID, problems []Problem) {
	for _, p := range problems {
		r.b.Log.Error("a template cannot be sent as it is; members keep what they have", "bundle", id.String(), "template", p.Key.String(), "err", p.Err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[id] = problems; len(problems) == 0 {
		delete(r.said, id)
	}
}
