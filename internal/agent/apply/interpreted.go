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

// judgedAnew lists the kinds of a Bundle's objects that other interpreters judge than before.
func (e *Engine) judgedAnew(before, now *claims.Holding) (out []schema.GroupKind) {
	var were []atoll.Interpreter
	if before != nil {
		were = before.Manifest.Interpreters
	}
	same := slices.EqualFunc(were, now.Manifest.Interpreters, func(a, b atoll.Interpreter) bool { return a.Name == b.Name && a.Hash == b.Hash })
	if same {
		return nil
	}
	then, is := script.Of(were), e.known[now.Manifest.Bundle]
	for _, key := range e.book.ClaimedBy(now.Manifest.Bundle) {
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if (then.About(gk) || is.About(gk)) && !slices.Contains(out, gk) {
			out = append(out, gk)
		}
	}
	return out
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
	for _, known := range e.known {
		if known.About(schema.GroupKind{Group: group, Kind: kind}) {
			return true
		}
	}
	return false
}

// observed is the View of an object in the member. The caller does not hold mu.
func (e *Engine) observed(obj *unstructured.Unstructured) observe.View {
	return observe.Of(obj, e.Interpreters(obj.GetLabels()[atoll.LabelBundleUID]))
}

// retain what a script says that the member has set of an object that is there.
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
	item := *p.Item
	if item.Object, err = json.Marshal(made.Object); err != nil {
		return p, &Failure{Reason: script.ReasonFailed, Message: cut(err.Error())}
	}
	p.Item = &item
	return p, nil
}
