package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
)

// put applies the plan's item.
func (e *MemberApplier) put(ctx context.Context, p pendingWork) *Failure {
	res, failure := e.resourceFor(ctx, p.Key, p.Item.APIVersion)
	if failure != nil {
		return failure
	}
	if res.Namespaced != (p.Key.Namespace != "") {
		return &Failure{Reason: atoll.ReasonInvalid, Message: fmt.Sprintf("the member serves %s with another scope than the hub", p.Key.Kind)}
	}
	if p.Record.UID == "" {
		return e.create(ctx, p, res)
	}
	return e.update(ctx, p, res)
}

// create makes the object, unless one of that name exists. One that was left behind
// is taken up again.
func (e *MemberApplier) create(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	switch {
	case apierrors.IsNotFound(err):
		// A field that will be left to the member starts as the hub states it; it is
		// handed over right after.
		return e.sendApply(ctx, p, res, applyParams{})
	case err != nil:
		return failureFromError(err, p.Key)
	}
	if failure := p.approved.checkUnchanged(live); failure != nil {
		return failure
	}
	v := e.observeObject(live)
	if e.recognizeOwnObject(p, v) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.recordAppliedView(v)
		return nil
	}
	if v.Deleting {
		return terminationFailure(v)
	}
	note := live.GetAnnotations()[ownership.AnnotationLeftBehind]
	if note == "" && v.Owned != "" && !v.Controlled && !e.holdsBundle(v.Label) {
		note = v.Template // of a hub that the agent has no record of
	}
	if note != "" {
		return e.adoptLeftBehind(ctx, p, res, live, note)
	}
	return e.resolveConflict(ctx, p, res, live)
}

func (e *MemberApplier) holdsBundle(bundle string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.HoldingOf(bundle) != nil
}

// adoptLeftBehind adopts an object that an Atoll made and left behind, as its note shows. An object of
// another template, such as another hub's, is adopted if it has the content of the item, and
// otherwise treated as a foreign object.
func (e *MemberApplier) adoptLeftBehind(ctx context.Context, p pendingWork, res member.Resource, live *unstructured.Unstructured, note string) *Failure {
	if !ownership.CanReadoptLeftBehind(p.Key, note, p.Item.UID) {
		if ownership.DeletionLosesDataOrDependents(p.Key) {
			return e.resolveConflict(ctx, p, res, live)
		}
		if diff, failure := e.listFirstDifferingPaths(ctx, p, res, live); failure != nil {
			return failure
		} else if len(diff) > 0 {
			return e.resolveConflict(ctx, p, res, live)
		}
	}
	adopted := live.GetLabels()[ownership.LabelAdopted] != ""
	if failure := e.sendApply(ctx, p, res, applyParams{uid: string(live.GetUID()), force: true, adopt: adopted, left: p.Item.MemberOwned}); failure != nil {
		return failure
	}
	if live.GetAnnotations()[ownership.AnnotationLeftBehind] == "" {
		return nil
	}
	// The note has no further use. If it stays, nothing reads it before the object is released
	// again, which writes it again.
	patch := []byte(`{"metadata":{"annotations":{"` + ownership.AnnotationLeftBehind + `":null}}}`)
	if err := e.o.Client.MergePatch(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil {
		e.o.Log.Info("the note of an object that is taken up again stays on it", "object", p.Key, "err", err)
	}
	return nil
}

// resolveConflict decides about an object that exists and is not ours.
func (e *MemberApplier) resolveConflict(ctx context.Context, p pendingWork, res member.Resource, live *unstructured.Unstructured) *Failure {
	how := cmp.Or(p.Item.ConflictResolution, e.conflictResolution(p.Owner))
	take := applyParams{uid: string(live.GetUID()), force: true, adopt: true, left: p.Item.MemberOwned}
	switch how {
	case v1alpha1.ConflictOverwrite:
		return e.sendApply(ctx, p, res, take)
	case v1alpha1.ConflictAdoptIfSame:
		diff, failure := e.listFirstDifferingPaths(ctx, p, res, live)
		if failure != nil {
			return failure
		}
		if len(diff) == 0 {
			return e.sendApply(ctx, p, res, take)
		}
		return conflictFailure(p.Key, live, "it differs at "+strings.Join(diff, ", ")+": make it equal in the member, delete it there, or set conflictResolution: Overwrite")
	}
	return conflictFailure(p.Key, live, "delete it in the member, or set conflictResolution: AdoptIfSame or Overwrite")
}

func (e *MemberApplier) conflictResolution(bundle string) v1alpha1.ConflictResolution {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.book.HoldingOf(bundle); h != nil {
		return h.Manifest.ConflictResolution
	}
	return v1alpha1.ConflictAbort
}

func conflictFailure(key atoll.ItemKey, live *unstructured.Unstructured, advice string) *Failure {
	v := observe.ViewOf(live, observe.Judges{})
	by := "another-controller"
	if len(v.Others) > 0 {
		by = strings.Join(slices.Compact(slices.Sorted(slices.Values(v.Others))), ", ")
	}
	if v.Label != "" {
		by += ", and by another Atoll (bundle " + v.Label + ")"
	}
	return &Failure{
		Reason: atoll.ReasonConflict, First: conflictFirst, Most: conflictMost,
		Message: truncateText(fmt.Sprintf("%s %s exists, was not made by Atoll and is left alone; it is managed by %s; %s",
			key.Kind, displayName(key), by, advice)),
	}
}

func displayName(key atoll.ItemKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// update changes an object that is ours.
func (e *MemberApplier) update(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	newly := slices.DeleteFunc(slices.Clone(p.left), func(path string) bool { return slices.Contains(p.Record.Left, path) })
	if p.Record.Applied == "" {
		newly = p.left // what an interrupted apply left us with is not known
	}
	if len(newly) > 0 {
		if failure := e.assignFieldsToHandoverManager(ctx, p, res, newly); failure != nil {
			return failure
		}
	}
	return e.sendApply(ctx, p, res, applyParams{uid: p.Record.UID, force: true, left: p.left})
}

// applyParams is how an item is sent.
type applyParams struct {
	// uid that the object must have; empty: it is to be created.
	uid          string
	force, adopt bool
	left         []string
	// version is the resource version that the object must have; empty: any.
	version string
}

// sendApply applies the item and records what it made.
func (e *MemberApplier) sendApply(ctx context.Context, p pendingWork, res member.Resource, s applyParams) (failure *Failure) {
	wanted := p.Item
	if s.uid != "" {
		if p, failure = e.retainMemberFields(ctx, p, res); failure != nil {
			return failure
		}
		s.version = p.approved.comparedVersion()
	}
	body, failure := applyBody(p, s)
	if failure != nil {
		return failure
	}
	start := time.Now()
	obj, err := e.o.Client.Apply(ctx, member.Patch{
		Resource: res, Namespace: p.Key.Namespace, Name: p.Key.Name,
		Manager: atoll.FieldManager, Force: s.force, Body: body,
	})
	e.o.Metrics.countWrite(verbApply, start, err)
	p.approved.noteApply(obj, err)
	if err != nil {
		return e.handleApplyError(ctx, err, p, res, s, p.Item != wanted)
	}
	if failure := e.removeFieldsFromHandoverManager(ctx, p, res, obj); failure != nil {
		return failure
	}
	v := e.observeObject(obj)
	e.mu.Lock()
	e.book.RecordApplied(p.Key, ownership.Fact{
		UID: v.UID, APIVersion: p.Item.APIVersion, Template: p.Item.UID,
		Hash: p.Item.Hash, Label: p.Owner, Owned: v.Owned, Left: s.left, Adopted: s.adopt,
		Endless: kinds.NeverEnds(obj), HookRun: v.HookRun, At: time.Now().Unix(),
	})
	e.recordAppliedView(v)
	e.ensureTask(p.Key).recreate = ""
	e.setForbidden(p.Key, "")
	e.mu.Unlock()
	e.o.Watch.Start(res)
	if s.uid == "" {
		e.o.Log.Info("created", "object", p.Key, "bundle", p.Owner)
	} else if p.Record.Applied != p.Item.Hash {
		e.o.Log.Info("applied", "object", p.Key, "bundle", p.Owner, "adopted", s.adopt)
	}
	if ownership.IsCRD(p.Key) {
		return e.waitForCRDEstablished(ctx, p, res)
	}
	return nil
}

// handleApplyError explains an apply that failed, and finds out what to do next. retained: fields that the member has set
// were read and sent.
func (e *MemberApplier) handleApplyError(ctx context.Context, err error, p pendingWork, res member.Resource, s applyParams, retained bool) *Failure {
	if changed := changedSinceRead(err, s, retained); changed != nil {
		e.scheduleRecheck(p.Key)
		return changed
	}
	if failure := e.moveAppliedVersion(ctx, err, p, res, s.uid); failure != nil {
		return failure
	}
	if mayRecreateAfterRefusal(err, p, s) {
		return e.scheduleRecreation(ctx, p, res, err)
	}
	if s.uid != "" && (isUIDMismatch(err) || apierrors.IsNotFound(err)) && !s.adopt {
		e.scheduleRecheck(p.Key)
	}
	if apierrors.IsNotFound(err) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.foreign, p.Key.Namespace)
		if ns := atoll.NamespaceKey(p.Key.Namespace); p.Key.Namespace != "" {
			e.ensureTask(ns).check = true
			e.markDue(ns)
		}
		if failure := e.deniedNamespaceFailure(p.Key.Namespace); failure != nil {
			return failure
		}
	}
	return failureFromError(err, p.Key)
}

// changedSinceRead explains an apply that failed because the object changed after the read that it depends on; nil: the
// apply depends on none, or failed otherwise.
func changedSinceRead(err error, s applyParams, retained bool) *Failure {
	switch {
	case !isUIDMismatch(err):
		return nil
	case s.version != "":
		return changedSinceComparison()
	case retained:
		return &Failure{Reason: atoll.ReasonApplyFailed, Message: "the object changed while what the member has set of it was read", First: 100 * time.Millisecond}
	}
	return nil
}

// applyBody returns the body of the apply request.
func applyBody(p pendingWork, s applyParams) ([]byte, *Failure) {
	var obj map[string]any
	if err := json.Unmarshal(p.Item.Object, &obj); err != nil || obj == nil {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(fmt.Sprintf("the hub sent an object that is no JSON object: %v", err))}
	}
	u := &unstructured.Unstructured{Object: obj}
	u.SetAPIVersion(p.Item.APIVersion)
	u.SetKind(p.Key.Kind)
	u.SetName(p.Key.Name)
	u.SetNamespace(p.Key.Namespace)
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[atoll.LabelBundleUID], labels[ownership.LabelTemplateUID] = p.Owner, p.Item.UID
	if p.Hook != nil && p.Record.Hook != nil {
		labels[ownership.LabelHookRun] = p.Record.Hook.Label()
	}
	if s.adopt || p.Record.Adopted {
		labels[ownership.LabelAdopted] = "true"
	}
	u.SetLabels(labels)
	if s.uid != "" {
		_ = unstructured.SetNestedField(obj, s.uid, "metadata", "uid")
	}
	if s.version != "" {
		u.SetResourceVersion(s.version)
	}
	if err := jsonpointer.RemoveMapFields(obj, s.left); err != nil {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	return out, nil
}
