package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
)

// put applies the plan's item.
func (e *Engine) put(ctx context.Context, p plan) *Failure {
	res, failure := e.resource(ctx, p.Key, p.Item.APIVersion)
	if failure != nil {
		return failure
	}
	if res.Namespaced != (p.Key.Namespace != "") {
		return &Failure{Reason: ReasonInvalid, Message: fmt.Sprintf("the member serves %s with another scope than the hub", p.Key.Kind)}
	}
	if p.Record.UID == "" {
		return e.create(ctx, p, res)
	}
	return e.update(ctx, p, res)
}

// create makes the object, unless one of that name exists. One that was left behind
// is taken up again.
func (e *Engine) create(ctx context.Context, p plan, res member.Resource) *Failure {
	live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	switch {
	case apierrors.IsNotFound(err):
		// A field that will be left to the member starts as the hub states it; it is
		// handed over right after.
		return e.send(ctx, p, res, sending{})
	case err != nil:
		return explain(err, p.Key)
	}
	v := e.observed(live)
	if e.adoptOwn(p, v) {
		return nil
	}
	if v.Deleting {
		return terminating(v)
	}
	note := live.GetAnnotations()[claims.AnnotationLeftBehind]
	if note == "" && v.Owned != "" && !v.Controlled && !e.holds(v.Label) {
		note = v.Template // of a hub of which the agent knows nothing
	}
	if note != "" {
		return e.takeUp(ctx, p, res, live, note)
	}
	return e.resolve(ctx, p, res, live)
}

func (e *Engine) holds(bundle string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.Holding(bundle) != nil
}

// takeUp an object that some Atoll made and left behind, which the note tells of: one that
// was made for another template, as another hub's, where it is what is asked for, and
// else as anybody's.
func (e *Engine) takeUp(ctx context.Context, p plan, res member.Resource, live *unstructured.Unstructured, note string) *Failure {
	if !claims.TakesUp(p.Key, note, p.Item.UID) {
		if claims.HoldsMore(p.Key) {
			return e.resolve(ctx, p, res, live)
		}
		if diff, failure := e.differs(ctx, p, res, live); failure != nil {
			return failure
		} else if len(diff) > 0 {
			return e.resolve(ctx, p, res, live)
		}
	}
	adopted := live.GetLabels()[claims.LabelAdopted] != ""
	if failure := e.send(ctx, p, res, sending{uid: string(live.GetUID()), force: true, adopt: adopted, left: p.Item.Leave}); failure != nil {
		return failure
	}
	if live.GetAnnotations()[claims.AnnotationLeftBehind] == "" {
		return nil
	}
	// The note is of no use any more. Where it stays it is read by nobody before the object
	// is let go again, and then written anew.
	patch := []byte(`{"metadata":{"annotations":{"` + claims.AnnotationLeftBehind + `":null}}}`)
	if err := e.o.Client.Merge(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil {
		e.o.Log.Info("the note of an object that is taken up again stays on it", "object", p.Key, "err", err)
	}
	return nil
}

// resolve decides about an object that exists and is not ours.
func (e *Engine) resolve(ctx context.Context, p plan, res member.Resource, live *unstructured.Unstructured) *Failure {
	how := e.resolution(p.Owner)
	take := sending{uid: string(live.GetUID()), force: true, adopt: true, left: p.Item.Leave}
	switch how {
	case v1alpha1.ConflictOverwrite:
		return e.send(ctx, p, res, take)
	case v1alpha1.ConflictAdoptIfSame:
		diff, failure := e.differs(ctx, p, res, live)
		if failure != nil {
			return failure
		}
		if len(diff) == 0 {
			return e.send(ctx, p, res, take)
		}
		return conflict(p.Key, live, "it differs at "+strings.Join(diff, ", ")+": make it equal in the member, delete it there, or set conflictResolution: Overwrite")
	}
	return conflict(p.Key, live, "delete it in the member, or set conflictResolution: AdoptIfSame or Overwrite")
}

func (e *Engine) resolution(bundle string) v1alpha1.ConflictResolution {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.book.Holding(bundle); h != nil {
		return h.Manifest.ConflictResolution
	}
	return v1alpha1.ConflictAbort
}

func conflict(key atoll.ItemKey, live *unstructured.Unstructured, advice string) *Failure {
	v := observe.Of(live, script.Interpreters{})
	by := "nobody that says so"
	if len(v.Others) > 0 {
		by = strings.Join(slices.Compact(slices.Sorted(slices.Values(v.Others))), ", ")
	}
	if v.Label != "" {
		by += ", and by another Atoll (bundle " + v.Label + ")"
	}
	return &Failure{
		Reason: ReasonConflict, First: conflictFirst, Most: conflictMost,
		Message: cut(fmt.Sprintf("%s %s exists, was not made by Atoll and is left alone; it is managed by %s; %s",
			key.Kind, name(key), by, advice)),
	}
}

func name(key atoll.ItemKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// update changes an object that is ours.
func (e *Engine) update(ctx context.Context, p plan, res member.Resource) *Failure {
	newly := slices.DeleteFunc(slices.Clone(p.left), func(path string) bool { return slices.Contains(p.Record.Left, path) })
	if p.Record.Applied == "" {
		newly = p.left // what an interrupted apply left us with is not known
	}
	if len(newly) > 0 {
		if failure := e.handOver(ctx, p, res, newly); failure != nil {
			return failure
		}
	}
	return e.send(ctx, p, res, sending{uid: p.Record.UID, force: true, left: p.left})
}

// sending is how an item is sent.
type sending struct {
	// uid that the object must have; empty: it is to be created.
	uid          string
	force, adopt bool
	left         []string
}

// send applies the item and records what it made.
func (e *Engine) send(ctx context.Context, p plan, res member.Resource, s sending) (failure *Failure) {
	wanted := p.Item
	if s.uid != "" {
		if p, failure = e.retain(ctx, p, res); failure != nil {
			return failure
		}
	}
	body, failure := body(p, s)
	if failure != nil {
		return failure
	}
	obj, err := e.o.Client.Apply(ctx, member.Patch{
		Resource: res, Namespace: p.Key.Namespace, Name: p.Key.Name,
		Manager: atoll.FieldManager, Force: s.force, Body: body,
	})
	e.o.Metrics.applied(err)
	switch {
	case err != nil && p.Item != wanted && isUID(err):
		e.again(p.Key)
		return &Failure{Reason: ReasonFailed, Message: "the object changed while what the member has set of it was read", First: 100 * time.Millisecond}
	case err != nil:
		return e.refused(err, p, s)
	}
	if failure := e.takeBack(ctx, p, res, obj); failure != nil {
		return failure
	}
	v := e.observed(obj)
	e.mu.Lock()
	e.book.Applied(p.Key, claims.Fact{
		UID: v.UID, APIVersion: p.Item.APIVersion, Template: p.Item.UID,
		Hash: p.Item.Hash, Label: p.Owner, Owned: v.Owned, Left: s.left, Adopted: s.adopt,
		Endless: interpret.NeverEnds(obj),
	})
	e.took(v)
	delete(e.forbidden, p.Key)
	e.mu.Unlock()
	e.o.Watch.Start(res)
	if s.uid == "" {
		e.o.Log.Info("created", "object", p.Key, "bundle", p.Owner)
	} else if p.Record.Applied != p.Item.Hash {
		e.o.Log.Info("applied", "object", p.Key, "bundle", p.Owner, "adopted", s.adopt)
	}
	if claims.IsCRD(p.Key) {
		return e.established(ctx, p, res)
	}
	return nil
}

// refused explains an apply that failed, and finds out what to do next.
func (e *Engine) refused(err error, p plan, s sending) *Failure {
	if s.uid != "" && (isUID(err) || apierrors.IsNotFound(err)) && !s.adopt {
		e.again(p.Key)
	}
	if apierrors.IsNotFound(err) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.foreign, p.Key.Namespace)
		if ns := claims.Namespace(p.Key.Namespace); p.Key.Namespace != "" {
			e.task(ns).check = true
			e.due(ns)
		}
		if failure := e.withoutNamespace(p.Key.Namespace); failure != nil {
			return failure
		}
	}
	return explain(err, p.Key)
}

// body of the apply request.
func body(p plan, s sending) ([]byte, *Failure) {
	var obj map[string]any
	if err := json.Unmarshal(p.Item.Object, &obj); err != nil || obj == nil {
		return nil, &Failure{Reason: ReasonInvalid, Message: cut(fmt.Sprintf("the hub sent an object that is no JSON object: %v", err))}
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
	labels[atoll.LabelBundleUID], labels[claims.LabelTemplateUID] = p.Owner, p.Item.UID
	if s.adopt || p.Record.Adopted {
		labels[claims.LabelAdopted] = "true"
	}
	u.SetLabels(labels)
	if s.uid != "" {
		_ = unstructured.SetNestedField(obj, s.uid, "metadata", "uid")
	}
	for _, path := range s.left {
		removePath(obj, pointer(path))
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, &Failure{Reason: ReasonInvalid, Message: cut(err.Error())}
	}
	return out, nil
}
