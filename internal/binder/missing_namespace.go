package binder

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// MissingHubNamespaceReason explains since when a Bundle waits for its namespace, and what to do. It is
// empty for the first 10 s, because objects can be read before their namespace after a start.
func (b *Binder) MissingHubNamespaceReason(id policymatch.BundleID) string {
	if _, known := b.Namespaces.Get(id.Namespace); known || id.Namespace == "" {
		return ""
	}
	since := b.missingNamespaces.startWait(id, time.Now())
	if time.Since(since) < reportWaitAfter {
		return ""
	}
	return fmt.Sprintf("namespace %s has objects but the hub has not read it since %s; placed objects stay unchanged, and changes wait. Recreate the namespace if it was removed by force; otherwise see the hub's log for the reason",
		id.Namespace, phrase.FormatTime(since))
}

// awaitNamespace waits for the namespace, whose labels are part of the content. The namespace
// touches the Bundle when it comes. After a while the Bundle, the policy and the objects report
// the wait.
func (b *Binder) awaitNamespace(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, from bundleOrigin, claimed []atoll.ItemKey) (again time.Duration, err error) {
	why := b.MissingHubNamespaceReason(id)
	switch {
	case b.ReadOnly:
		return 0, nil
	case why == "":
		return reportWaitAfter, nil
	}
	b.policyStatus.setProblems(id, atoll.ReasonNamespaceUnknown, newProblems(claimed, why))
	return 0, b.setUnboundCondition(ctx, id, bundle, from, atoll.ReasonNamespaceUnknown, why)
}
