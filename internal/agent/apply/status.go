package apply

import (
	"slices"
	"time"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
)

// Status of a Bundle as it is reported; false when it is not held. prev is the
// status before; nil without one.
func (e *Engine) Status(bundle string, prev *atoll.RowStatus, now time.Time) (atoll.RowStatus, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.book.Holding(bundle)
	if h == nil {
		return atoll.RowStatus{}, false
	}
	m := &h.Manifest
	in := report.Input{
		Generation: m.Generation, Content: m.Content, Remove: m.Remove,
		Removed: e.book.Removed(bundle), Gone: e.book.Done(bundle),
	}
	in.AllGone = len(in.Gone) == len(m.Tombstones)
	listed := map[atoll.ItemKey]bool{}
	for i := range m.Items {
		listed[m.Items[i].Key] = true
		in.Items = append(in.Items, e.item(bundle, &m.Items[i], prev))
	}
	e.sayNamespaces(in.Items)
	for _, key := range e.book.ClaimedBy(bundle) {
		if !listed[key] {
			in.Items = append(in.Items, e.extra(bundle, key))
		}
	}
	if m.Remove && in.Removed {
		in.Removed, in.Kept = e.namespacesDone(m)
		in.Vacant = in.Removed && e.vacant(m)
	}
	return report.Build(in, prev, now.Unix()), true
}

// Bundles lists the Bundles that are held.
func (e *Engine) Bundles() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.Bundles()
}

// item tells what is known of an item of the manifest. The caller holds mu.
func (e *Engine) item(bundle string, it *atoll.Rendered, prev *atoll.RowStatus) report.Item {
	out := report.Item{Key: it.Key, RenderError: it.Error}
	r, _ := e.book.Record(it.Key)
	if v, seen := e.viewOf(it.Key); seen {
		out.Observed, out.Health, out.Why, out.Text, out.Reflected = true, v.Health, v.Reason, v.Message, v.Reflected
	}
	out.Applied = r.UID != "" && r.Template == it.UID && (r.Owner != bundle || r.Applied == it.Hash)
	if r.UID == "" && r.HasRun(it.UID, it.Hash) {
		e.ran(&out, r, prev)
	}
	if t := e.tasks[it.Key]; t != nil && t.failure != nil {
		out.Reason, out.Message, out.Error = t.failure.Reason, t.failure.Message, !t.failure.Waits
		return out
	}
	if why := e.forbidden[it.Key]; why != "" && out.Observed && out.Health == atoll.Healthy && out.Why == "" {
		out.Why, out.Text = ReasonPolicy, "it stays as it is: "+why
	}
	if r.Owner != bundle && r.UID != "" && r.Template != it.UID {
		out.Reason = ReasonWaits
		out.Message = "another bundle still holds the object that this one replaces: bundle " + r.Owner
	}
	return out
}

// sayNamespaces says of the first item in a namespace that the agent made why that does not
// get the labels and annotations that it has on the hub. The caller holds mu.
func (e *Engine) sayNamespaces(items []report.Item) {
	said := map[string]bool{}
	for i := range items {
		it := &items[i]
		ns := it.Key.Namespace
		if ns == "" || said[ns] || it.Reason != "" || it.Why != "" || !it.Observed || it.Health != atoll.Healthy {
			continue
		}
		said[ns] = true
		key := claims.Namespace(ns)
		if r, known := e.book.Record(key); !known || !r.Implicit || r.UID == "" {
			continue
		}
		if t := e.tasks[key]; t != nil && t.failure != nil && !t.failure.Waits {
			it.Why, it.Text = t.failure.Reason, "labels and annotations of namespace "+ns+" stay as they are: "+t.failure.Message
		}
	}
}

// ran tells of a run-to-completion object that is gone.
func (e *Engine) ran(out *report.Item, r claims.Record, prev *atoll.RowStatus) {
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
		out.Health, out.Why = atoll.Unknown, "GoneUnseen"
		out.Text = "it went while nobody watched, so how it ended is not known; it is not run again"
	default:
		out.Health, out.Why, out.Text, out.Reflected = last.Health, last.Reason, last.Message, last.Reflected
	}
}

// extra tells what is known of an object that the Bundle claims and does not
// list. The caller holds mu.
func (e *Engine) extra(bundle string, key atoll.ItemKey) report.Item {
	r, _ := e.book.Record(key)
	out := report.Item{Key: key, Extra: true, Health: atoll.Progressing, Observed: true}
	switch c := r.Claims[bundle]; c.State {
	case claims.Kept:
		out.Health, out.Why = atoll.Healthy, "Unaccounted"
		out.Text = "it is no longer in the bundle and nobody deleted it: kept as it is; delete its template, or the object in the member"
	case claims.Parked:
		out.Why, out.Text = "Moving", "kept for the bundle that takes it over"
	default:
		out.Why, out.Text = "Removing", "it is being removed"
	}
	if t := e.tasks[key]; t != nil && t.failure != nil {
		out.Reason, out.Message, out.Error = t.failure.Reason, t.failure.Message, !t.failure.Waits
	}
	return out
}

// namespacesDone tells whether the namespaces that a removed Bundle's hub
// deleted are gone here too, or stay for a reason. The caller holds mu.
func (e *Engine) namespacesDone(m *atoll.Manifest) (done bool, kept string) {
	for _, ns := range m.DeletedNamespaces {
		key := claims.Namespace(ns)
		r, known := e.book.Record(key)
		if !known || !r.Doomed || len(e.book.Inside(ns)) > 0 {
			continue // not ours, needed again, or the last one in it turns off the light
		}
		t := e.tasks[key]
		if t == nil || t.failure == nil || t.failure.Reason != ReasonForeign && t.failure.Reason != ReasonSilent {
			return false, ""
		}
		kept = t.failure.Message
	}
	return true, kept
}

// vacant tells whether the namespace of a removed Bundle, which nobody deleted on the
// hub, is one that the agent made and that nothing needs any more. The caller holds mu.
func (e *Engine) vacant(m *atoll.Manifest) bool {
	if m.Namespace == "" || slices.Contains(m.DeletedNamespaces, m.Namespace) || len(e.book.Inside(m.Namespace)) > 0 {
		return false
	}
	r, known := e.book.Record(claims.Namespace(m.Namespace))
	return known && r.Implicit && r.UID != "" && len(r.Claims) == 0
}
