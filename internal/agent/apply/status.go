package apply

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
)

// StatusOf returns the status of a Bundle as it is reported; false when it is not held. prev is the
// status before; nil without one.
func (e *MemberApplier) StatusOf(bundle string, prev *atoll.RowStatus, now time.Time) (atoll.RowStatus, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.book.HoldingOf(bundle)
	if h == nil {
		return atoll.RowStatus{}, false
	}
	m := &h.Manifest
	in := report.Input{
		Generation: m.Generation, Content: m.Content, Remove: m.Remove,
		Removed: e.book.IsBundleRemovalDone(bundle), Gone: e.book.CompletedTombstoneIDs(bundle),
	}
	in.AllGone = len(in.Gone) == len(m.Tombstones)
	listed := map[atoll.ItemKey]bool{}
	for i := range m.Items {
		listed[m.Items[i].Key] = true
		in.Items = append(in.Items, e.itemStatus(bundle, &m.Items[i], prev))
	}
	in.Items = append(in.Items, e.emptyNamespaceStatuses(m)...)
	e.noteNamespaceFailures(in.Items)
	for _, key := range e.book.KeysClaimedByBundle(bundle) {
		if !listed[key] {
			in.Items = append(in.Items, e.unlistedItemStatus(bundle, key))
		}
	}
	if m.Remove && in.Removed {
		in.Removed, in.Kept = e.areDeletedNamespacesGone(m)
		in.Vacant = in.Removed && e.isAgentMadeNamespaceUnneeded(m)
	}
	return report.BuildStatus(in, prev, now.Unix()), true
}

// itemStatus returns the status of an item of the manifest. The caller holds mu.
func (e *MemberApplier) itemStatus(bundle string, it *atoll.RenderedItem, prev *atoll.RowStatus) report.Item {
	r, _ := e.book.Record(it.Key)
	if o := e.observed[it.Key]; it.Observe != "" && (r.Owner == bundle || o != nil) {
		return e.observedStatus(it, o, r.Owner == bundle, prev)
	}
	out := e.appliedItemStatus(bundle, it, r, prev)
	why := e.forbidden[it.Key]
	if why != "" {
		dropRead(&out, it, r.UID == "")
	}
	if isRunBy(bundle, it, r) {
		return e.hookStatus(out, bundle, it, r, prev)
	}
	if e.addHookOfOwner(&out, bundle, it, r) {
		return out
	}
	if e.addFailure(&out) || e.addWaveWait(&out, bundle, it, r) {
		return out
	}
	if why != "" && isPlainlyHealthy(&out) {
		addDenial(&out, it, why)
	}
	addForeignOwner(&out, bundle, it, r)
	return out
}

// addForeignOwner adds that another Bundle holds the object which the item replaces, if one does.
func addForeignOwner(out *report.Item, bundle string, it *atoll.RenderedItem, r ownership.Record) {
	if r.Owner != bundle && r.UID != "" && r.Template != it.UID {
		out.Reason = atoll.ReasonWaitsForObjects
		out.Message = "another bundle still holds the object that this one replaces: bundle " + r.Owner
	}
}

// dropRead leaves out what rules read of a denied object before it was denied. gone: it ran to completion.
func dropRead(out *report.Item, it *atoll.RenderedItem, gone bool) {
	out.Feedback = nil
	if gone && it.Assessment != nil {
		out.Text = ""
	}
}

// addDenial adds why the member's administrator denies an object that is applied and healthy by its kind. Its health is
// Unknown where rules state it, so that no rollout goes on.
func addDenial(out *report.Item, it *atoll.RenderedItem, why string) {
	out.Why, out.Text = atoll.ReasonDeniedByPolicy, "it stays as it is: "+why
	if it.Assessment.JudgesHealth() && !out.Completed {
		out.Health, out.Text = atoll.Unknown, "rules do not judge it, and it stays as it is: "+why
	}
}

// appliedItemStatus returns what is known of an item's object from its record and its view. The caller holds mu.
func (e *MemberApplier) appliedItemStatus(bundle string, it *atoll.RenderedItem, r ownership.Record, prev *atoll.RowStatus) report.Item {
	out := report.Item{Key: it.Key}
	if it.Failed() {
		out.RenderError = it.Error
	}
	v, seen := e.viewOf(it.Key)
	judged := v.RulesID == e.rulesOf(bundle, it.Key).ID()
	if seen && (judged || e.forbidden[it.Key] == "") { // rules have read the object of another view before it was denied
		out.Observed = true
		e.addViewTo(&out, it, v)
	}
	if r.UID != "" {
		out.Applied = r.Template == it.UID && (r.Owner != bundle || r.Applied == it.Hash)
		if seen && r.Owner == bundle && !judged {
			out.Applied = false // until the object is judged by the present rules, or by none where it is denied
		}
	} else if r.HasRun(it, it.Hash) {
		e.reportFinishedRun(&out, r, prev)
	}
	return out
}

// addViewTo adds what the view of an item's object holds.
func (e *MemberApplier) addViewTo(out *report.Item, it *atoll.RenderedItem, v observe.View) {
	out.Health, out.Why, out.Text, out.Reflected, out.Feedback = v.Health, v.Reason, v.Message, v.Reflected, v.Feedback
	out.Completed = v.Finished && v.RulesID != "" && it.StatesCompletion()
}

// addFailure adds the last failure of work on the item, if there is one. The caller holds mu.
func (e *MemberApplier) addFailure(it *report.Item) (fails bool) {
	f := e.failureOf(it.Key)
	if f != nil {
		it.Reason, it.Message, it.Error = f.Reason, f.Message, !f.Waits
	}
	return f != nil
}

// isPlainlyHealthy reports whether an item is healthy, with nothing more to report.
func isPlainlyHealthy(it *report.Item) bool {
	return it.Observed && it.Health == atoll.Healthy && it.Why == ""
}

// noteNamespaceFailures notes why a namespace that the agent made does not get the labels and
// annotations that it has on the hub. The first item in the namespace gets the note. The caller
// holds mu.
func (e *MemberApplier) noteNamespaceFailures(items []report.Item) {
	noted := map[string]bool{}
	for i := range items {
		it := &items[i]
		ns := it.Key.Namespace
		if ns == "" || noted[ns] || it.Reason != "" || !isPlainlyHealthy(it) {
			continue
		}
		noted[ns] = true
		key := atoll.NamespaceKey(ns)
		if r, known := e.book.Record(key); !known || !r.Implicit || r.UID == "" {
			continue
		}
		if f := e.failureOf(key); f != nil && !f.Waits {
			it.Why, it.Text = f.Reason, "labels and annotations of namespace "+ns+" stay as they are: "+f.Message
		}
	}
}

// emptyNamespaceStatuses returns the status of each namespace that the manifest has without an item in it. The caller holds mu.
func (e *MemberApplier) emptyNamespaceStatuses(m *atoll.Manifest) (out []report.Item) {
	if m.Remove {
		return nil
	}
	empty := maps.Clone(m.Namespaces)
	for i := 0; i < len(m.Items) && len(empty) > 0; i++ {
		delete(empty, m.Items[i].Key.Namespace)
	}
	for _, ns := range slices.Sorted(maps.Keys(empty)) {
		key := atoll.NamespaceKey(ns)
		r, _ := e.book.Record(key)
		exists := r.UID != "" || e.foreign[ns]
		item := report.Item{Key: key, Applied: exists, Observed: exists, Health: atoll.Healthy}
		e.addFailure(&item)
		out = append(out, item)
	}
	return out
}

// reportFinishedRun reports a run-to-completion object that is gone.
func (e *MemberApplier) reportFinishedRun(out *report.Item, r ownership.Record, prev *atoll.RowStatus) {
	out.Observed, out.Applied, out.Health = true, true, atoll.Healthy
	last := r.Last
	if last == nil && prev != nil {
		if i := slices.IndexFunc(prev.Items, func(s atoll.ItemStatus) bool { return s.Key == out.Key }); i >= 0 {
			last = &prev.Items[i]
		}
	}
	switch {
	case last == nil || last.Error:
	case last.Health == atoll.Progressing:
		out.Health, out.Why = atoll.Unknown, atoll.ReasonGoneUnseen
		out.Text = "it ended while it was not watched, so its result is not known; it is not run again"
	default:
		out.Health, out.Why, out.Text, out.Reflected = last.Health, last.Reason, last.Message, last.ReflectedStatus
		out.Feedback, out.Completed = last.Feedback, last.Completed
	}
}

// unlistedItemStatus returns the status of an object that the Bundle claims and does not list.
// The caller holds mu.
func (e *MemberApplier) unlistedItemStatus(bundle string, key atoll.ItemKey) report.Item {
	if it := e.removalHookOf(bundle, key); it != nil {
		return e.removalHookStatus(bundle, it)
	}
	r, _ := e.book.Record(key)
	out := report.Item{Key: key, Extra: true, Health: atoll.Progressing, Observed: true}
	switch c := r.Claims[bundle]; c.State {
	case ownership.Kept:
		out.Health, out.Why = atoll.Healthy, atoll.ReasonUnaccounted
		out.Text = "it is no longer in the bundle and has no tombstone: kept as it is; delete its template, or the object in the member"
	case ownership.Parked:
		out.Why, out.Text = atoll.ReasonMoving, "kept for the bundle that takes it over"
	default:
		out.Why, out.Text = atoll.ReasonRemoving, "it is being removed"
		if text := describeLeavingWait(e.book.LeavingBefore(key)); text != "" {
			out.Text = text
		}
		if text := e.describeRemovalHookWait(bundle); text != "" {
			out.Text = text
		}
	}
	e.addFailure(&out)
	return out
}

// areDeletedNamespacesGone reports whether the namespaces that a removed Bundle's hub
// deleted are gone here too, or stay for a reason. The caller holds mu.
func (e *MemberApplier) areDeletedNamespacesGone(m *atoll.Manifest) (done bool, kept string) {
	for _, ns := range m.DeletedNamespaces {
		key := atoll.NamespaceKey(ns)
		r, known := e.book.Record(key)
		if !known || !r.Doomed || len(e.book.KeysInNamespace(ns)) > 0 {
			continue // not ours, needed again, or the last one in it turns off the light
		}
		t := e.tasks[key]
		if t == nil || t.failure == nil || t.failure.Reason != atoll.ReasonForeignObjects && t.failure.Reason != atoll.ReasonAPISilent {
			return false, ""
		}
		kept = t.failure.Message
	}
	return true, kept
}

// isAgentMadeNamespaceUnneeded reports whether the namespace of a removed Bundle was made by the agent, is
// not deleted on the hub, and is needed by nothing. The caller holds mu.
func (e *MemberApplier) isAgentMadeNamespaceUnneeded(m *atoll.Manifest) bool {
	if m.Namespace == "" || slices.Contains(m.DeletedNamespaces, m.Namespace) || e.book.NeedsNamespace(m.Namespace) {
		return false
	}
	r, known := e.book.Record(atoll.NamespaceKey(m.Namespace))
	return known && r.Implicit && r.UID != "" && len(r.Claims) == 0
}
