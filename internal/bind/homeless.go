package bind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// reasonNoNamespace of conditions and Events.
const reasonNoNamespace = "NamespaceUnknown"

// Homeless says since when a Bundle waits for its namespace to be known, and what to do;
// empty where it does not, or has done so for too short a time to say so: objects may
// come before their namespace, for instance after a start.
func (b *Binder) Homeless(id claim.BundleID) string {
	if _, known := b.Namespaces.Get(id.Namespace); known || id.Namespace == "" {
		return ""
	}
	since := b.homeless.begin(id, time.Now())
	if time.Since(since) < waitsLong {
		return ""
	}
	return fmt.Sprintf("namespace %s has objects and is not known to the hub since %s; what is placed stays as it is, and changes wait. Make the namespace anew if it was removed by force; else look at the hub's log for why it is not read",
		id.Namespace, since.UTC().Format(time.RFC3339))
}

// awaitNamespace without which a Bundle's content could be wrong, since members are told of
// it. Its coming touches the Bundle; where that takes long the Bundle says so, and the
// policy and the objects, which are there before there is a Bundle.
func (b *Binder) awaitNamespace(ctx context.Context, id claim.BundleID, bundle state.Bundle, from origin, claimed []atoll.ItemKey) error {
	why := b.Homeless(id)
	switch {
	case b.ReadOnly:
		return nil
	case why == "":
		b.queue.AddAfter(id, waitsLong)
		return nil
	}
	var problems []claim.Problem
	for _, key := range claimed {
		problems = append(problems, claim.Problem{Key: key, Err: errors.New(why)})
	}
	b.reports.problems(id, reasonNoNamespace, problems)
	return b.unbound(ctx, id, bundle, from, reasonNoNamespace, why)
}
