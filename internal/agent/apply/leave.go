package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
)

const (
	// leaveLook is how often Leave looks how far it is.
	leaveLook = 100 * time.Millisecond
	// leaveTell is how long a blocker keeps ReleaseAll waiting before it is reported: most
	// blockers end earlier.
	leaveTell = 2 * time.Second
)

// blockerReporter reports the blocker of ReleaseAll after leaveTell, and its end. It also reports that
// nothing blocks for that long, because the reports of an earlier session are unknown here.
type blockerReporter struct {
	tell      func(why string)
	why, told string
	reported  bool // a report was sent
	since     time.Time
}

// setReason sets what Leave waits for; "": nothing.
func (w *blockerReporter) setReason(why string) {
	if w.since.IsZero() || why != w.why {
		w.why, w.since = why, time.Now()
	}
	if w.reported && w.why == w.told {
		return
	}
	if w.reported && w.why == "" || time.Since(w.since) >= leaveTell {
		w.told, w.reported = w.why, true
		w.tell(w.why)
	}
}

// ReleaseAll releases everything that is held, because the hub's cluster leaves the fleet, and
// drops its records. Ordered removals continue. Everything else stays, with a note of its template.
// With
// clean, namespaces that the agent made are deleted when nothing else is in them. Otherwise they
// stay, and left lists them with the reason. waits is called with a lasting blocker, and with ""
// at its end or when nothing blocks for as long; it must not block. ReleaseAll returns when
// nothing is held, or with the error of ctx or of the member's store. A repeated call continues.
func (e *MemberApplier) ReleaseAll(ctx context.Context, clean bool, waits func(why string)) (left []string, err error) {
	w := &blockerReporter{tell: waits}
	for {
		held := e.storedOrClaimingBundles()
		if len(held) == 0 {
			break
		}
		w.setReason(e.removalBlocker())
		for _, bundle := range held {
			if err := e.releaseBundle(ctx, bundle); err != nil {
				return nil, err
			}
			if err := e.ForgetRemovedBundle(ctx, bundle, time.Now()); err != nil {
				return nil, err
			}
		}
		if !pause.WaitFor(ctx, leaveLook) {
			return nil, ctx.Err()
		}
	}
	for _, ns := range e.madeNamespaces() {
		w.setReason("")
		why, err := e.removeOrReleaseNamespace(ctx, ns, clean, w)
		if err != nil {
			return nil, err
		}
		if why != "" {
			left = append(left, why)
		}
	}
	w.setReason("")
	return left, e.storeChangedRecords(ctx)
}

// storedOrClaimingBundles lists the Bundles that are held, and those of which only claims are.
func (e *MemberApplier) storedOrClaimingBundles() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]bool{}
	for _, uid := range e.book.BundleUIDs() {
		all[uid] = true
	}
	for _, key := range e.book.RecordedKeys() {
		r, _ := e.book.Record(key)
		for uid := range r.Claims {
			all[uid] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// removalBlocker is what keeps an object from being removed or released; "": nothing does.
func (e *MemberApplier) removalBlocker() (why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := ""
	for key, t := range e.tasks {
		if t.failure != nil && (first == "" || key.String() < first) {
			first, why = key.String(), key.Kind+" "+displayName(key)+": "+t.failure.Message
		}
	}
	return cmp.Or(why, e.describeAnyRemovalHookWait())
}

// releaseBundle releases a Bundle without a removal order.
func (e *MemberApplier) releaseBundle(ctx context.Context, bundle string) error {
	e.mu.Lock()
	m := atoll.Manifest{Bundle: bundle, Generation: 1}
	if h := e.book.HoldingOf(bundle); h != nil {
		m = h.Manifest.WithoutParts()
	}
	e.mu.Unlock()
	moved := func(t atoll.Tombstone) bool { return len(t.MovedTo) > 0 }
	m.Tombstones = slices.Clone(m.Tombstones)
	switch {
	case !m.Remove:
		m.Items, m.Remove, m.ClusterDecommissioned, m.Removal = nil, true, true, v1alpha1.RemoveOrphan
	case !slices.ContainsFunc(m.Tombstones, moved):
		return nil
	}
	// An object that was to move to another Bundle, which will not come, stays: as all others of
	// its Bundle, with the note, even if that Bundle was to be removed.
	if m.ClusterDecommissioned {
		m.Tombstones = slices.DeleteFunc(m.Tombstones, moved)
	}
	for i := range m.Tombstones {
		if t := &m.Tombstones[i]; moved(*t) {
			t.MovedTo, t.Orphan = nil, true
		}
	}
	m.Interpreters, m.Namespaces, m.DeletedNamespaces = nil, nil, nil
	m.Content = atoll.HashJSON(m)
	return e.UpsertManifest(ctx, m, store.Position{})
}

// madeNamespaces lists those that the agent made, sorted.
func (e *MemberApplier) madeNamespaces() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range e.book.RecordedKeys() {
		if r, _ := e.book.Record(key); r.Implicit {
			out = append(out, key.Name)
		}
	}
	slices.Sort(out)
	return out
}

// removeOrReleaseNamespace deletes or releases a namespace that the agent created. It returns why a
// namespace stays that should be gone.
func (e *MemberApplier) removeOrReleaseNamespace(ctx context.Context, ns string, clean bool, w *blockerReporter) (why string, err error) {
	key := atoll.NamespaceKey(ns)
	if clean {
		e.mu.Lock()
		e.book.SetNamespaceRemovalWhenUnused(ns, true)
		e.markDue(key)
		e.mu.Unlock()
		e.wakeRun()
		if why, err = e.waitForNamespaceGone(ctx, key, w); err != nil {
			e.mu.Lock()
			e.book.SetNamespaceRemovalWhenUnused(ns, false) // the hub may have taken it back
			e.mu.Unlock()
			return "", err
		}
		if why == "" {
			return "", nil
		}
	}
	e.mu.Lock()
	e.book.CancelNamespaceRemoval(ns)
	p := pendingWork{Step: ownership.Step{Verb: ownership.Release, Key: key}}
	p.Record, _ = e.book.Record(key)
	p.Record.Template = implicitTemplate // the note by which it is known again
	e.mu.Unlock()
	for p.Record.UID != "" {
		failure := e.releaseAsResource(ctx, p, namespaces)
		if failure == nil {
			break
		}
		w.setReason(failure.Message)
		if !pause.WaitFor(ctx, failure.retryDelay(1)) {
			return "", ctx.Err()
		}
	}
	e.mu.Lock()
	e.book.ForgetNamespace(ns)
	e.mu.Unlock()
	return why, nil
}

// keepsNamespace are the reasons for which a namespace stays until a person acts.
var keepsNamespace = []atoll.Reason{atoll.ReasonForeignObjects, atoll.ReasonAPISilent, atoll.ReasonDeniedByPolicy, atoll.ReasonForbidden, atoll.ReasonServiceAccountForbidden, atoll.ReasonAdmissionDenied}

// waitForNamespaceGone waits until the namespace is gone, or until the reason is known why it stays.
func (e *MemberApplier) waitForNamespaceGone(ctx context.Context, key atoll.ItemKey, w *blockerReporter) (why string, err error) {
	looked, remains := time.Time{}, ""
	for {
		e.mu.Lock()
		_, known := e.book.Record(key)
		failure := Failure{}
		if f := e.failureOf(key); f != nil {
			failure = *f
		}
		e.mu.Unlock()
		if !known {
			return "", nil
		}
		if failure.Message != "" && slices.Contains(keepsNamespace, failure.Reason) {
			return failure.Message, nil
		}
		if failure.Reason == atoll.ReasonTerminating && time.Since(looked) >= leaveTell {
			looked, remains = time.Now(), e.namespaceTerminationReason(ctx, key)
		}
		if failure.Message != "" {
			w.setReason("Namespace " + key.Name + ": " + cmp.Or(remains, failure.Message))
		}
		if !pause.WaitFor(ctx, leaveLook) {
			return "", fmt.Errorf("wait for namespace %s to go: %w", key.Name, ctx.Err())
		}
	}
}

// namespaceTerminationReason returns what blocks the deletion of a namespace, from the member's
// namespace controller. Empty: the controller gives no reason.
func (e *MemberApplier) namespaceTerminationReason(ctx context.Context, key atoll.ItemKey) string {
	live, err := e.o.Client.Get(ctx, namespaces, "", key.Name)
	if err != nil {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	var all []string
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if text, is := m["message"].(string); ok && is && m["status"] == "True" {
			all = append(all, text)
		}
	}
	return truncateText(strings.Join(all, "; "))
}
