package claim

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// before is what the item was: in this Bundle, or in another one that hands it over.
func (p *planner) before(item *atoll.Item) *atoll.Item {
	if prev := p.prev[item.Key]; prev != nil {
		return prev
	}
	if handed := p.in.Handed[item.Key]; handed != nil && handed.UID == item.UID {
		return handed
	}
	return nil
}

// interpret asks the hub's interpreters about a template. That one is gone is no word about
// what runs: the replicas that it told stay until a user edits the template, and what it
// named stays until another interpreter tells what the object needs.
func (p *planner) interpret(item *atoll.Item, t *unstructured.Unstructured) (err error) {
	var before *atoll.Interpreted
	same := false
	if prev := p.before(item); prev != nil {
		before, same = prev.Interpreted, prev.Source == item.Source
	}
	asked := before
	if !same {
		asked = nil
	}
	if item.Interpreted, err = p.in.Interpreters.Interpret(t, item.Source, asked); err != nil {
		return fmt.Errorf("it stays as it was sent last, since it is not known what it needs: %w", err)
	}
	item.Interpreted = carried(before, item.Interpreted, same)
	return nil
}

// carried answers: those of now, and those of before that nobody gives any more.
func carried(before, now *atoll.Interpreted, same bool) *atoll.Interpreted {
	if before == nil || before == now {
		return now
	}
	out := atoll.Interpreted{}
	if now != nil {
		out = *now
	}
	if same && out.Replicas == nil && out.Pods == nil {
		out.Replicas, out.Pods = before.Replicas, before.Pods
	}
	if !out.Depends {
		out.Dependencies = before.Dependencies
	}
	if out.Replicas == nil && out.Pods == nil && len(out.Dependencies) == 0 && !out.Depends {
		return nil
	}
	return &out
}

// Needs lists what an object depends on: what interpreters told, and, where that is not all,
// what Atoll knows.
func Needs(told *atoll.Interpreted, obj *unstructured.Unstructured) (refs []atoll.ItemKey) {
	if told != nil {
		refs = slices.Clone(told.Dependencies)
	}
	if told == nil || !told.Depends {
		refs = append(refs, interpret.Dependencies(obj)...)
	}
	return refs
}

// dividedByScript tells whether interpreters know how many replicas the object has and how
// to set them, or did when it was divided.
func (p *planner) dividedByScript(item *atoll.Item, t *unstructured.Unstructured) bool {
	if item.Interpreted == nil || item.Interpreted.Replicas == nil {
		return false
	}
	prev := p.before(item)
	return Replicated(t) || p.in.Interpreters.Sets(t.GroupVersionKind()) || prev != nil && prev.Source == item.Source && prev.Divided
}

// kindsOf the items.
func kindsOf(items []atoll.Item) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	seen := map[schema.GroupVersionKind]bool{}
	for i := range items {
		if gvk := schema.FromAPIVersionAndKind(items[i].APIVersion, items[i].Key.Kind); !seen[gvk] {
			seen[gvk] = true
			out = append(out, gvk)
		}
	}
	return out
}
