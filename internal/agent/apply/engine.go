package apply

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

// Store is where manifests and records lie.
type Store interface {
	PutBundle(ctx context.Context, b store.Bundle) error
	DropBundle(ctx context.Context, uid string) error
	PutRecords(ctx context.Context, shard string, records []claims.Record) error
}

// Watch is who watches what was applied. Its methods do not block.
type Watch interface {
	// Start watching a kind; calling it again costs nothing.
	Start(member.Resource)
	// Again looks at all objects of a kind anew, if it is watched.
	Again(group, kind string)
	// Stop watching a kind of which nothing is left.
	Stop(group, kind string)
}

// Options of an Engine. All are required.
type Options struct {
	Client *member.Client
	Store  Store
	// Held tells, from memory, whether this agent is the member's only applier;
	// while it is not, nothing is done. Fence asks the member; it is called before
	// deletions.
	Held  func() bool
	Fence func(context.Context) bool
	Watch Watch
	// Policy of the member's administrator, as it is now.
	Policy func() *policy.Policy
	// Changed is told that the status of a Bundle may have changed. It must not
	// block and must not call the Engine.
	Changed func(bundle string)
	Metrics *Metrics
	Log     *slog.Logger
}

// Engine applies.
type Engine struct {
	o        Options
	upserts  sync.Mutex
	flushing sync.Mutex
	slots    chan struct{}
	wake     chan struct{}

	mu    sync.Mutex
	book  *claims.Book
	views map[atoll.ItemKey]view
	tasks map[atoll.ItemKey]*task
	// scaled are the objects that HPAs of each Bundle target.
	scaled map[string]map[atoll.ItemKey]bool
	// known are the interpreters of each Bundle that has some.
	known map[string]script.Interpreters
	// foreign are namespaces that exist and are not ours.
	foreign map[string]bool
	// forbidden says of objects that are applied why they may not be any more.
	forbidden  map[atoll.ItemKey]string
	discovered time.Time
}

// task is the work on one key.
type task struct {
	// due: not before at.
	due bool
	at  time.Time
	// busy: a goroutine works on it.
	busy bool
	// intended: that the object is to be made is stored.
	intended bool
	// check whether the object exists; judge it anew while at it; correct it even though it
	// was applied.
	check, judge, correct bool
	// weigh whether the member's administrator allows it.
	weigh    bool
	failures int
	failure  *Failure
	drift    drift
}

// New gives an Engine that holds what was stored.
func New(o Options, stored store.Contents) *Engine {
	e := &Engine{
		o: o, slots: make(chan struct{}, maxParallel), wake: make(chan struct{}, 1),
		book: claims.NewBook(), views: map[atoll.ItemKey]view{}, tasks: map[atoll.ItemKey]*task{},
		scaled: map[string]map[atoll.ItemKey]bool{}, known: map[string]script.Interpreters{}, foreign: map[string]bool{},
		forbidden: map[atoll.ItemKey]string{},
	}
	for _, r := range stored.Records {
		e.book.Restore(r)
	}
	for uid, gone := range stored.Reports.Gone {
		e.book.Bury(uid, gone.At)
	}
	// Those that go come first, so that what the others want is not marked to go.
	for _, going := range []bool{true, false} {
		for _, b := range stored.Bundles {
			if b.Holding.Manifest.Remove == going {
				e.fold(b.Holding)
			}
		}
	}
	for _, key := range e.book.Keys() {
		e.task(key).weigh = true
		e.due(key)
	}
	e.book.Stirred() // all Bundles are reported at the start anyway
	return e
}

// Upsert stores what the hub wants of a Bundle and begins to make it so. The
// manifest's objects are complete. One of a lower generation than what is held is
// ignored.
func (e *Engine) Upsert(ctx context.Context, m atoll.Manifest, at store.Position) error {
	e.upserts.Lock()
	defer e.upserts.Unlock()
	e.mu.Lock()
	prev := e.book.Holding(m.Bundle)
	e.mu.Unlock()
	if prev != nil && prev.Manifest.Generation > m.Generation {
		return nil
	}
	holding := claims.Merge(prev, m)
	if err := e.o.Store.PutBundle(ctx, store.Bundle{Holding: holding, Position: at}); err != nil {
		return err
	}
	e.mu.Lock()
	for _, key := range e.fold(holding) {
		e.due(key)
	}
	e.relabel(prev, &m)
	told, whole := e.book.Stirred(), e.judgeAnew(prev, &holding)
	e.mu.Unlock()
	for _, gk := range whole {
		e.o.Watch.Again(gk.Group, gk.Kind)
	}
	e.o.Changed(m.Bundle)
	e.tellAll(told)
	e.nudge()
	return nil
}

// fold takes the holding into the book and gives the keys that it touched.
func (e *Engine) fold(h claims.Holding) []atoll.ItemKey {
	keys := e.book.Fold(h)
	e.learn(h.Manifest.Bundle, h.Manifest.Interpreters)
	return append(keys, e.rescale(h)...)
}

// Forget drops a Bundle whose removal is done and reported.
func (e *Engine) Forget(ctx context.Context, bundle string, now time.Time) error {
	e.upserts.Lock()
	defer e.upserts.Unlock()
	e.mu.Lock()
	removed := e.book.Removed(bundle)
	e.mu.Unlock()
	if !removed {
		return nil
	}
	if err := e.o.Store.DropBundle(ctx, bundle); err != nil {
		return err
	}
	e.mu.Lock()
	for _, key := range e.book.Forget(bundle, now.Unix()) {
		e.due(key)
	}
	delete(e.scaled, bundle)
	delete(e.known, bundle)
	told := e.book.Stirred()
	e.mu.Unlock()
	e.tellAll(told)
	e.nudge()
	return nil
}

// Object finds an object's JSON by its item's hash, or an interpreter's spec by its own.
func (e *Engine) Object(hash string) (json.RawMessage, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.Object(hash)
}

// Applied gives the UID of the object that is recorded under a key, empty while it is not
// known; false where none is.
func (e *Engine) Applied(key atoll.ItemKey) (uid string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.UID(key)
}

// Namespaces in which something is recorded, in no order.
func (e *Engine) Namespaces() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.Namespaces()
}

// CarriedOut lists the tombstones of the Bundle's manifest that are carried out.
func (e *Engine) CarriedOut(bundle string) (out []atoll.Tombstone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.book.Holding(bundle)
	if h == nil {
		return nil
	}
	done := e.book.Done(bundle)
	for _, t := range h.Manifest.Tombstones {
		// Done has the manifest's order.
		if len(done) > 0 && done[0] == claims.TombstoneID(t) {
			out, done = append(out, t), done[1:]
		}
	}
	return out
}

// Holds tells whether what was removed once is here again: the Bundle, or, where a
// tombstone is given, the item made from that very template, for any Bundle.
func (e *Engine) Holds(bundle string, t *atoll.Tombstone) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t == nil {
		h := e.book.Holding(bundle)
		return h != nil && !h.Manifest.Remove
	}
	return e.book.Wants(t.Key, t.UID)
}

// Held lists every Bundle that is held, with its generation and content hash.
func (e *Engine) Held() []Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Held
	for _, uid := range e.book.Bundles() {
		m := &e.book.Holding(uid).Manifest
		out = append(out, Held{Bundle: uid, Generation: m.Generation, Content: m.Content})
	}
	return out
}

// Held is a Bundle that is held.
type Held struct {
	Bundle     string
	Generation int64
	Content    string
}

// Listed is told what a watch found when it started: whatever else of that kind
// is recorded has to be looked for.
func (e *Engine) Listed(group, kind string, found map[atoll.ItemKey]bool) {
	e.mu.Lock()
	for _, key := range e.book.Keys() {
		if key.Group != group || key.Kind != kind || found[key] {
			continue
		}
		if r, _ := e.book.Record(key); r.UID != "" {
			e.task(key).check = true
			e.due(key)
		}
	}
	e.mu.Unlock()
	e.nudge()
}

// Served is told that what the member serves has changed.
func (e *Engine) Served() {
	e.watchAll()
	e.mu.Lock()
	e.discovered = time.Now()
	for key, t := range e.tasks {
		if t.failure != nil && t.failure.Reason == ReasonNotServed {
			t.failures = 0
			e.due(key)
		}
	}
	e.mu.Unlock()
	e.nudge()
}

// Retry everything that failed at once, as when the member's API is back.
func (e *Engine) Retry() {
	e.mu.Lock()
	for key, t := range e.tasks {
		if t.failure != nil && t.failure.Transport {
			t.failures = 0
			e.due(key)
		}
	}
	e.mu.Unlock()
	e.nudge()
}

// watchAll watches every kind that is recorded. Objects of kinds that the member
// does not serve went with their definition; that is looked into.
func (e *Engine) watchAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	apis := e.o.Client.APIs()
	for _, key := range e.book.Keys() {
		r, _ := e.book.Record(key)
		if r.UID == "" {
			continue
		}
		if res, served := apis.Lookup(schema.FromAPIVersionAndKind(apiVersion(r), key.Kind)); served {
			e.o.Watch.Start(res)
		} else {
			e.task(key).check = true
			e.soon(key)
		}
	}
}

// task of the key. The caller holds mu.
func (e *Engine) task(key atoll.ItemKey) *task {
	t := e.tasks[key]
	if t == nil {
		t = &task{}
		e.tasks[key] = t
	}
	return t
}

// due marks the key for the next pass. The caller holds mu.
func (e *Engine) due(key atoll.ItemKey) {
	t := e.task(key)
	t.due, t.at = true, time.Time{}
}

// soon is due for a key that is not waiting for its next try. The caller holds mu.
func (e *Engine) soon(key atoll.ItemKey) {
	if t := e.task(key); t.failure == nil || !t.due {
		e.due(key)
	}
}

// nudge wakes Run.
func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// tellAll tells that the status of each Bundle may have changed. The caller does
// not hold mu.
func (e *Engine) tellAll(bundles []string) {
	for _, uid := range bundles {
		e.o.Changed(uid)
	}
}

// changed tells that the status of all Bundles that claim the object may have
// changed.
func (e *Engine) changed(r claims.Record) {
	for uid := range r.Claims {
		e.o.Changed(uid)
	}
}
