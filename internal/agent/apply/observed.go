package apply

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/objectdiff"
)

// The Engine writes nothing of an object that its Bundle observes, but by an approval (approved.go). It watches the object without
// Atoll's label, and compares it with the item by an apply that the member's API does not carry out.

// observeItem is the verb for an object that is read and compared.
const observeItem ownership.Verb = "Observe"

// observeInterval is the least time between two comparisons of an object.
const observeInterval = 5 * time.Second

// observation is what was last read of an observed object.
type observation struct {
	// hash of the item with which the object was compared; empty before the first time. left are the fields
	// that belonged to the member.
	hash string
	left []string
	// view of the object; empty where it is missing.
	view  observe.View
	drift *atoll.Drift
	// version is the resource version of the object that was compared; empty where it is missing.
	version string
	// differences is a hash of the drift that a person may approve; empty: there is none.
	differences string
	// ran: the object ran to completion, and is gone.
	ran bool
	// stale: the object may have changed since the last comparison began, at the time at.
	stale bool
	at    time.Time
}

// needsObservation reports whether the object has to be compared with the plan's item. The caller holds mu.
func (e *MemberApplier) needsObservation(p *pendingWork) bool {
	o := e.observed[p.Key]
	return o == nil || o.stale || o.hash != p.Observed.Hash || !slices.Equal(o.left, p.left) || isApproved(p.Observed, p.Record.DriftID)
}

// markObservationStale lets the key's object be compared again, if it is observed. The caller holds mu.
func (e *MemberApplier) markObservationStale(key atoll.ItemKey) {
	if o := e.observed[key]; o != nil {
		o.stale = true
		e.markDueUnlessBackingOff(key)
	}
}

// noteObserved takes the view of an object that is observed. Its health and status count at once. The
// object is compared again when more than its status changed. The caller holds mu.
func (e *MemberApplier) noteObserved(v observe.View, left bool) {
	o := e.observed[v.Key]
	if o == nil {
		return // its first comparison is still to begin
	}
	if v.Edit == "" { // of the watch by Atoll's label: the other watch reports edits
		v.Edit = o.view.Edit
	}
	same := !left && o.view.UID == v.UID && o.view.Edit == v.Edit
	if !left {
		o.view = v
	}
	if same || o.stale {
		return
	}
	o.stale = true
	if t := e.ensureTask(v.Key); !t.due {
		t.due, t.at = true, o.at.Add(e.observeInterval)
	}
}

// ObserverOf returns the Bundle that observes the key's object instead of writing it; empty without one.
func (e *MemberApplier) ObserverOf(key atoll.ItemKey) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	bundle, item := e.book.ObservedItem(key)
	if item == nil {
		return ""
	}
	return bundle
}

// ObservedListed takes the observed objects that a starting watch of all objects of a kind found. The
// other ones, which were there before, are read again.
func (e *MemberApplier) ObservedListed(group, kind string, found map[atoll.ItemKey]bool) {
	e.mu.Lock()
	for key, o := range e.observed {
		if key.Group == group && key.Kind == kind && !found[key] && o.view.UID != "" {
			o.stale = true
			e.markDueUnlessBackingOff(key)
		}
	}
	e.mu.Unlock()
	e.wakeRun()
}

// observedKeysOfBundle returns the keys that the Bundle's manifest observes. The caller holds mu.
func (e *MemberApplier) observedKeysOfBundle(bundle string) map[atoll.ItemKey]bool {
	keys := map[atoll.ItemKey]bool{}
	if h := e.book.HoldingOf(bundle); h != nil {
		for i := range h.Manifest.Items {
			if it := &h.Manifest.Items[i]; it.Observe != "" {
				keys[it.Key] = true
			}
		}
	}
	return keys
}

// dropObserved drops those of the keys that are no longer observed, and stops watches that are no longer
// needed. Objects that the agent may write again are checked first: before are the keys that its Bundle
// observed. The caller holds mu.
func (e *MemberApplier) dropObserved(before map[atoll.ItemKey]bool, keys []atoll.ItemKey) {
	kinds := map[schema.GroupKind]bool{}
	for _, key := range keys {
		if _, item := e.book.ObservedItem(key); item != nil {
			continue
		}
		if r, known := e.book.Record(key); known && r.UID != "" && (e.observed[key] != nil || before[key]) {
			e.ensureTask(key).check = true
		}
		if e.observed[key] == nil {
			continue
		}
		e.setObservation(key, nil)
		kinds[schema.GroupKind{Group: key.Group, Kind: key.Kind}] = true
	}
	e.stopUnneededWatches(kinds)
}

// stopUnneededWatches stops the watches of all objects of those kinds of which none is observed. The caller
// holds mu.
func (e *MemberApplier) stopUnneededWatches(kinds map[schema.GroupKind]bool) {
	if len(kinds) == 0 {
		return
	}
	for key := range e.observed {
		delete(kinds, schema.GroupKind{Group: key.Group, Kind: key.Kind})
	}
	for gk := range kinds {
		e.o.Watch.StopUnfiltered(gk.Group, gk.Kind)
	}
}

// setObservation keeps an observation, and counts the objects that differ; nil: none. The caller holds mu.
func (e *MemberApplier) setObservation(key atoll.ItemKey, o *observation) {
	if old := e.observed[key]; old != nil && old.drift != nil {
		e.o.Metrics.drifted.Dec()
	}
	if o == nil {
		delete(e.observed, key)
		return
	}
	if e.observed[key] = o; o.drift != nil {
		e.o.Metrics.drifted.Inc()
	}
}

// compareObservedObject compares the object that the plan's Bundle observes with the item.
func (e *MemberApplier) compareObservedObject(ctx context.Context, p pendingWork) *Failure {
	res, failure := e.resourceFor(ctx, p.Key, p.Observed.APIVersion)
	if failure != nil {
		return failure
	}
	begun := e.beginObservation(p.Key)
	e.o.Watch.StartUnfiltered(res)
	now, failure := e.readAndCompareObserved(ctx, p, res)
	if failure = e.keepObservation(p, begun, now, failure); failure != nil || !isApproved(p.Observed, now.driftID()) {
		return failure
	}
	return e.correctApproved(ctx, p, res)
}

// keepObservation keeps what a comparison that began with begun found, unless the object is no longer observed, or
// notes that the comparison failed. It returns the failure.
func (e *MemberApplier) keepObservation(p pendingWork, begun, now *observation, failure *Failure) *Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.observed[p.Key] != begun: // it is no longer observed, and its watch may have started since
		e.stopUnneededWatches(map[schema.GroupKind]bool{{Group: p.Key.Group, Kind: p.Key.Kind}: true})
	case failure != nil:
		begun.stale = true
	default:
		now.at, now.stale = begun.at, begun.stale
		now.view = newerView(begun, now.view)
		if id := e.book.RecordDrift(p.Key, now.differences, newDriftID()); now.drift != nil {
			now.drift.ID = id
		}
		e.setObservation(p.Key, now)
		if now.stale {
			t := e.ensureTask(p.Key)
			t.due, t.at = true, now.at.Add(e.observeInterval)
		}
	}
	return failure
}

// newerView returns the view that was compared, or the one that the watch reported of the same object during
// the comparison.
func newerView(begun *observation, compared observe.View) observe.View {
	if heard := (view{View: begun.view}); heard.UID == compared.UID && heard.isNewerThan(compared) {
		return heard.View
	}
	return compared
}

// beginObservation returns the key's observation, in which changes are noted from now on.
func (e *MemberApplier) beginObservation(key atoll.ItemKey) *observation {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.observed[key]
	if o == nil {
		o = &observation{}
		e.setObservation(key, o)
	}
	o.stale, o.at = false, time.Now()
	return o
}

// readAndCompareObserved reads the object and compares it with the plan's observed item.
func (e *MemberApplier) readAndCompareObserved(ctx context.Context, p pendingWork, res member.Resource) (*observation, *Failure) {
	o := &observation{hash: p.Observed.Hash, left: p.left}
	differs := p.Observed.Observe.ReportsDrift()
	live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	switch {
	case apierrors.IsNotFound(err):
		o.ran = p.Record.HasRun(p.Observed, "")
		if differs && !o.ran {
			o.drift = &atoll.Drift{Missing: true}
			o.differences = hashDrift(p.Observed, "", nil)
		}
		return o, nil
	case err != nil:
		return nil, failureFromError(err, p.Key)
	}
	o.version = live.GetResourceVersion()
	o.view = observe.ViewOf(live, e.JudgesOf(p.Owner, p.Key).ForReportTime(time.Now().Unix()))
	o.view.Edit = observe.EditFingerprintOf(live)
	if observe.NeedsOnlyMetadata(p.Key.Group, p.Key.Kind) && !e.IsInterpreted(p.Key.Group, p.Key.Kind) {
		o.view.Edit = observe.EditFingerprintOfMetadata(live)
	}
	if !differs {
		return o, nil
	}
	p.Item = p.Observed
	p, failure := e.retainMemberFields(ctx, p, res)
	if failure != nil {
		return nil, failure
	}
	differences, failure := e.compareWithLive(ctx, p, res, live, p.left)
	if o.drift = driftOf(p.Key, live, differences); o.drift != nil {
		o.differences = hashDrift(p.Observed, string(live.GetUID()), differences)
	}
	return o, failure
}

// driftOf returns differences in the bounds of a report; nil without any.
func driftOf(key atoll.ItemKey, live *unstructured.Unstructured, differences []objectdiff.Difference) *atoll.Drift {
	if len(differences) == 0 {
		return nil
	}
	out := &atoll.Drift{Total: int32(min(len(differences), maxCountedFields))}
	managers := objectdiff.ManagersOf(live)
	for _, d := range differences[:min(len(differences), atoll.MaxDriftFields)] {
		out.Fields = append(out.Fields, atoll.DriftField{
			Path: d.Path, Live: formatValue(d.Before), Wanted: formatValue(d.After), Managers: managers.OfField(d.Path),
		})
	}
	return drift.LimitAndRedact(key, out)
}

// maxCountedFields bounds the number of fields that a drift counts.
const maxCountedFields = 1 << 20

// formatValue returns a value as JSON; empty for a field that is not there.
func formatValue(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// observedStatus returns the status of an item that is observed, from its observation; nil: none yet. A
// Bundle that observes the object of another observing Bundle, the owner, reports the owner's comparison.
// The caller holds mu.
func (e *MemberApplier) observedStatus(it *atoll.RenderedItem, o *observation, isOwner bool, prev *atoll.RowStatus) report.Item {
	out := report.Item{Key: it.Key}
	if e.addFailure(&out) {
		addApprovedDrift(&out, it, o)
		return out
	}
	if o == nil || o.hash == "" || isOwner && o.hash != it.Hash {
		out.Reason, out.Message = atoll.ReasonPending, "the member's object is not compared yet"
		return out
	}
	out.Observed, out.Applied, out.Drift = true, true, o.driftFor(it, isOwner)
	switch {
	case o.ran:
		r, _ := e.book.Record(it.Key)
		e.reportFinishedRun(&out, r, prev)
		return out
	case o.view.UID == "":
		out.Health, out.Why = atoll.Unknown, atoll.ReasonMissing
		out.Text = missingText(out.Drift)
		return out
	}
	e.addViewTo(&out, it, o.view)
	if o.drift != nil && isPlainlyHealthy(&out) {
		out.Why, out.Text = atoll.ReasonDrifted, drift.Describe(o.drift)
	}
	return out
}
