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
	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/pause"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// leaveLook is how often Leave looks how far it is.
	leaveLook = 100 * time.Millisecond
	// leaveTell is how long something keeps Leave from going on before that is told: most of
	// what does so is on its way.
	leaveTell = 2 * time.Second
)

// waiting tells what keeps Leave from going on, when it has for leaveTell, and when it does
// not any more; also when nothing has for that long, since of what was told before nobody here
// knows.
type waiting struct {
	tell      func(why string)
	why, told string
	said      bool // anything was told
	since     time.Time
}

// on something; "": on nothing.
func (w *waiting) on(why string) {
	if w.since.IsZero() || why != w.why {
		w.why, w.since = why, time.Now()
	}
	if w.said && w.why == w.told {
		return
	}
	if w.said && w.why == "" || time.Since(w.since) >= leaveTell {
		w.told, w.said = w.why, true
		w.tell(w.why)
	}
}

// Leave lets go of all that is held, since the hub's cluster leaves the fleet, and forgets
// it: what the hub ordered to be removed before goes on being removed, all else stays
// where it is, with a note of its template. Namespaces that the agent made are removed
// where clean says so and nothing is in them that Atoll did not make; else they stay, too.
// left lists those, with the reason. waits is told what keeps it, once that lasts, and "" when
// nothing does any more, or has from the beginning for as long; it must not block. It returns when nothing is held any more, or with
// the error of ctx or of the member's store; called again it goes on.
func (e *Engine) Leave(ctx context.Context, clean bool, waits func(why string)) (left []string, err error) {
	w := &waiting{tell: waits}
	for {
		held := e.claiming()
		if len(held) == 0 {
			break
		}
		w.on(e.hindrance())
		for _, bundle := range held {
			if err := e.letGo(ctx, bundle); err != nil {
				return nil, err
			}
			if err := e.Forget(ctx, bundle, time.Now()); err != nil {
				return nil, err
			}
		}
		if !pause.For(ctx, leaveLook) {
			return nil, ctx.Err()
		}
	}
	for _, ns := range e.madeNamespaces() {
		w.on("")
		why, err := e.leaveNamespace(ctx, ns, clean, w)
		if err != nil {
			return nil, err
		}
		if why != "" {
			left = append(left, why)
		}
	}
	w.on("")
	return left, e.flush(ctx)
}

// claiming lists the Bundles that are held, and those of which only claims are.
func (e *Engine) claiming() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]bool{}
	for _, uid := range e.book.Bundles() {
		all[uid] = true
	}
	for _, key := range e.book.Keys() {
		r, _ := e.book.Record(key)
		for uid := range r.Claims {
			all[uid] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// hindrance is what keeps an object from going or being let go; "": nothing does.
func (e *Engine) hindrance() (why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := ""
	for key, t := range e.tasks {
		if t.failure != nil && (first == "" || key.String() < first) {
			first, why = key.String(), key.Kind+" "+name(key)+": "+t.failure.Message
		}
	}
	return why
}

// letGo of a Bundle that nobody ordered to be removed.
func (e *Engine) letGo(ctx context.Context, bundle string) error {
	e.mu.Lock()
	m := atoll.Manifest{Bundle: bundle, Generation: 1}
	if h := e.book.Holding(bundle); h != nil {
		m = h.Manifest.Bare()
	}
	e.mu.Unlock()
	moved := func(t atoll.Tombstone) bool { return len(t.MovedTo) > 0 }
	m.Tombstones = slices.Clone(m.Tombstones)
	switch {
	case !m.Remove:
		m.Items, m.Remove, m.LeftBehind, m.Removal = nil, true, true, v1alpha1.RemoveOrphan
	case !slices.ContainsFunc(m.Tombstones, moved):
		return nil
	}
	// What was to go over to another Bundle, which does not come any more, stays: as all of its
	// own does, with the note, or though that was to go.
	if m.LeftBehind {
		m.Tombstones = slices.DeleteFunc(m.Tombstones, moved)
	}
	for i := range m.Tombstones {
		if t := &m.Tombstones[i]; moved(*t) {
			t.MovedTo, t.Orphan = nil, true
		}
	}
	m.Interpreters, m.Namespaces, m.DeletedNamespaces = nil, nil, nil
	m.Content = atoll.HashJSON(m)
	return e.Upsert(ctx, m, store.Position{})
}

// madeNamespaces lists those that the agent made, sorted.
func (e *Engine) madeNamespaces() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range e.book.Keys() {
		if r, _ := e.book.Record(key); r.Implicit {
			out = append(out, key.Name)
		}
	}
	slices.Sort(out)
	return out
}

// leaveNamespace removes or lets go of a namespace that the agent made; why it stays,
// where it should have gone.
func (e *Engine) leaveNamespace(ctx context.Context, ns string, clean bool, w *waiting) (why string, err error) {
	key := claims.Namespace(ns)
	if clean {
		e.mu.Lock()
		e.book.Part(ns, true)
		e.due(key)
		e.mu.Unlock()
		e.nudge()
		if why, err = e.awaitNamespace(ctx, key, w); err != nil {
			e.mu.Lock()
			e.book.Part(ns, false) // the hub may have taken it back
			e.mu.Unlock()
			return "", err
		}
		if why == "" {
			return "", nil
		}
	}
	e.mu.Lock()
	e.book.Spare(ns)
	p := plan{Step: claims.Step{Verb: claims.Release, Key: key}}
	p.Record, _ = e.book.Record(key)
	p.Record.Template = implicitTemplate // the note by which it is known again
	e.mu.Unlock()
	for p.Record.UID != "" {
		failure := e.releaseAs(ctx, p, namespaces)
		if failure == nil {
			break
		}
		w.on(failure.Message)
		if !pause.For(ctx, failure.delay(1)) {
			return "", ctx.Err()
		}
	}
	e.mu.Lock()
	e.book.ForgetNamespace(ns)
	e.mu.Unlock()
	return why, nil
}

// keepsNamespace are the reasons for which a namespace stays unless somebody acts.
var keepsNamespace = []string{ReasonForeign, ReasonSilent, ReasonPolicy, ReasonForbidden, ReasonDenied}

// awaitNamespace waits until it is gone, or until it is known why it stays.
func (e *Engine) awaitNamespace(ctx context.Context, key atoll.ItemKey, w *waiting) (why string, err error) {
	looked, remains := time.Time{}, ""
	for {
		e.mu.Lock()
		_, known := e.book.Record(key)
		t, hinders, going := e.tasks[key], "", false
		if t != nil && t.failure != nil {
			hinders, going = t.failure.Message, t.failure.Reason == ReasonTerminating
		}
		if known && t != nil && t.failure != nil && slices.Contains(keepsNamespace, t.failure.Reason) {
			why = t.failure.Message
		}
		e.mu.Unlock()
		if !known || why != "" {
			return why, nil
		}
		if going && time.Since(looked) >= leaveTell {
			looked, remains = time.Now(), e.remains(ctx, key)
		}
		if hinders != "" {
			w.on("Namespace " + key.Name + ": " + cmp.Or(remains, hinders))
		}
		if !pause.For(ctx, leaveLook) {
			return "", fmt.Errorf("wait for namespace %s to go: %w", key.Name, ctx.Err())
		}
	}
}

// remains says what the member's namespace controller finds to keep a namespace from going; "":
// it says nothing.
func (e *Engine) remains(ctx context.Context, key atoll.ItemKey) string {
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
	return cut(strings.Join(all, "; "))
}
