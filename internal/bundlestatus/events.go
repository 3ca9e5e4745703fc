package bundlestatus

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
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/phrase"
)

// Events gets the events for people. It must not block.
type Events interface {
	// RecordRefusal records the refusal of one template.
	RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string)
	// Warn records a warning of a whole Bundle.
	Warn(bundle enginev1.BundleRef, reason atoll.Reason, message string)
	// Inform records a normal Event of a whole Bundle.
	Inform(bundle enginev1.BundleRef, reason atoll.Reason, message string)
}

// refusal is one reason why a template, or with an empty key a whole row, could not
// be applied.
type refusal struct {
	key    atoll.ItemKey
	reason atoll.Reason
}

// quietAfter is how long a refusal must be gone to be news when it comes back.
const quietAfter = 10 * time.Minute

// recordRefusals records refusals that are new, each once however many clusters refuse.
func (r *BundleReconciler) recordRefusals(s *bundleSnapshot, m *bundleMemo) {
	now := time.Now()
	found := collectRefusals(s.rows)
	maps.DeleteFunc(found, func(f refusal, _ refusers) bool { return f.key != (atoll.ItemKey{}) && !s.holdsKey(f.key) })
	addFrozenRefusals(found, s.content)
	for _, f := range slices.SortedFunc(maps.Keys(found), compareRefusals) {
		if f.key != (atoll.ItemKey{}) {
			r.recordRefusal(m, f, found[f].refusersText(), now)
			continue
		}
		if m.addRefusal(f, now) {
			r.Events.Warn(s.rows[0].Bundle, f.reason, found[f].refusersText())
		}
	}
	for f, last := range m.refused {
		if now.Sub(last) > quietAfter {
			delete(m.refused, f)
		}
	}
}

// holdsKey reports whether a Revision of the Bundle that is in use has the item, or its tombstone.
// Clusters speak of no other template by their rows of this Bundle.
func (s *bundleSnapshot) holdsKey(key atoll.ItemKey) bool {
	for _, items := range s.contents {
		if _, ok := items[key]; ok {
			return true
		}
	}
	return s.content != nil && slices.ContainsFunc(s.content.Tombstones, func(t atoll.Tombstone) bool { return t.Key == key })
}

// recordRefusal records why a template is refused, if that is news.
func (r *BundleReconciler) recordRefusal(m *bundleMemo, f refusal, message string, now time.Time) {
	if m.addRefusal(f, now) {
		r.Events.RecordRefusal(f.key, f.reason, message)
	}
}

// addRefusal reports whether the refusal was not there a while ago; it is from now on.
func (m *bundleMemo) addRefusal(f refusal, now time.Time) bool {
	last, told := m.refused[f]
	m.refused[f] = now
	return !told || now.Sub(last) > quietAfter
}

func compareRefusals(a, b refusal) int {
	return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.reason, b.reason))
}

// refusers of one thing: the first by name, with its message, and how many more.
type refusers struct {
	cluster, message string
	more             int
}

func (f refusers) refusersText() string {
	note := f.message
	if f.cluster != "" {
		note = fmt.Sprintf("cluster %s: %s", f.cluster, f.message)
	}
	if f.more > 0 {
		note += fmt.Sprintf(" (and %s more)", clusterCount(f.more))
	}
	return note
}

func collectRefusals(rows []Row) map[refusal]refusers {
	found := map[refusal]refusers{}
	add := func(key refusal, row Row, message string) {
		f, ok := found[key]
		if !ok {
			f = refusers{cluster: row.Cluster, message: message, more: -1}
		}
		f.more += int(row.rowCount())
		found[key] = f
	}
	for _, row := range rows {
		if r := atoll.ParseRowReason(row.Spec.Reason); r.Reason == atoll.ReasonNoCapacity && row.Spec.Phase == atoll.RowActive {
			add(refusal{reason: r.Reason}, row, r.Text)
		}
		if row.Status == nil || row.Status.Generation < row.Spec.Generation {
			continue
		}
		listed := false
		for i := range row.Status.Items {
			it := &row.Status.Items[i]
			listed = listed || it.Error
			if reason, message := itemWarning(it); reason != "" {
				add(refusal{it.Key, reason}, row, message)
			}
		}
		if row.Status.State == atoll.RowFailed && !listed {
			add(refusal{reason: cmp.Or(row.Status.Reason, ReasonFailed)}, row, cmp.Or(row.Status.Message, "the Bundle could not be applied"))
		}
	}
	return found
}

// itemWarning returns the Event of a reported item; an empty reason: none.
func itemWarning(it *atoll.ItemStatus) (reason atoll.Reason, message string) {
	switch {
	case it.Error:
		return cmp.Or(it.Reason, ReasonFailed), cmp.Or(it.Message, "it could not be applied")
	case it.Drift != nil && it.Drift.Missing:
		return atoll.ReasonMissing, drift.Describe(it.Drift)
	case it.Drift != nil:
		return atoll.ReasonDrifted, drift.Describe(it.Drift)
	case it.Reason == atoll.ReasonInterpreterFailed, it.Reason == atoll.ReasonHealthRuleFailed, it.Reason == atoll.ReasonMissing: // it is not healthy, and nothing failed
		return it.Reason, it.Message
	}
	return "", ""
}

// EventRecorder writes Events: about templates and other objects, and for what concerns a whole
// Bundle about the Bundle and its templates. Its methods never block and may be called
// from many goroutines. Namespaces take turns, so that much that happens in one keeps
// no news from another; what is too much of one namespace is dropped and logged. The
// same words about the same object are one Event, which counts.
type EventRecorder struct {
	client    client.Client
	revisions Revisions
	templates Templates
	log       *slog.Logger
	queue     noticeQueue
}

const (
	// mostTemplates of a Bundle get an Event when one is about the Bundle.
	mostTemplates = 20
	// mostNote is what the API allows, in bytes.
	mostNote = 1024
)

var _ Events = (*EventRecorder)(nil)

// NewEventRecorder makes a Recorder; nothing is written before Run.
func NewEventRecorder(c client.Client, revisions Revisions, templates Templates, log *slog.Logger) *EventRecorder {
	return &EventRecorder{client: c, revisions: revisions, templates: templates, log: log, queue: newNoticeQueue()}
}

// RecordRefusal implements Events.
func (r *EventRecorder) RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string) {
	r.enqueueNotice(notice{key: key, reason: reason, message: message})
}

// Warn implements Events.
func (r *EventRecorder) Warn(bundle enginev1.BundleRef, reason atoll.Reason, message string) {
	r.enqueueNotice(notice{bundle: &bundle, reason: reason, message: message})
}

// Inform implements Events.
func (r *EventRecorder) Inform(bundle enginev1.BundleRef, reason atoll.Reason, message string) {
	r.enqueueNotice(notice{bundle: &bundle, reason: reason, message: message, isNormal: true})
}

// RecordEvent records an Event: something of an object that is neither template nor Bundle.
func (r *EventRecorder) RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string) {
	r.enqueueNotice(notice{about: &about, reason: reason, message: message})
}

func (r *EventRecorder) enqueueNotice(n notice) {
	n.message = phrase.EscapeLine(n.message) // agents and users write parts of messages
	if !r.queue.put(n) {
		r.log.Warn("too many events of one namespace at once, one is dropped", "namespace", n.queueNamespace(), "reason", n.reason, "message", n.message)
	}
}

// Run writes until ctx ends.
func (r *EventRecorder) Run(ctx context.Context) error {
	for {
		n, ok := r.queue.next(ctx)
		if !ok {
			return nil
		}
		for _, about := range r.involvedObjects(ctx, n) {
			if err := r.writeEvent(ctx, about, n); err != nil && ctx.Err() == nil {
				r.log.Warn("could not write an event", "about", about.Kind+"/"+about.Name, "namespace", about.Namespace, "reason", n.reason, "err", err)
			}
		}
	}
}

// involvedObjects returns the objects of an Event.
func (r *EventRecorder) involvedObjects(ctx context.Context, n notice) []corev1.ObjectReference {
	switch {
	case n.about != nil:
		return []corev1.ObjectReference{*n.about}
	case n.bundle == nil:
		return r.templateReferences([]atoll.ItemKey{n.key})
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
	content, err := r.revisions.GetContent(ctx, revisions[len(revisions)-1].Name)
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
	return append(out, r.templateReferences(keys[:min(len(keys), mostTemplates)])...)
}

// templateReferences returns references to the templates that exist, and to Namespaces also after their deletion.
func (r *EventRecorder) templateReferences(keys []atoll.ItemKey) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, key := range keys {
		t, ok := r.templates.Get(key)
		switch {
		case !ok && key.IsNamespace():
			out = append(out, corev1.ObjectReference{APIVersion: "v1", Kind: key.Kind, Name: key.Name})
		case ok:
			out = append(out, corev1.ObjectReference{
				APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(), UID: t.GetUID(),
			})
		}
	}
	return out
}

func (r *EventRecorder) writeEvent(ctx context.Context, about corev1.ObjectReference, n notice) error {
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault)
	now, severity := metav1.NowMicro(), corev1.EventTypeWarning
	if n.isNormal {
		severity = corev1.EventTypeNormal
	}
	ev := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      eventName(about, n),
		},
		EventTime: now, ReportingController: "atoll.dev/hub", ReportingInstance: instanceName(),
		Action: "Propagate", Reason: string(n.reason), Regarding: about, Note: phrase.CutText(n.message, mostNote), Type: severity,
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
	h := atoll.HashParts([]byte(about.UID), []byte(n.reason), []byte(n.message))[:16]
	return phrase.CutText(about.Name, 200) + "." + h
}

func instanceName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "atoll-hub"
	}
	return phrase.CutText(host, 128)
}
