package server

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"atoll.dev/atoll/internal/pause"
)

const (
	// againFirst and againMost are how long a member that ended a watch, or cannot be
	// reached, is left before it gets the next request.
	againFirst = 200 * time.Millisecond
	againMost  = 5 * time.Second
)

// protobuf in which agents send events.
var protobuf = func() runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(clientscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("kinds are not known as protobuf") // which no request can bring about
	}
	return info
}()

// memberByName returns a member whatever it has.
func (f *Fleet) memberByName(name string) (*member, bool) {
	t, ok := f.o.Tables()
	if !ok {
		return nil, false
	}
	c, ok := t.Cluster(name)
	if !ok {
		return nil, false
	}
	return newMember(t, c, nil), true
}

// followMember follows a member from the given version; without a version it lists the member
// first.
func (w *watchMerger) followMember(m *member, version string) {
	again := againFirst
	for w.ctx.Err() == nil {
		began := time.Now()
		var err error
		if version == "" {
			version, err = w.sendMemberList(m)
		}
		if err == nil {
			version, err = w.streamMember(m, version)
		}
		if w.ctx.Err() != nil {
			return
		}
		now, failed := w.o.fleet.memberAfterStreamEnd(m, err)
		if failed != nil {
			w.enqueueSourceEvent(sourceEvent{failed: failed})
			return
		}
		m = now
		if err == nil && time.Since(began) > againMost {
			again = againFirst
		}
		if !pause.WaitFor(w.ctx, again) {
			return
		}
		again = min(2*again, againMost)
	}
}

// memberAfterStreamEnd returns a member as it is now, after a stream that ended with an error or without one.
// It returns the error with which a watch ends where the stream cannot go on.
func (f *Fleet) memberAfterStreamEnd(m *member, ended error) (*member, error) {
	var noPlace crowdedError
	switch now, ok := f.memberByName(m.Name); {
	case apierrors.IsResourceExpired(ended) || apierrors.IsGone(ended):
		return nil, expiredError(ended.Error() + "; list again")
	case errors.As(ended, &noPlace):
		return nil, noPlace.StatusError // a client would not notice that this cluster is left out
	case !ok || now.UID != m.UID:
		return nil, expiredError("cluster " + m.Name + " is no cluster of this hub any more; list again")
	default:
		return now, nil
	}
}

// sendMemberList sends the objects of a member that were not sent yet.
func (w *watchMerger) sendMemberList(m *member) (version string, err error) {
	ctx, done := context.WithCancel(w.ctx)
	sent := false
	defer func() {
		if !sent {
			done()
		}
	}()
	templates := map[runtime.Object]bool{}
	objects, version, err := w.o.fleet.list(ctx, m, w.o.kind, w.namespace, w.selected, func(obj runtime.Object, o metav1.Object) (runtime.Object, error) {
		shown, template, err := w.convertEvent(m, watch.Added, obj, o)
		if template {
			templates[shown] = true
		}
		return shown, err
	})
	if err != nil {
		return "", err
	}
	for i, obj := range objects {
		in := sourceEvent{from: m.Name, event: watch.Added, object: obj, template: templates[obj]}
		if i == len(objects)-1 {
			in.version = w.resumableVersion(m, "", version) // before, a part was not sent
			in.release = done
		}
		if !w.enqueueSourceEvent(in) {
			return "", w.ctx.Err()
		}
		sent = in.release != nil
	}
	if len(objects) == 0 && !w.enqueueSourceEvent(sourceEvent{from: m.Name, version: w.resumableVersion(m, "", version)}) {
		return "", w.ctx.Err()
	}
	return version, nil
}

// convertEvent returns an object of a member's event as the watch shows it, nil where it shows
// nothing; or the state of a template's Pod there.
func (w *watchMerger) convertEvent(m *member, event watch.EventType, obj runtime.Object, o metav1.Object) (_ runtime.Object, template bool, err error) {
	if _, pod := obj.(*corev1.Pod); pod && m.isTemplate(w.o.kind, o) && (w.namespace == "" || o.GetNamespace() == w.namespace) && w.isTrustedMember(m, o.GetNamespace()) {
		there, err := w.o.kind.toInternal(obj, w.o.kind.newObject())
		return there, true, err
	}
	shown, err := w.shownObject(m, event, obj, o)
	return shown, false, err
}

// streamMember streams what changes in a member, until the stream ends. It gives the version it came to.
func (w *watchMerger) streamMember(m *member, version string) (string, error) {
	q := memberQuery(m, w.selected)
	q.Set("watch", "true")
	q.Set("resourceVersion", version)
	answer, err := w.o.fleet.openMemberStream(w.ctx, m, w.o.kind.memberPath(w.namespace, ""), q)
	if err != nil {
		return version, err
	}
	defer answer.Body.Close()
	events := eventReader{ctx: w.ctx, body: answer.Body, queue: w.queue}
	for {
		event, obj, release, err := events.readEvent()
		if apierrors.IsResourceExpired(err) { // the client is too slow
			return version, err
		}
		if err != nil {
			return version, nil // it ended, or broke: it goes on from there
		}
		if event == watch.Error {
			release()
			return version, apierrors.FromObject(obj)
		}
		in, now, err := w.readMemberEvent(m, event, obj)
		if err != nil {
			release()
			return version, err
		}
		before := version
		version, in.release = now, release
		in.version = w.resumableVersion(m, before, version)
		if !w.enqueueSourceEvent(in) {
			return version, w.ctx.Err()
		}
	}
}

// readMemberEvent returns an event of a member as the watch takes it, and the version of its object.
func (w *watchMerger) readMemberEvent(m *member, event watch.EventType, obj runtime.Object) (in sourceEvent, version string, err error) {
	in = sourceEvent{from: m.Name, event: event}
	o, err := meta.Accessor(obj)
	if err != nil {
		return in, "", err
	}
	if version, err = m.checkVersionLength(o.GetResourceVersion()); err != nil {
		return in, "", err
	}
	if event != watch.Bookmark {
		in.object, in.template, err = w.convertEvent(m, event, obj, o)
	}
	return in, version, err
}
