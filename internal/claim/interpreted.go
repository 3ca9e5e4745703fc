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

// interpret asks the hub's interpreters about a template. That one is gone, or says
// something else, is no word about what runs: the replicas that it told stay until a user
// edits the template, what it named stays until another interpreter tells what the object
// needs, and what that one does not mean any more is kept until a user edits the template.
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
		so := "it stays as it was sent last"
		if p.before(item) == nil {
			so = "it is not sent"
		}
		return fmt.Errorf("%s, since it is not known what it needs: %w", so, err)
	}
	item.Interpreted = carried(before, item.Interpreted, same)
	switch told := item.Interpreted; {
	case before == nil && told == nil:
	case same:
		item.Interpreted = p.keep(before, told, t)
	case before != nil && len(before.Kept) > 0 && (told == nil || !told.Depends):
		// Nobody answers: the edit is no word about them.
		now := atoll.Interpreted{}
		if told != nil {
			now = *told
		}
		now.Kept = before.Kept
		item.Interpreted = &now
	}
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
		out.Dependencies, out.Selections = before.Dependencies, before.Selections
	}
	return unlessEmpty(out)
}

// unlessEmpty gives the answers; nil: there are none.
func unlessEmpty(x atoll.Interpreted) *atoll.Interpreted {
	if x.Replicas == nil && x.Pods == nil && !x.Depends && len(x.Dependencies)+len(x.Selections)+len(x.Kept) == 0 {
		return nil
	}
	return &x
}

// keep what came along with an object whose template is as it was, and is not meant any
// more. Where the object comes from another Bundle, it goes on as if it were.
func (p *planner) keep(before, now *atoll.Interpreted, t *unstructured.Unstructured) *atoll.Interpreted {
	var was, is atoll.Interpreted
	if before != nil {
		was = *before
	}
	if now != nil {
		is = *now
	}
	if _, here := p.prev[KeyOf(t)]; !here {
		if len(was.Kept) == 0 {
			return now
		}
		is.Kept, is.Dependencies = nil, append(slices.Clone(is.Dependencies), was.Kept...)
		slices.SortFunc(is.Dependencies, atoll.ItemKey.Compare)
		is.Dependencies = slices.Compact(is.Dependencies)
		return unlessEmpty(is)
	}
	if was.By == is.By {
		is.Kept = was.Kept
		return unlessEmpty(is)
	}
	named := map[atoll.ItemKey]bool{} // still
	for _, key := range Needs(now, t) {
		named[key] = true
	}
	meant := func(key atoll.ItemKey) bool {
		prev := p.prev[key]
		return named[key] || prev != nil && p.means(&is, prev)
	}
	kept := slices.DeleteFunc(slices.Clone(was.Kept), meant)
	note := func(key atoll.ItemKey) {
		if prev := p.prev[key]; prev != nil && prev.Dependency && !meant(key) {
			kept = append(kept, key)
		}
	}
	for _, key := range Needs(before, t) {
		note(key)
	}
	if len(was.Selections) > 0 {
		for key, prev := range p.prev {
			if p.means(&was, prev) {
				note(key)
			}
		}
	}
	slices.SortFunc(kept, atoll.ItemKey.Compare)
	is.Kept = slices.Compact(kept)
	return unlessEmpty(is)
}

// Needs lists what an object depends on by name: as interpreters told, and as Atoll knows
// where they did not tell all.
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
