package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// Interpreters come with the manifests whose objects they judge, so that an object is judged
// by what its own Bundle brought, with the hub gone as well.

// setInterpreters sets the interpreters of a Bundle. The caller holds mu.
func (e *MemberApplier) setInterpreters(bundle string, interpreters []atoll.Interpreter) {
	if len(interpreters) == 0 {
		delete(e.interpreters, bundle)
		return
	}
	e.interpreters[bundle] = script.NewInterpreters(interpreters)
}

// rejudgeOnInterpreterChange looks again at each object of a Bundle that other interpreters judge than before.
// It returns the kinds of which whole objects are to be watched from now on. The caller holds mu.
func (e *MemberApplier) rejudgeOnInterpreterChange(before, now *ownership.BundleHolding) (whole []schema.GroupKind) {
	var were []atoll.Interpreter
	if before != nil {
		were = before.Manifest.Interpreters
	}
	same := slices.EqualFunc(were, now.Manifest.Interpreters, func(a, b atoll.Interpreter) bool { return a.Name == b.Name && a.Hash == b.Hash })
	if same {
		return nil
	}
	bundle := now.Manifest.Bundle
	then, is := script.NewInterpreters(were), e.interpreters[bundle]
	for _, key := range e.book.KeysClaimedByBundle(bundle) {
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if !then.AnswersGroupKind(gk) && !is.AnswersGroupKind(gk) {
			continue
		}
		e.markObservationStale(key)
		if r, _ := e.book.Record(key); r.UID != "" { // else it is judged when it is made
			e.ensureTask(key).judge = true
			e.markDue(key)
		}
		if is.AnswersGroupKind(gk) && observe.NeedsOnlyMetadata(gk.Group, gk.Kind) && !slices.Contains(whole, gk) && !e.isJudgedByOtherBundle(gk, bundle) {
			whole = append(whole, gk)
		}
	}
	return whole
}

// isJudgedByOtherBundle reports whether interpreters of another Bundle judge objects of the kind. The caller
// holds mu.
func (e *MemberApplier) isJudgedByOtherBundle(gk schema.GroupKind, but string) bool {
	for bundle, known := range e.interpreters {
		if bundle != but && known.AnswersGroupKind(gk) {
			return true
		}
	}
	return false
}

// InterpretersOf returns the interpreters by which objects of a Bundle are judged.
func (e *MemberApplier) InterpretersOf(bundle string) script.Interpreters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.interpreters[bundle]
}

// IsInterpreted reports whether scripts or rules judge objects of the kind.
func (e *MemberApplier) IsInterpreted(group, kind string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	gk := schema.GroupKind{Group: group, Kind: kind}
	return e.isJudgedByOtherBundle(gk, "") || e.isKindRuled(gk)
}

// observeObject is the View of an object in the member. The caller does not hold mu.
func (e *MemberApplier) observeObject(obj *unstructured.Unstructured) observe.View {
	gvk := obj.GroupVersionKind()
	key := atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return observe.ViewOf(obj, e.JudgesOf(obj.GetLabels()[atoll.LabelBundleUID], key))
}

// retainMemberFields keeps the fields that a script reports as set by the member. The API server
// refuses the apply if the object has changed since it was read.
func (e *MemberApplier) retainMemberFields(ctx context.Context, p pendingWork, res member.Resource) (pendingWork, *Failure) {
	known, gvk := e.InterpretersOf(p.Owner), schema.FromAPIVersionAndKind(p.Item.APIVersion, p.Key.Kind)
	if !known.RetainsFields(gvk) {
		return p, nil
	}
	live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil {
		return p, failureFromError(err, p.Key)
	}
	desired := &unstructured.Unstructured{}
	if err := json.Unmarshal(p.Item.Object, &desired.Object); err != nil {
		return p, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	made, err := known.RetainFields(desired, live)
	if err != nil {
		return p, &Failure{Reason: atoll.ReasonInterpreterFailed, Message: truncateText(err.Error())}
	}
	// A change by the member during the apply is not reverted to an older read.
	made.SetResourceVersion(live.GetResourceVersion())
	item := *p.Item
	if item.Object, err = json.Marshal(made.Object); err != nil {
		return p, &Failure{Reason: atoll.ReasonInterpreterFailed, Message: truncateText(err.Error())}
	}
	p.Item = &item
	return p, nil
}
