package server

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

	"atoll.dev/atoll/internal/fleetview"
)

const (
	// bookmarkEvery is the interval of bookmarks for a watch.
	bookmarkEvery = 30 * time.Second
	// settle is how long after a change of rows it is looked which members have some.
	settle = 500 * time.Millisecond
)

// watchMerger is one watch: the hub's store and each member are followed by themselves, and their
// events are counted in one line.
type watchMerger struct {
	o             *objectStorage
	namespace     string
	selected      fleetview.FleetSelection
	matches       func(runtime.Object) bool
	bookmarks     bool
	trace         *fleetview.VersionTrace
	version       string           // that it begins at
	initial       []runtime.Object // sent at first
	sendsBookmark bool             // and then, that this was all
	first         func()           // gives back what that takes

	ctx     context.Context
	cancel  context.CancelFunc
	in      chan sourceEvent
	queue   *eventQueue
	running sync.WaitGroup
	// release returns the memory of the event that is being handled, unless it is sent.
	release func()

	// standings of templates, and those whose members still have to get a request, for the goroutine
	// that sends events; questions go to the requesting goroutine, once there is one.
	standings podStatuses
	unasked   []runtime.Object
	questions chan runtime.Object

	// begun are the members that were read before the watch began: deletions of their objects must
	// be sent, whatever rows they have by now.
	begun map[string]bool

	mu sync.Mutex
	// placed are the namespaces in which members have, or had, rows.
	placed map[string]map[string]bool
	// unheard are the namespaces of members' events without rows there.
	unheard map[string]map[string]bool
	// held are the versions from which members must be read again by a watch that resumes from
	// this one: those before their dropped events. Empty: there is none.
	held map[string]string
}

// unheardMost is the number of remembered namespaces of a member's dropped events; with more, any
// may be one.
const unheardMost = 64

// sourceEvent is what the store, under the name "", or a member sends.
type sourceEvent struct {
	from    string
	event   watch.EventType
	object  runtime.Object
	version string // that it is at then; empty: not known
	failed  error  // the watch ends with
	// template: the object is what a template is in the member.
	template bool
	// standing of a stored object, as members answered.
	standing podStatusByCluster
	// release returns the memory of the object; nil: none is counted.
	release func()
}

// Watch watches what is stored, and what runs in members.
func (o *objectStorage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	s, err := o.parseListRequest(ctx, options)
	if err != nil {
		return nil, err
	}
	if options = s.options; s.stored {
		return o.Store.Watch(ctx, options)
	}
	if err := o.checkRequestSlotsAtMembers(ctx, s.selected); err != nil {
		return nil, err
	}
	w := &watchMerger{
		o: o, namespace: request.NamespaceValue(ctx), selected: s.selected, matches: o.requestFilter(options), bookmarks: options.AllowWatchBookmarks,
		in: make(chan sourceEvent), placed: map[string]map[string]bool{},
		standings: podStatuses{}, begun: map[string]bool{}, unheard: map[string]map[string]bool{}, held: map[string]string{},
	}
	listing, told := context.WithCancel(ctx) // until which what it begins with is held
	at, err := w.beginVersions(listing, s)
	if err != nil {
		told()
		return nil, err
	}
	w.first = told
	for name := range at {
		w.begun[name] = true
	}
	w.trace = o.fleet.history.StartTrace(o.kind.resource, w.version, maps.Clone(at), time.Now())
	w.queue = o.fleet.newEventQueue(ctx)
	w.ctx, w.cancel = context.WithCancel(w.queue.client)
	here, err := o.watchStoreFrom(w.ctx, options, at[""])
	if err != nil {
		w.first()
		w.queue.stop()
		w.cancel()
		w.trace.EndTrace(time.Now())
		return nil, err
	}
	w.running.Go(func() { w.followStore(here) })
	go w.run(at)
	return w, nil
}

// checkRequestSlotsAtMembers reports whether the user may watch the selected objects in all its clusters: a missing one
// would be invisible, because a watch has no warnings.
func (o *objectStorage) checkRequestSlotsAtMembers(ctx context.Context, selected fleetview.FleetSelection) error {
	members, err := o.fleet.membersFor(request.NamespaceValue(ctx), selected)
	if err != nil {
		return err
	}
	for _, m := range members {
		left, err := o.fleet.shares.acquireSlot(ctx, m.Name)
		if err != nil {
			return err
		}
		left()
	}
	return nil
}

// beginVersions returns the versions of the members at which the watch starts, and lists the
// initial objects if the watch sends them.
func (w *watchMerger) beginVersions(ctx context.Context, s listRequest) (fleetview.Versions, error) {
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
	got, err := w.o.gatherWithWarnings(ctx, s)
	if err != nil {
		return nil, err
	}
	w.version = w.o.fleet.history.RecordList(w.o.kind.resource, got.at, time.Now())
	if first == nil || *first {
		w.initial, w.sendsBookmark = got.objects, first != nil && w.bookmarks
	}
	return maps.Clone(got.at), nil
}

// watchStoreFrom watches the store from a version of its own.
func (o *objectStorage) watchStoreFrom(ctx context.Context, options *internalversion.ListOptions, version string) (watch.Interface, error) {
	here := *options
	here.ResourceVersion, here.ResourceVersionMatch, here.SendInitialEvents = version, "", nil
	here.Watch, here.AllowWatchBookmarks, here.Limit = true, true, 0
	return o.Store.Watch(ctx, &here)
}

// ResultChan returns the events.
func (w *watchMerger) ResultChan() <-chan watch.Event { return w.queue.out }

// Stop ends the watch.
func (w *watchMerger) Stop() { w.queue.stop() }

// run works until the watch ends.
func (w *watchMerger) run(at fleetview.Versions) {
	wake := w.o.fleet.watches.add()
	defer func() {
		w.o.fleet.watches.remove(wake)
		w.cancel()
		w.running.Wait()
		w.trace.EndTrace(time.Now())
		w.first()
		close(w.queue.in)
	}()
	followed := map[string]bool{}
	ok := w.sendInitialObjects() && w.followNewMembers(followed, at)
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	var changed <-chan time.Time // nil while rows are as they were
	for ok {
		ask, next := w.nextStatusQuery()
		select {
		case <-w.ctx.Done():
			return
		case <-w.queue.full:
			return
		case ask <- next:
			w.unasked = w.unasked[1:]
		case <-wake:
			if changed == nil { // rows that go on changing put nothing off
				changed = time.After(settle)
			}
		case <-changed:
			changed = nil
			ok = w.followNewMembers(followed, nil)
		case <-bookmark.C:
			ok = !w.bookmarks || w.sendBookmark(w.trace.RecordEvent("", ""), false)
		case in := <-w.in:
			ok = w.handleIncoming(in)
		}
	}
}

// nextStatusQuery returns the next question to members, and the channel that takes it; nil while there
// is none.
func (w *watchMerger) nextStatusQuery() (ask chan<- runtime.Object, next runtime.Object) {
	if len(w.unasked) == 0 {
		return nil, nil
	}
	return w.questions, w.unasked[0]
}

// sendInitialObjects sends first what is there. Its memory counts until the last is taken.
func (w *watchMerger) sendInitialObjects() bool {
	if len(w.initial) == 0 {
		w.first()
	}
	for i, obj := range w.initial {
		if i == len(w.initial)-1 {
			w.release = w.first
		}
		if !w.sendEvent(watch.Added, obj, w.version) {
			return false
		}
	}
	w.initial = nil
	return !w.sendsBookmark || w.sendBookmark(w.version, true)
}

// followNewMembers adds the members that have rows to those that are followed. False ends the watch.
func (w *watchMerger) followNewMembers(followed map[string]bool, at fleetview.Versions) bool {
	members, err := w.o.fleet.membersFor(w.namespace, w.selected)
	if err != nil {
		return true // there are no tables; there were some when the watch began
	}
	for _, m := range members {
		if namespace, ok := w.addPlacedNamespaces(m); !ok {
			w.fail(expiredError(fmt.Sprintf("cluster %s reported objects in namespace %s before this hub had read that something is placed there; list again", m.Name, namespace)))
			return false
		}
		if !followed[m.Name] {
			followed[m.Name] = true
			w.running.Go(func() { w.followMember(m, at[m.Name]) })
		}
	}
	// One that had rows when the watch's version was counted may still have what it ran.
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if name != "" && !followed[name] {
			followed[name] = true
			if m, ok := w.o.fleet.memberByName(name); ok {
				w.running.Go(func() { w.followMember(m, at[name]) })
			}
		}
	}
	return true
}

// addPlacedNamespaces adds the namespaces of a member's rows. It returns false where the member's events of
// such a namespace were dropped before.
func (w *watchMerger) addPlacedNamespaces(m *member) (string, bool) {
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

// handleIncoming handles what came. False ends the watch.
func (w *watchMerger) handleIncoming(in sourceEvent) bool {
	w.release = in.release
	defer w.releaseEventMemory()
	if in.failed != nil {
		w.fail(in.failed)
		return false
	}
	version := w.trace.RecordEvent(in.from, in.version)
	switch {
	case in.object == nil:
		return true
	case in.standing != nil:
		stored := w.applyPodAnswers(in)
		return stored == nil || w.sendEvent(watch.Modified, stored, version)
	case in.template:
		stored := w.updateTemplatePod(in)
		return stored == nil || w.sendEvent(watch.Modified, stored, version)
	case in.from == "" && w.selected.IsByOwnName():
		w.fail(expiredError("the name is that of an object on the hub now; list again"))
		return false
	case in.from == "":
		in.object = w.overlayMemberPodStatus(in)
	}
	return w.sendEvent(in.event, in.object, version)
}

// releaseEventMemory returns the memory of an event that the watch does not show.
func (w *watchMerger) releaseEventMemory() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// sendEvent sends an object to the watch's client.
func (w *watchMerger) sendEvent(event watch.EventType, obj runtime.Object, version string) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		w.fail(apierrors.NewInternalError(err))
		return false
	}
	m.SetResourceVersion(version)
	return w.send(watch.Event{Type: event, Object: obj})
}

// sendBookmark sends the client that it has seen everything up to a version. The first bookmark
// follows the initial objects.
func (w *watchMerger) sendBookmark(version string, first bool) bool {
	obj := w.o.NewFunc()
	if first {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			w.fail(apierrors.NewInternalError(err))
			return false
		}
	}
	return w.sendEvent(watch.Bookmark, obj, version)
}

// fail ends the merged watch with an error.
func (w *watchMerger) fail(err error) {
	status := apierrors.NewInternalError(err).Status()
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	w.send(watch.Event{Type: watch.Error, Object: &status})
}

func (w *watchMerger) send(e watch.Event) bool {
	queued := queuedEvent{e, w.release}
	w.release = nil
	return w.queue.queueEvent(w.ctx, queued)
}

// enqueueSourceEvent passes an event to the merged watch; false if the watch has ended.
func (w *watchMerger) enqueueSourceEvent(in sourceEvent) bool {
	select {
	case w.in <- in:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// followStore passes the events of the hub's store to the merged watch, until the watch ends.
func (w *watchMerger) followStore(here watch.Interface) {
	defer here.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, ok := <-here.ResultChan():
			if !ok {
				w.enqueueSourceEvent(sourceEvent{failed: expiredError("the watch of what is stored on the hub ended; list again")})
				return
			}
			in, err := readStoreEvent(e)
			if err != nil {
				in = sourceEvent{failed: err}
			}
			if !w.enqueueSourceEvent(in) || in.failed != nil {
				return
			}
		}
	}
}

// readStoreEvent reads an event of the store. Objects are copied: others watch them too.
func readStoreEvent(e watch.Event) (sourceEvent, error) {
	if e.Type == watch.Error {
		return sourceEvent{failed: apierrors.FromObject(e.Object)}, nil
	}
	obj := e.Object
	if cached, ok := obj.(runtime.CacheableObject); ok {
		obj = cached.GetObject()
	} else {
		obj = obj.DeepCopyObject()
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return sourceEvent{}, fmt.Errorf("read an event of the store: %w", err)
	}
	in := sourceEvent{event: e.Type, object: obj, version: m.GetResourceVersion()}
	if e.Type == watch.Bookmark {
		in.object = nil
	}
	return in, nil
}

// isTrustedMember reports whether a member is trusted about objects in a namespace. When it
// becomes trusted, the watch ends, because events of it were dropped.
func (w *watchMerger) isTrustedMember(m *member, namespace string) bool {
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

// resumableVersion returns the version of a member for a watch that resumes from this one, after an
// event with a version of its own.
func (w *watchMerger) resumableVersion(m *member, before, version string) string {
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

// shownObject returns an object as the watch shows it; nil where it does not.
func (w *watchMerger) shownObject(m *member, event watch.EventType, obj runtime.Object, o metav1.Object) (runtime.Object, error) {
	if m.isTemplate(w.o.kind, o) || w.namespace != "" && o.GetNamespace() != w.namespace {
		return nil, nil
	}
	if goes := event == watch.Deleted && w.begun[m.Name]; !goes && !w.isTrustedMember(m, o.GetNamespace()) {
		return nil, nil
	}
	shown, err := m.convertToShown(w.o.kind, obj, o, w.selected)
	if err != nil || !w.matches(shown) {
		return nil, err
	}
	return shown, nil
}
