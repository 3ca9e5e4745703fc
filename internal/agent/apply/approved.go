package apply

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// Under drift: Approve the Engine observes an object, and reports its drift under a random ID. A manifest with this
// ID lets the Engine apply the item once, while the differences are the ones of the ID. The ID then ends, so that
// the approval is good for no later drift, not even for the same differences.

// newDriftID returns a random ID of a drift.
func newDriftID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// isApproved reports whether the item has the approval of the drift under the ID.
func isApproved(it *atoll.RenderedItem, id string) bool {
	return id != "" && it.Observe == atoll.ObserveForApproval && it.Approval == id
}

// driftID returns the ID of the drift; empty without one.
func (o *observation) driftID() string {
	if o == nil || o.drift == nil {
		return ""
	}
	return o.drift.ID
}

// hashDrift returns a hash of the whole drift of an object with the UID from the item's content, which a person may
// approve; empty where the item's drift is only reported. A missing object has no UID, and its drift is the whole item. The hash stays in the
// member, because readers of reports could test guesses of a Secret against it.
func hashDrift(it *atoll.RenderedItem, uid string, differences []objectdiff.Difference) string {
	if it.Observe != atoll.ObserveForApproval {
		return ""
	}
	if uid == "" {
		return atoll.HashParts([]byte("missing"), []byte(it.Hash))
	}
	return atoll.HashParts([]byte(uid), []byte(it.UID), []byte(it.Hash), []byte(atoll.HashJSON(differences)))
}

// driftFor returns the drift that is reported for an item. Its ID is reported by the owner alone, and only where a
// person may approve it.
func (o *observation) driftFor(it *atoll.RenderedItem, isOwner bool) *atoll.Drift {
	if o.drift == nil || o.drift.ID == "" || isOwner && it.Observe == atoll.ObserveForApproval {
		return o.drift
	}
	out := *o.drift
	out.ID = ""
	return &out
}

// addApprovedDrift adds the last comparison to the report of an item whose approved correction fails.
func addApprovedDrift(out *report.Item, it *atoll.RenderedItem, o *observation) {
	if it.Approval == "" || o == nil || o.hash != it.Hash || o.drift == nil {
		return
	}
	out.Observed, out.Drift, out.Health, out.Reflected = true, o.drift, o.view.Health, o.view.Reflected
	if o.view.UID == "" {
		out.Health = atoll.Unknown
	}
}

// missingText returns what a person can do about a missing object.
func missingText(d *atoll.Drift) string {
	if d != nil && d.ID != "" {
		return "the member does not have the object: `atoll drift correct` lets Atoll create it"
	}
	return "the member does not have the object, and Atoll only observes it: create it there, or let Atoll write it"
}

// correctApproved applies the plan's observed item, because a person approved the drift that was compared just now.
// The use of the approval is stored first. The approval returns unless the member's API may have carried out a write.
func (e *MemberApplier) correctApproved(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	id := p.Observed.Approval
	if spent, failure := e.takeApproval(&p); !spent {
		return failure
	}
	failure := &Failure{}
	if err := e.storeChangedRecords(ctx); err != nil {
		failure = failureFromError(err, p.Key)
	} else if failure = e.applyApproved(ctx, p, res); failure == nil {
		e.o.Metrics.countCorrection()
		e.o.Log.Info("corrected what was approved", "object", p.Key, "drift", id)
		return e.compareCorrected(ctx, p, res)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !p.approved.mayBeDone {
		e.book.ReturnApproval(p.Key, id)
	}
	if o := e.observed[p.Key]; o != nil {
		o.stale = true
	}
	return failure
}

// takeApproval records the use of the approval of the plan's item, and whether the object is missing. It returns false
// when the item, its approval or its drift changed since the comparison, so that the object is compared again, or
// with the reason of a wait.
func (e *MemberApplier) takeApproval(p *pendingWork) (spent bool, wait *Failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.book.IsKeptForOther(p.Key) {
		return false, &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, Message: "another bundle takes over the object that is there: the correction waits for it"}
	}
	o := e.observed[p.Key]
	if o == nil {
		return false, nil
	}
	p.wasMissing, p.approved = o.version == "", &approvedWrite{version: o.version}
	_, item := e.book.ObservedItem(p.Key)
	if item == nil || item.Hash != p.Observed.Hash || !isApproved(item, p.Observed.Approval) {
		return false, nil
	}
	return e.book.SpendApproval(p.Key, p.Observed.Approval), nil
}

// applyApproved applies the item. An object that is created, or found after an interrupted apply, takes a second
// apply: fields of the member are handed over by it.
func (e *MemberApplier) applyApproved(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	item := *p.Observed
	item.Error, item.Recreate = "", false // an edit that the member refuses deletes nothing
	if p.wasMissing {
		item.ConflictResolution = v1alpha1.ConflictAbort // an object that appeared since is not what was approved
		p.Record.UID = ""                                // the record may be of an object that is gone
	}
	p.Item = &item
	if failure := e.checkAccountRights(ctx, p.asApply()); failure != nil {
		return failure
	}
	if failure := e.ensureNamespaceOf(ctx, p); failure != nil {
		return failure
	}
	for range maxSteps {
		if failure := e.put(ctx, p); failure != nil {
			return failure
		}
		e.mu.Lock()
		p.Record, _ = e.book.Record(p.Key)
		e.mu.Unlock()
		if p.Record.Applied == item.Hash && slices.Equal(p.Record.Left, p.left) {
			break
		}
	}
	return nil
}

// asApply returns the plan as the apply of its item.
func (p pendingWork) asApply() pendingWork {
	p.Verb, p.Observed = ownership.Apply, nil
	return p
}

// ensureNamespaceOf makes the namespace of the plan's object by the rights of the plan's ServiceAccount, if the manifest
// has the namespace and the member may not. After a failure nothing else makes the namespace for the object.
func (e *MemberApplier) ensureNamespaceOf(ctx context.Context, p pendingWork) *Failure {
	ns := p.Key.Namespace
	e.mu.Lock()
	needed := ns != "" && len(e.book.BundlesWithNamespace(ns)) > 0 && !e.foreign[ns]
	if needed {
		e.intendNamespace(ns)
		r, known := e.book.Record(atoll.NamespaceKey(ns))
		needed = known && r.Implicit && r.UID == "" && len(r.Claims) == 0
	}
	e.mu.Unlock()
	if !needed {
		return nil
	}
	var accounts []string
	if p.Account != "" {
		accounts = []string{p.Account}
	}
	failure := e.ensureNamespaceAs(ctx, ns, accounts)
	if failure != nil {
		e.mu.Lock()
		e.book.CancelNamespaceIntent(ns)
		e.mu.Unlock()
	}
	return failure
}

// compareCorrected compares an object after its correction.
func (e *MemberApplier) compareCorrected(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	begun := e.beginObservation(p.Key)
	e.mu.Lock()
	p.Record, _ = e.book.Record(p.Key)
	e.mu.Unlock()
	now, failure := e.readAndCompareObserved(ctx, p, res)
	return e.keepObservation(p, begun, now, failure)
}
