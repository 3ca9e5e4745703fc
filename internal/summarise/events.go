package summarise

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Events is told what people should know. It must not block.
type Events interface {
	// Refused: what is said of one template.
	Refused(key atoll.ItemKey, reason, message string)
	// Warn says something of a whole Bundle.
	Warn(bundle enginev1.BundleRef, reason, message string)
}

// refusal is one reason why a template, or with an empty key a whole row, could not
// be applied.
type refusal struct {
	key    atoll.ItemKey
	reason string
}

// quietAfter is how long a refusal must be gone to be news when it comes back.
const quietAfter = 10 * time.Minute

// warn tells of refusals that are new, each once however many clusters refuse.
func (r *Reconciler) warn(s *snapshot, m *memo) {
	now := time.Now()
	found := refusals(s.rows)
	frozen(found, s.content)
	for _, f := range slices.SortedFunc(maps.Keys(found), compareRefusals) {
		if f.key != (atoll.ItemKey{}) {
			r.refuse(m, f, found[f].note(), now)
			continue
		}
		if m.news(f, now) {
			r.Events.Warn(s.rows[0].Bundle, f.reason, found[f].note())
		}
	}
	for f, last := range m.refused {
		if now.Sub(last) > quietAfter {
			delete(m.refused, f)
		}
	}
}

// refuse tells of a template why it is refused, if that is news.
func (r *Reconciler) refuse(m *memo, f refusal, message string, now time.Time) {
	if m.news(f, now) {
		r.Events.Refused(f.key, f.reason, message)
	}
}

// news tells whether the refusal was not there a while ago; it is from now on.
func (m *memo) news(f refusal, now time.Time) bool {
	last, told := m.refused[f]
	m.refused[f] = now
	return !told || now.Sub(last) > quietAfter
}

func compareRefusals(a, b refusal) int {
	return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.reason, b.reason))
}

// refusers of one thing: the first by name, with what it says, and how many more.
type refusers struct {
	cluster, message string
	more             int
}

func (f refusers) note() string {
	note := f.message
	if f.cluster != "" {
		note = fmt.Sprintf("cluster %s: %s", f.cluster, f.message)
	}
	if f.more > 0 {
		note += fmt.Sprintf(" (and %s more)", clusters(f.more))
	}
	return note
}

func refusals(rows []Row) map[refusal]refusers {
	found := map[refusal]refusers{}
	add := func(key refusal, row Row, message string) {
		f, ok := found[key]
		if !ok {
			f = refusers{cluster: row.Cluster, message: message, more: -1}
		}
		f.more += int(row.count())
		found[key] = f
	}
	for _, row := range rows {
		if r := atoll.ParseRowReason(row.Spec.Reason); r.Word == atoll.RowNoCapacity && row.Spec.Phase == atoll.RowActive {
			add(refusal{reason: r.Word}, row, r.Text)
		}
		if row.Status == nil || row.Status.Generation < row.Spec.Generation {
			continue
		}
		listed := false
		for _, it := range row.Status.Items {
			switch {
			case it.Error:
				listed = true
				add(refusal{it.Key, cmp.Or(it.Reason, ReasonFailed)}, row, cmp.Or(it.Message, "it could not be applied"))
			case it.Reason == atoll.InterpreterFailed: // it is applied, and nobody knows how it is
				add(refusal{it.Key, it.Reason}, row, it.Message)
			}
		}
		if row.Status.State == atoll.RowFailed && !listed {
			add(refusal{reason: cmp.Or(row.Status.Reason, ReasonFailed)}, row, cmp.Or(row.Status.Message, "the Bundle could not be applied"))
		}
	}
	return found
}

// Recorder writes Events: about templates and other objects, and for what concerns a whole
// Bundle about the Bundle and its templates. Its methods never block and may be called
// from many goroutines. Namespaces take turns, so that much that happens in one keeps
// no news from another; what is too much of one namespace is dropped and logged. The
// same words about the same object are one Event, which counts.
type Recorder struct {
	client    client.Client
	revisions Revisions
	templates Templates
	log       *slog.Logger
	queue     notices
}

const (
	// mostTemplates of a Bundle get an Event when one is about the Bundle.
	mostTemplates = 20
	// mostNote is what the API allows, in bytes.
	mostNote = 1024
)

var _ Events = (*Recorder)(nil)

// NewRecorder makes a Recorder; nothing is written before Run.
func NewRecorder(c client.Client, revisions Revisions, templates Templates, log *slog.Logger) *Recorder {
	return &Recorder{client: c, revisions: revisions, templates: templates, log: log, queue: newNotices()}
}

// Refused implements Events.
func (r *Recorder) Refused(key atoll.ItemKey, reason, message string) {
	r.put(notice{key: key, reason: reason, message: message})
}

// Warn implements Events.
func (r *Recorder) Warn(bundle enginev1.BundleRef, reason, message string) {
	r.put(notice{bundle: &bundle, reason: reason, message: message})
}

// Tell something of an object that is neither template nor Bundle.
func (r *Recorder) Tell(about corev1.ObjectReference, reason, message string) {
	r.put(notice{about: &about, reason: reason, message: message})
}

func (r *Recorder) put(n notice) {
	if !r.queue.put(n) {
		r.log.Warn("too many events of one namespace at once, one is dropped", "namespace", n.namespace(), "reason", n.reason, "message", n.message)
	}
}

// Run writes until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		n, ok := r.queue.next(ctx)
		if !ok {
			return nil
		}
		for _, about := range r.about(ctx, n) {
			if err := r.record(ctx, about, n); err != nil && ctx.Err() == nil {
				r.log.Warn("could not write an event", "about", about.Kind+"/"+about.Name, "namespace", about.Namespace, "reason", n.reason, "err", err)
			}
		}
	}
}

// about whom an Event is.
func (r *Recorder) about(ctx context.Context, n notice) []corev1.ObjectReference {
	switch {
	case n.about != nil:
		return []corev1.ObjectReference{*n.about}
	case n.bundle == nil:
		return r.references([]atoll.ItemKey{n.key})
	}
	kind := "Bundle"
	if n.bundle.Namespace == "" {
		kind = "ClusterBundle"
	}
	out := []corev1.ObjectReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: n.bundle.Namespace, Name: n.bundle.Name, UID: types.UID(n.bundle.UID),
	}}
	revisions := r.revisions.OfBundle(n.bundle.UID)
	if len(revisions) == 0 {
		return out
	}
	content, err := r.revisions.Content(ctx, revisions[len(revisions)-1].Name)
	if err != nil {
		r.log.Warn("an event reaches the bundle only, not its templates", "bundle", n.bundle.Name, "namespace", n.bundle.Namespace, "err", err)
		return out
	}
	var keys []atoll.ItemKey
	for _, t := range content.Tombstones {
		if t.Cause == atoll.CauseDeleted {
			keys = append(keys, t.Key)
		}
	}
	for i := range content.Items {
		if !content.Items[i].Dependency {
			keys = append(keys, content.Items[i].Key)
		}
	}
	return append(out, r.references(keys[:min(len(keys), mostTemplates)])...)
}

// references to the templates that exist.
func (r *Recorder) references(keys []atoll.ItemKey) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, key := range keys {
		if t, ok := r.templates.Get(key); ok {
			out = append(out, corev1.ObjectReference{
				APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(), UID: t.GetUID(),
			})
		}
	}
	return out
}

func (r *Recorder) record(ctx context.Context, about corev1.ObjectReference, n notice) error {
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault)
	now := metav1.NowMicro()
	ev := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      eventName(about, n),
		},
		EventTime: now, ReportingController: "atoll.dev/hub", ReportingInstance: instance(),
		Action: "Propagate", Reason: n.reason, Regarding: about, Note: cut(n.message, mostNote), Type: corev1.EventTypeWarning,
	}
	err := r.client.Create(ctx, ev)
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return nil
	case !apierrors.IsAlreadyExists(err):
		return err
	}
	var old eventsv1.Event
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(ev), &old); err != nil {
		return client.IgnoreNotFound(err)
	}
	next := old.DeepCopy()
	if next.Series == nil {
		next.Series = &eventsv1.EventSeries{Count: 1}
	}
	next.Series.Count++
	next.Series.LastObservedTime = now
	return client.IgnoreNotFound(r.client.Patch(ctx, next, client.MergeFrom(&old)))
}

// eventName is the same for the same words about the same object.
func eventName(about corev1.ObjectReference, n notice) string {
	h := atoll.Hash([]byte(about.UID), []byte(n.reason), []byte(n.message))[:16]
	return cut(about.Name, 200) + "." + h
}

func instance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "atoll-hub"
	}
	return cut(host, 128)
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
