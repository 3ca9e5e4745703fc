package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// delete deletes the plan's object and confirms that it is gone.
func (e *MemberApplier) delete(ctx context.Context, p pendingWork) *Failure {
	res, failure := e.existingResource(ctx, p)
	if failure != nil {
		if failure.Reason == atoll.ReasonNotServed {
			e.recordGone(p)
			return nil
		}
		return failure
	}
	if !p.begun {
		if failure := e.beginDelete(ctx, p, res); failure != nil {
			return failure
		}
	}
	m, err := e.o.Client.GetMetadata(ctx, res, p.Key.Namespace, p.Key.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(m.UID) != p.Record.UID:
		e.recordGone(p)
		return nil
	case err != nil:
		return failureFromError(err, p.Key)
	case p.begun && m.DeletionTimestamp == nil:
		return e.beginDelete(ctx, p, res)
	}
	v := observe.ViewByExistence(m, p.Key.Group, p.Key.Kind)
	if left := finalizersWithoutReleased(v, p.ReleasedFinalizers); len(left) < len(v.Finalizers) {
		if failure := e.releaseFinalizers(ctx, p, res, m, left); failure != nil {
			return failure
		}
		v.Finalizers = left
	}
	return terminationFailure(v)
}

// finalizersWithoutReleased returns the object's finalizers without those that are released. A finalizer that Atoll
// did not apply stays, whatever the hub orders.
func finalizersWithoutReleased(v observe.View, released []string) []string {
	if len(released) == 0 {
		return v.Finalizers
	}
	var own struct {
		Metadata struct {
			Finalizers map[string]any `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(v.Fields, &own) != nil {
		return v.Finalizers
	}
	return slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool {
		_, applied := own.Metadata.Finalizers[fmt.Sprintf("v:%q", f)]
		return applied && slices.Contains(released, f)
	})
}

// releaseFinalizers leaves only the finalizers left on the object that is being deleted.
func (e *MemberApplier) releaseFinalizers(ctx context.Context, p pendingWork, res member.Resource, live *metav1.PartialObjectMetadata, left []string) *Failure {
	if live.DeletionTimestamp == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.Record.UID, "resourceVersion": live.ResourceVersion, "finalizers": left,
	}})
	if err != nil {
		return failureFromError(err, p.Key)
	}
	if err := e.o.Client.MergePatch(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil && !apierrors.IsNotFound(err) {
		f := failureFromError(err, p.Key)
		f.First = 200 * time.Millisecond
		return f
	}
	e.o.Log.Info("removed the finalizers that the template lost", "object", p.Key, "uid", p.Record.UID)
	return nil
}

// recordDeletionStart records that the deletion of the plan's object begins. still: it is still to be deleted. mustStore: how
// a hook ended, or that the object has run, outlives the object, so that the records are stored first.
func (e *MemberApplier) recordDeletionStart(p *pendingWork) (still, mustStore bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch still = e.pendingWorkFor(p.Key).Verb == p.Verb; {
	case !still:
		return false, false
	case p.Verb == ownership.Expire:
		return true, true
	}
	return true, e.book.RecordRunOnceDeletionStart(p.Key) || p.Hook != nil
}

// beginDelete requests the deletion of the object, if the deletion is still ordered and deletes
// nothing else.
func (e *MemberApplier) beginDelete(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	if failure := e.guardDeletion(ctx, p); failure != nil {
		return failure
	}
	if failure := e.recordSetVolumeClaims(ctx, p, res); failure != nil {
		return failure
	}
	if !e.o.Lease.ConfirmHeld(ctx) {
		return &Failure{Reason: atoll.ReasonNotLeaseHolder, Waits: true, Message: "another agent took over this member; nothing is deleted by this one"}
	}
	still, mustStore := e.recordDeletionStart(&p)
	if !still {
		return &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 10 * time.Millisecond, Message: "it is wanted again"}
	}
	if mustStore {
		if err := e.storeChangedRecords(ctx); err != nil {
			return failureFromError(err, p.Key)
		}
	}
	start := time.Now()
	err := e.o.Client.Delete(ctx, res, p.Key.Namespace, p.Key.Name, p.Record.UID)
	e.o.Metrics.countWrite(verbDelete, start, err)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		return failureFromError(err, p.Key)
	default:
		e.o.Log.Info("deleted", "object", p.Key, "uid", p.Record.UID)
	}
	return nil
}

func apiVersion(r ownership.Record) string {
	if r.APIVersion == "" && r.Key.IsNamespace() {
		return "v1"
	}
	return r.APIVersion
}

// terminationFailure returns what blocks a deletion.
func terminationFailure(v observe.View) *Failure {
	f := &Failure{Reason: atoll.ReasonTerminating, Waits: true, First: 500 * time.Millisecond, Most: 30 * time.Second}
	f.Message = "its deletion has begun and is not finished"
	if len(v.Finalizers) > 0 {
		f.Message = truncateText("its deletion waits for the finalizers " + strings.Join(v.Finalizers, ", ") +
			": their owner must finish, or remove them in the member; the hub removes those that it sent once its template lacks them")
	}
	return f
}

// release releases an object: Atoll's labels and field ownership are removed, and everything else
// stays. An object that Atoll made is marked, so that it can be adopted again.
func (e *MemberApplier) release(ctx context.Context, p pendingWork) *Failure {
	res, failure := e.existingResource(ctx, p)
	if failure != nil {
		if failure.Reason == atoll.ReasonNotServed {
			e.recordGone(p)
			return nil
		}
		return failure
	}
	return e.releaseAsResource(ctx, p, res)
}

// releaseAsResource is release of an object of a resource that is known.
func (e *MemberApplier) releaseAsResource(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	live, err := e.o.Client.GetMetadata(ctx, res, p.Key.Namespace, p.Key.Name)
	if apierrors.IsNotFound(err) || err == nil && string(live.UID) != p.Record.UID {
		e.recordGone(p)
		return nil
	}
	if err != nil {
		return failureFromError(err, p.Key)
	}
	patch, err := json.Marshal(map[string]any{"metadata": releasedMetadata(p, live)})
	if err != nil {
		return failureFromError(err, p.Key)
	}
	if err := e.o.Client.MergePatch(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil {
		f := failureFromError(err, p.Key)
		f.First = 200 * time.Millisecond
		return f
	}
	e.o.Log.Info("let go", "object", p.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range e.book.RecordReleased(p.Key) {
		if key != p.Key {
			e.markDue(key)
		}
	}
	delete(e.views, p.Key)
	return nil
}

// releasedMetadata returns the patch of the metadata that takes Atoll's labels and field managers
// off an object.
func releasedMetadata(p pendingWork, live *metav1.PartialObjectMetadata) map[string]any {
	fields := []any{}
	for _, f := range live.ManagedFields {
		if f.Manager != atoll.FieldManager && f.Manager != atoll.HandoverManager {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		fields = append(fields, map[string]any{}) // an empty list would change nothing
	}
	metadata := map[string]any{
		"uid": p.Record.UID, "resourceVersion": live.ResourceVersion, "managedFields": fields,
		"labels": map[string]any{atoll.LabelBundleUID: nil, ownership.LabelTemplateUID: nil, ownership.LabelAdopted: nil, ownership.LabelHookRun: nil},
	}
	if p.Record.LeavesBehind() {
		metadata["annotations"] = map[string]any{ownership.AnnotationLeftBehind: p.Record.Template}
	}
	return metadata
}

// guardDeletion keeps what a deletion would take along.
func (e *MemberApplier) guardDeletion(ctx context.Context, p pendingWork) *Failure {
	switch {
	case p.Key.IsNamespace():
		return e.guardNamespace(ctx, p)
	case ownership.IsCRD(p.Key):
		return e.guardCRD(ctx, p)
	}
	return nil
}

// guardCRD refuses while objects of the kind exist.
func (e *MemberApplier) guardCRD(ctx context.Context, p pendingWork) *Failure {
	res, failure := e.resourceFor(ctx, p.Key, apiVersion(p.Record))
	if failure != nil {
		return failure
	}
	crd, err := e.o.Client.Get(ctx, res, "", p.Key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return failureFromError(err, p.Key)
	}
	kinds := servedVersions(crd)
	if len(kinds) == 0 {
		return &Failure{
			Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: truncateText(fmt.Sprintf("%s %s is kept: it serves no version, so the stored objects of its kind cannot be read: serve one, or delete it in the member",
				p.Key.Kind, p.Key.Name)),
		}
	}
	return e.guardAgainstObjectsOfKind(ctx, kinds[0], "", p.Key)
}

// guardLimit is how many objects of a kind a guard looks at.
const guardLimit = 500

// guardAgainstObjectsOfKind refuses while the kind has objects there: ours go first, and those
// of others are not ours to delete.
func (e *MemberApplier) guardAgainstObjectsOfKind(ctx context.Context, res member.Resource, namespace string, guarded atoll.ItemKey) *Failure {
	found, err := e.o.Client.List(ctx, res, namespace, guardLimit)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	if apierrors.IsForbidden(err) {
		return &Failure{
			Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: truncateText(fmt.Sprintf("%s %s is kept: the agent may not list %s, so foreign objects there cannot be seen: allow that in a ClusterRole labelled %s=true",
				guarded.Kind, guarded.Name, res.GroupResource(), LabelAggregate)),
		}
	}
	if err != nil {
		return failureFromError(err, guarded)
	}
	setClaims := e.recordedVolumeClaimsIn(res, namespace)
	if len(setClaims) > 0 && len(found) >= guardLimit {
		return tooManyVolumeClaimsFailure(guarded)
	}
	found = slices.DeleteFunc(found, func(m metav1.PartialObjectMetadata) bool { return slices.Contains(setClaims, string(m.UID)) })
	foreign, ours := e.classifyFoundObjects(found, res, namespace)
	if len(foreign) > 0 {
		n := len(foreign)
		return &Failure{
			Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: truncateText(fmt.Sprintf("%s %s is kept: deleting it would take along %d objects that Atoll did not apply (%s): delete those in the member first",
				guarded.Kind, guarded.Name, n, joinDisplayNames(foreign[:min(3, n)]))),
		}
	}
	if ours > 0 {
		return &Failure{
			Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second,
			Message: fmt.Sprintf("%s %s goes after %d objects that depend on it", guarded.Kind, guarded.Name, ours),
		}
	}
	return nil
}

// joinDisplayNames names objects with their kinds.
func joinDisplayNames(keys []atoll.ItemKey) string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key.Kind + " " + displayName(key)
	}
	return strings.Join(names, ", ")
}

// classifyFoundObjects returns the objects that are not ours to delete, and counts those that go first. An object that came with the
// namespace is neither.
func (e *MemberApplier) classifyFoundObjects(found []metav1.PartialObjectMetadata, res member.Resource, namespace string) (foreign []atoll.ItemKey, ours int) {
	for i := range found {
		m := &found[i]
		key := atoll.ItemKey{Group: res.Group, Kind: res.Kind, Namespace: m.Namespace, Name: m.Name}
		switch {
		case e.wasCreatedByAtoll(key, string(m.UID)):
			ours++
		case namespace != "" && e.comesWithNamespace(m, key):
		case m.DeletionTimestamp != nil:
			ours++
		default:
			foreign = append(foreign, key)
		}
	}
	return foreign, ours
}

// wasCreatedByAtoll reports whether the object with this UID is recorded and was not adopted.
func (e *MemberApplier) wasCreatedByAtoll(key atoll.ItemKey, uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, known := e.book.Record(key)
	return known && r.UID == uid && !r.Adopted
}

// servedVersions lists the versions that a CRD serves.
func servedVersions(crd interface{ UnstructuredContent() map[string]any }) (out []member.Resource) {
	var def struct {
		Spec struct {
			Group string `json:"group"`
			Scope string `json:"scope"`
			Names struct {
				Plural string `json:"plural"`
				Kind   string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	}
	raw, err := json.Marshal(map[string]any{"spec": crd.UnstructuredContent()["spec"]})
	if err != nil || json.Unmarshal(raw, &def) != nil {
		return nil
	}
	s := def.Spec
	for _, v := range s.Versions {
		if v.Served {
			r := member.Resource{Kind: s.Names.Kind, Namespaced: s.Scope == "Namespaced", Listable: true}
			r.Group, r.Version, r.Resource = s.Group, v.Name, s.Names.Plural
			out = append(out, r)
		}
	}
	return slices.Clip(out)
}
