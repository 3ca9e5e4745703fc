package view

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"atoll.dev/atoll/internal/live"
)

const (
	// againFirst and againMost are how long a member that ended a watch, or cannot be
	// reached, is left before it is asked again.
	againFirst = 200 * time.Millisecond
	againMost  = 5 * time.Second
)

// protobuf by which agents tell.
var protobuf = func() runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(clientscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("kinds are not known as protobuf") // which no request can bring about
	}
	return info
}()

// named gives a member whatever it has.
func (f *Fleet) named(name string) (*member, bool) {
	t, ok := f.o.Tables()
	if !ok {
		return nil, false
	}
	c, ok := t.Cluster(name)
	if !ok {
		return nil, false
	}
	return &member{Cluster: c, Member: live.Member{Cluster: name, Template: t.Template}}, true
}

// member is followed from one of its versions on; from what it has, where there is none.
func (w *following) member(m *member, version string) {
	again := againFirst
	for w.ctx.Err() == nil {
		began := time.Now()
		var err error
		if version == "" {
			version, err = w.list(m)
		}
		if err == nil {
			version, err = w.stream(m, version)
		}
		var noPlace crowdedError
		switch now, ok := w.o.fleet.named(m.Name); {
		case w.ctx.Err() != nil:
			return
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.give(incoming{failed: expired(err.Error() + "; list again")})
			return
		case errors.As(err, &noPlace):
			// Nobody would hear that this cluster is left out.
			w.give(incoming{failed: noPlace.StatusError})
			return
		case !ok || now.UID != m.UID:
			w.give(incoming{failed: expired("cluster " + m.Name + " is no cluster of this hub any more; list again")})
			return
		default:
			m = now
		}
		if err == nil && time.Since(began) > againMost {
			again = againFirst
		}
		pause := time.NewTimer(again)
		select {
		case <-w.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		again = min(2*again, againMost)
	}
}

// list what a member has that nobody was told of.
func (w *following) list(m *member) (version string, err error) {
	ctx, done := context.WithCancel(w.ctx)
	defer done()
	templates := map[runtime.Object]bool{}
	objects, version, err := w.o.fleet.list(ctx, m, w.o.kind, w.namespace, w.selected, func(obj runtime.Object, o metav1.Object) (runtime.Object, error) {
		shown, template, err := w.told(m, watch.Added, obj, o)
		if template {
			templates[shown] = true
		}
		return shown, err
	})
	if err != nil {
		return "", err
	}
	for i, obj := range objects {
		in := incoming{from: m.Name, event: watch.Added, object: obj, template: templates[obj]}
		if i == len(objects)-1 {
			in.version = w.reached(m, "", version) // before, not all of it is told
		}
		if !w.give(in) {
			return "", w.ctx.Err()
		}
	}
	if len(objects) == 0 && !w.give(incoming{from: m.Name, version: w.reached(m, "", version)}) {
		return "", w.ctx.Err()
	}
	return version, nil
}

// told gives an object that a member tells of as who watches sees it, nil where he does not;
// or what a template's Pod is there.
func (w *following) told(m *member, event watch.EventType, obj runtime.Object, o metav1.Object) (_ runtime.Object, template bool, err error) {
	if _, pod := obj.(*corev1.Pod); pod && m.template(w.o.kind, o) && (w.namespace == "" || o.GetNamespace() == w.namespace) && w.shows(m, o.GetNamespace()) {
		there, err := w.o.kind.internal(obj, w.o.kind.new())
		return there, true, err
	}
	shown, err := w.shown(m, event, obj, o)
	return shown, false, err
}

// stream what changes in a member, until the stream ends. It gives the version it came to.
func (w *following) stream(m *member, version string) (string, error) {
	q := query(m, w.selected)
	q.Set("watch", "true")
	q.Set("resourceVersion", version)
	answer, err := w.o.fleet.open(w.ctx, m, w.o.kind.at(w.namespace, ""), q)
	if err != nil {
		return version, err
	}
	frames := protobuf.StreamSerializer.Framer.NewFrameReader(answer.Body)
	events := restwatch.NewDecoder(streaming.NewDecoder(frames, protobuf.StreamSerializer.Serializer), liveAnswers)
	defer events.Close()
	for {
		event, obj, err := events.Decode()
		if err != nil {
			return version, nil // it ended, or broke: it goes on from there
		}
		if event == watch.Error {
			return version, apierrors.FromObject(obj)
		}
		o, err := meta.Accessor(obj)
		if err != nil {
			return version, err
		}
		now, err := m.bounded(o.GetResourceVersion())
		if err != nil {
			return version, err
		}
		before := version
		version = now
		in := incoming{from: m.Name, event: event}
		if event != watch.Bookmark {
			if in.object, in.template, err = w.told(m, event, obj, o); err != nil {
				return version, err
			}
		}
		in.version = w.reached(m, before, version)
		if !w.give(in) {
			return version, w.ctx.Err()
		}
	}
}
