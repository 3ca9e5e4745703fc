package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

// Interpreters come with the manifests whose objects they judge, so that an object is judged
// by what its own Bundle brought, with the hub gone as well.

// learn the interpreters of a Bundle. The caller holds mu.
func (e *Engine) learn(bundle string, interpreters []atoll.Interpreter) {
	if len(interpreters) == 0 {
		delete(e.known, bundle)
		return
	}
	e.known[bundle] = script.Of(interpreters)
}

// judgeAnew looks again at each object of a Bundle that other interpreters judge than before.
// It gives the kinds of which whole objects are to be watched from now on. The caller holds mu.
func (e *Engine) judgeAnew(before, now *claims.Holding) (whole []schema.GroupKind) {
	var were []atoll.Interpreter
	if before != nil {
		were = before.Manifest.Interpreters
	}
	same := slices.EqualFunc(were, now.Manifest.Interpreters, func(a, b atoll.Interpreter) bool { return a.Name == b.Name && a.Hash == b.Hash })
	if same {
		return nil
	}
	bundle := now.Manifest.Bundle
	then, is := script.Of(were), e.known[bundle]
	for _, key := range e.book.ClaimedBy(bundle) {
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if !then.About(gk) && !is.About(gk) {
			continue
		}
		if r, _ := e.book.Record(key); r.UID != "" { // else it is judged when it is made
			e.task(key).judge = true
			e.due(key)
		}
		if is.About(gk) && observe.MetadataOnly(gk.Group, gk.Kind) && !slices.Contains(whole, gk) && !e.judgedFor(gk, bundle) {
			whole = append(whole, gk)
		}
	}
	return whole
}

// judgedFor tells whether interpreters of another Bundle judge objects of the kind. The caller
// holds mu.
func (e *Engine) judgedFor(gk schema.GroupKind, but string) bool {
	for bundle, known := range e.known {
		if bundle != but && known.About(gk) {
			return true
		}
	}
	return false
}

// Interpreters by which objects of a Bundle are judged.
func (e *Engine) Interpreters(bundle string) script.Interpreters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[bundle]
}

// Interpreted tells whether scripts judge objects of the kind.
func (e *Engine) Interpreted(group, kind string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.judgedFor(schema.GroupKind{Group: group, Kind: kind}, "")
}

// observed is the View of an object in the member. The caller does not hold mu.
func (e *Engine) observed(obj *unstructured.Unstructured) observe.View {
	return observe.Of(obj, e.Interpreters(obj.GetLabels()[atoll.LabelBundleUID]))
}

// retain what a script says that the member has set of an object that is there. What is sent
// then is refused if the object has changed since.
func (e *Engine) retain(ctx context.Context, p plan, res member.Resource) (plan, *Failure) {
	known, gvk := e.Interpreters(p.Owner), schema.FromAPIVersionAndKind(p.Item.APIVersion, p.Key.Kind)
	if !known.Retains(gvk) {
		return p, nil
	}
	live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil {
		return p, explain(err, p.Key)
	}
	desired := &unstructured.Unstructured{}
	if err := json.Unmarshal(p.Item.Object, &desired.Object); err != nil {
		return p, &Failure{Reason: ReasonInvalid, Message: cut(err.Error())}
	}
	made, err := known.Retain(desired, live)
	if err != nil {
		return p, &Failure{Reason: script.ReasonFailed, Message: cut(err.Error())}
	}
	// What the member changes meanwhile is not to be undone with what was read before.
	made.SetResourceVersion(live.GetResourceVersion())
	item := *p.Item
	if item.Object, err = json.Marshal(made.Object); err != nil {
		return p, &Failure{Reason: script.ReasonFailed, Message: cut(err.Error())}
	}
	p.Item = &item
	return p, nil
}
