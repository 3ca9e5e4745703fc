package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"atoll.dev/atoll/internal/live"
)

const (
	// bookmarkEvery is how often who watches is told how far he is.
	bookmarkEvery = 30 * time.Second
	// settle is how long after a change of rows it is looked which members have some.
	settle = 500 * time.Millisecond
	// eventsAhead of who watches are kept.
	eventsAhead = 100
)

// following is one watch: the hub's store and each member are followed by themselves, and
// what they tell is counted in one line.
type following struct {
	o         *objects
	namespace string
	selected  live.Selection
	matches   func(runtime.Object) bool
	bookmarks bool
	trace     *live.Trace
	version   string           // that it begins at
	initial   []runtime.Object // told at first
	ends      bool             // and then, that this was all
	first     func()           // gives back what that takes

	ctx     context.Context
	cancel  context.CancelFunc
	in      chan incoming
	out     chan watch.Event
	running sync.WaitGroup

	// standings of templates, and those of which members are still to be asked, for the
	// goroutine that tells; questions go to the one that asks, once there is one.
	standings standings
	unasked   []runtime.Object
	questions chan runtime.Object

	// begun are the members that were heard of before the watch began: of what they had,
	// it must be told that it has gone, whatever rows they have by now.
	begun map[string]bool

	mu sync.Mutex
	// placed are the namespaces in which members have, or had, rows.
	placed map[string]map[string]bool
	// unheard are the namespaces of which members told without having rows there.
	unheard map[string]map[string]bool
	// held are the versions from which members are to be heard again by who goes on from
	// this watch: those before what they told in vain. Empty: there is none.
	held map[string]string
}

// unheardMost namespaces are known of a member that it told of in vain; with more, any may
// be one.
const unheardMost = 64

// incoming is what the store, under the name "", or a member tells.
type incoming struct {
	from    string
	event   watch.EventType
	object  runtime.Object
	version string // that it is at then; empty: not known
	failed  error  // the watch ends with
	// template: the object is what a template is in the member.
	template bool
	// standing of a stored object, as members answered.
	standing standing
}

// Watch what is stored, and what runs in members.
func (o *objects) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	s, err := o.scope(ctx, options)
	if err != nil {
		return nil, err
	}
	if options = s.options; s.stored {
		return o.Store.Watch(ctx, options)
	}
	if err := o.room(ctx, s.selected); err != nil {
		return nil, err
	}
	w := &following{
		o: o, namespace: request.NamespaceValue(ctx), selected: s.selected, matches: o.selects(options), bookmarks: options.AllowWatchBookmarks,
		in: make(chan incoming), out: make(chan watch.Event, eventsAhead), placed: map[string]map[string]bool{},
		standings: standings{}, begun: map[string]bool{}, unheard: map[string]map[string]bool{}, held: map[string]string{},
	}
	listing, told := context.WithCancel(ctx) // until which what it begins with is held
	at, err := w.begin(listing, s)
	if err != nil {
		told()
		return nil, err
	}
	w.first = told
	for name := range at {
		w.begun[name] = true
	}
	w.trace = o.fleet.history.Follow(o.kind.resource, w.version, maps.Clone(at), time.Now())
	w.ctx, w.cancel = context.WithCancel(ctx)
	here, err := o.storedFrom(w.ctx, options, at[""])
	if err != nil {
		w.first()
		w.cancel()
		w.trace.End(time.Now())
		return nil, err
	}
	w.running.Go(func() { w.store(here) })
	go w.run(at)
	return w, nil
}

// room tells whether who asks may follow what is selected in all its clusters: one that is
// left out would be missed by nobody, since a watch has no warnings.
func (o *objects) room(ctx context.Context, selected live.Selection) error {
	members, err := o.fleet.members(request.NamespaceValue(ctx), selected)
	if err != nil {
		return err
	}
	for _, m := range members {
		left, err := o.fleet.shares.take(ctx, m.Name)
		if err != nil {
			return err
		}
		left()
	}
	return nil
}

// begin gives the versions to go on from, after what is there where that is asked for.
func (w *following) begin(ctx context.Context, s scope) (live.Versions, error) {
	first := s.options.SendInitialEvents
	version := s.options.ResourceVersion
	known := version != "" && version != "0"
	if known {
		at, ok := w.o.fleet.history.Find(w.o.kind.resource, version)
		if !ok {
			return nil, errExpired
		}
		if first == nil || !*first {
			w.version = version
			return at, nil
		}
	}
	got, err := w.o.gatherFor(ctx, s)
	if err != nil {
		return nil, err
	}
	w.version = w.o.fleet.history.Listed(w.o.kind.resource, got.at, time.Now())
	if first == nil || *first {
		w.initial, w.ends = got.objects, first != nil && w.bookmarks
	}
	return maps.Clone(got.at), nil
}

// storedFrom watches the store from a version of its own.
func (o *objects) storedFrom(ctx context.Context, options *internalversion.ListOptions, version string) (watch.Interface, error) {
	here := *options
	here.ResourceVersion, here.ResourceVersionMatch, here.SendInitialEvents = version, "", nil
	here.Watch, here.AllowWatchBookmarks, here.Limit = true, true, 0
	return o.Store.Watch(ctx, &here)
}

// ResultChan gives the events.
func (w *following) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch.
func (w *following) Stop() { w.cancel() }

// run until the watch ends.
func (w *following) run(at live.Versions) {
	wake := w.o.fleet.watches.add()
	defer func() {
		w.o.fleet.watches.remove(wake)
		w.cancel()
		w.running.Wait()
		w.trace.End(time.Now())
		close(w.out)
	}()
	if !w.tellFirst() {
		w.first()
		return
	}
	w.first()
	followed := map[string]bool{}
	if !w.join(followed, at) {
		return
	}
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	var changed <-chan time.Time // nil while rows are as they were
	for {
		var ask chan<- runtime.Object // nil while there is nothing to ask
		var next runtime.Object
		if len(w.unasked) > 0 {
			ask, next = w.questions, w.unasked[0]
		}
		select {
		case <-w.ctx.Done():
			return
		case ask <- next:
			w.unasked = w.unasked[1:]
		case <-wake:
			if changed == nil { // rows that go on changing put nothing off
				changed = time.After(settle)
			}
		case <-changed:
			changed = nil
			if !w.join(followed, nil) {
				return
			}
		case <-bookmark.C:
			if w.bookmarks && !w.tellBookmark(w.trace.Step("", ""), false) {
				return
			}
		case in := <-w.in:
			if !w.take(in) {
				return
			}
		}
	}
}

// tellFirst what is there.
func (w *following) tellFirst() bool {
	for _, obj := range w.initial {
		if !w.tell(watch.Added, obj, w.version) {
			return false
		}
	}
	w.initial = nil
	return !w.ends || w.tellBookmark(w.version, true)
}

// join the members that have rows to those that are followed. False ends the watch.
func (w *following) join(followed map[string]bool, at live.Versions) bool {
	members, err := w.o.fleet.members(w.namespace, w.selected)
	if err != nil {
		return true // there are no tables; there were some when the watch began
	}
	for _, m := range members {
		if namespace, ok := w.placedIn(m); !ok {
			w.fail(expired(fmt.Sprintf("cluster %s told of what runs in namespace %s before this hub knew that something is placed there; list again", m.Name, namespace)))
			return false
		}
		if !followed[m.Name] {
			followed[m.Name] = true
			w.running.Go(func() { w.member(m, at[m.Name]) })
		}
	}
	// One that had rows when the watch's version was counted may still have what it ran.
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if name != "" && !followed[name] {
			followed[name] = true
			if m, ok := w.o.fleet.named(name); ok {
				w.running.Go(func() { w.member(m, at[name]) })
			}
		}
	}
	return true
}

// placedIn takes in where a member has rows. False where it has told of a namespace before.
func (w *following) placedIn(m *member) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, unheard := w.placed[m.Name], w.unheard[m.Name]
	if in == nil {
		in = map[string]bool{}
		w.placed[m.Name] = in
	}
	for _, ns := range m.in {
		if !in[ns] && (unheard[ns] || len(unheard) >= unheardMost) {
			return ns, false
		}
		in[ns] = true
	}
	return "", true
}

// take what came. False ends the watch.
func (w *following) take(in incoming) bool {
	if in.failed != nil {
		w.fail(in.failed)
		return false
	}
	version := w.trace.Step(in.from, in.version)
	switch {
	case in.object == nil:
		return true
	case in.standing != nil:
		stored := w.learns(in)
		return stored == nil || w.tell(watch.Modified, stored, version)
	case in.template:
		stored := w.runs(in)
		return stored == nil || w.tell(watch.Modified, stored, version)
	case in.from == "":
		in.object = w.stands(in)
	}
	return w.tell(in.event, in.object, version)
}

// tell who watches of an object.
func (w *following) tell(event watch.EventType, obj runtime.Object, version string) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		w.fail(apierrors.NewInternalError(err))
		return false
	}
	m.SetResourceVersion(version)
	return w.send(watch.Event{Type: event, Object: obj})
}

// tellBookmark that who watches has heard of all up to a version; the first one, after what
// was there when the watch began.
func (w *following) tellBookmark(version string, first bool) bool {
	obj := w.o.NewFunc()
	if first {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			w.fail(apierrors.NewInternalError(err))
			return false
		}
	}
	return w.tell(watch.Bookmark, obj, version)
}

// fail the watch.
func (w *following) fail(err error) {
	status := apierrors.NewInternalError(err).Status()
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	w.send(watch.Event{Type: watch.Error, Object: &status})
}

func (w *following) send(e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// give what came to the line.
func (w *following) give(in incoming) bool {
	select {
	case w.in <- in:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// store is followed.
func (w *following) store(here watch.Interface) {
	defer here.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, ok := <-here.ResultChan():
			if !ok {
				w.give(incoming{failed: expired("the watch of what is stored on the hub ended; list again")})
				return
			}
			in, err := fromStore(e)
			if err != nil {
				in = incoming{failed: err}
			}
			if !w.give(in) || in.failed != nil {
				return
			}
		}
	}
}

// fromStore reads an event of the store. Objects are copied: others watch them too.
func fromStore(e watch.Event) (incoming, error) {
	if e.Type == watch.Error {
		return incoming{failed: apierrors.FromObject(e.Object)}, nil
	}
	obj := e.Object
	if cached, ok := obj.(runtime.CacheableObject); ok {
		obj = cached.GetObject()
	} else {
		obj = obj.DeepCopyObject()
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return incoming{}, fmt.Errorf("read an event of the store: %w", err)
	}
	in := incoming{event: e.Type, object: obj, version: m.GetResourceVersion()}
	if e.Type == watch.Bookmark {
		in.object = nil
	}
	return in, nil
}

// shows tells whether a member is to be believed of objects in a namespace. Where it is not,
// and comes to be, the watch ends, since it has heard of them in vain.
func (w *following) shows(m *member, namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.placed[m.Name][namespace] {
		return true
	}
	unheard := w.unheard[m.Name]
	if !unheard[namespace] {
		if t, ok := w.o.fleet.o.Tables(); ok && t.PlacedAt(namespace, m.Name) {
			return true // it joins soon
		}
	}
	if unheard == nil {
		unheard = map[string]bool{}
		w.unheard[m.Name] = unheard
	}
	if len(unheard) < unheardMost {
		unheard[namespace] = true
	}
	return false
}

// reached gives the version that a member is at for who goes on from this watch, after it told
// something, with which it is at a version of its own.
func (w *following) reached(m *member, before, version string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unheard[m.Name]) == 0 {
		return version
	}
	if _, ok := w.held[m.Name]; !ok {
		w.held[m.Name] = before
	}
	return w.held[m.Name]
}

// shown gives an object as who watches sees it; nil where he does not.
func (w *following) shown(m *member, event watch.EventType, obj runtime.Object, o metav1.Object) (runtime.Object, error) {
	if m.template(w.o.kind, o) || w.namespace != "" && o.GetNamespace() != w.namespace {
		return nil, nil
	}
	if goes := event == watch.Deleted && w.begun[m.Name]; !goes && !w.shows(m, o.GetNamespace()) {
		return nil, nil
	}
	shown, err := m.show(w.o.kind, obj, o)
	if err != nil || !w.matches(shown) {
		return nil, err
	}
	return shown, nil
}
