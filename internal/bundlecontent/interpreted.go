package bundlecontent

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/policymatch"
)

// previousItem returns the item's last state, in this Bundle or in another Bundle that hands it
// over.
func (p *contentBuilder) previousItem(item *atoll.Item) *atoll.Item {
	if prev := p.previous[item.Key]; prev != nil {
		return prev
	}
	if handed := p.in.HandedOver[item.Key]; handed != nil && handed.UID == item.UID {
		return handed
	}
	return nil
}

// interpretItem sets the answers of the hub's interpreters about a template. An interpreter that is
// gone, or that answers otherwise, changes nothing that runs. Its number of replicas stays until a
// user edits the template. Its dependencies stay until another interpreter answers, and those that
// the new answer leaves out are kept until a user edits the template.
func (p *contentBuilder) interpretItem(item *atoll.Item, t *unstructured.Unstructured) (err error) {
	var before *atoll.InterpreterAnswers
	same := false
	if prev := p.previousItem(item); prev != nil {
		before, same = prev.Interpreted, prev.SourceFingerprint == item.SourceFingerprint
	}
	asked := before
	if !same {
		asked = nil
	}
	if item.Interpreted, err = p.in.Interpreters.InterpretTemplate(t, item.SourceFingerprint, asked); err != nil {
		so := "it stays as it was sent last"
		if p.previousItem(item) == nil {
			so = "it is not sent"
		}
		return fmt.Errorf("%s, since it is not known what it needs: %w", so, err)
	}
	item.Interpreted = carryAnswers(before, item.Interpreted, same)
	if same {
		item.Interpreted = p.keepFormerDependencies(before, item.Interpreted, t)
	}
	return nil
}

// carryAnswers returns the new answers, with former ones where no interpreter answers now.
func carryAnswers(before, now *atoll.InterpreterAnswers, same bool) *atoll.InterpreterAnswers {
	if before == nil || before == now {
		return now
	}
	out := ptr.Deref(now, atoll.InterpreterAnswers{})
	if same && out.Replicas == nil && out.Pods == nil {
		out.Replicas, out.Pods = before.Replicas, before.Pods
	}
	if !out.DependenciesComplete {
		out.Dependencies, out.Selections = before.Dependencies, before.Selections
	}
	answers := nilIfEmpty(out)
	if !same && !out.DependenciesComplete && len(before.KeptDependencies) > 0 {
		// No interpreter answers: the edit decides nothing about them.
		edited := ptr.Deref(answers, atoll.InterpreterAnswers{})
		edited.KeptDependencies = before.KeptDependencies
		return &edited
	}
	return answers
}

// nilIfEmpty returns the answers, or nil when there are none.
func nilIfEmpty(x atoll.InterpreterAnswers) *atoll.InterpreterAnswers {
	if x.Replicas == nil && x.Pods == nil && !x.DependenciesComplete && len(x.Dependencies)+len(x.Selections)+len(x.KeptDependencies) == 0 {
		return nil
	}
	return &x
}

// keepFormerDependencies keeps dependencies that the answers no longer include, while the template
// is unchanged. If the object comes from another Bundle, they continue as ordinary dependencies.
func (p *contentBuilder) keepFormerDependencies(before, now *atoll.InterpreterAnswers, t *unstructured.Unstructured) *atoll.InterpreterAnswers {
	was, is := ptr.Deref(before, atoll.InterpreterAnswers{}), ptr.Deref(now, atoll.InterpreterAnswers{})
	if _, here := p.previous[policymatch.ItemKeyOf(t)]; !here {
		if len(was.KeptDependencies) == 0 {
			return now
		}
		is.KeptDependencies, is.Dependencies = nil, append(slices.Clone(is.Dependencies), was.KeptDependencies...)
		slices.SortFunc(is.Dependencies, atoll.ItemKey.Compare)
		is.Dependencies = slices.Compact(is.Dependencies)
		return nilIfEmpty(is)
	}
	is.KeptDependencies = was.KeptDependencies
	if was.AnsweredBy != is.AnsweredBy {
		is.KeptDependencies = p.listOmittedDependencies(was, is, t)
	}
	return nilIfEmpty(is)
}

// listOmittedDependencies returns the dependencies, kept ones among them, that another interpreter's
// answer leaves out.
func (p *contentBuilder) listOmittedDependencies(was, is atoll.InterpreterAnswers, t *unstructured.Unstructured) []atoll.ItemKey {
	named := map[atoll.ItemKey]bool{} // still
	for _, key := range NamedDependencies(&is, t) {
		named[key] = true
	}
	meant := func(key atoll.ItemKey) bool {
		prev := p.previous[key]
		return named[key] || prev != nil && p.matchesSelections(&is, prev)
	}
	kept := slices.DeleteFunc(slices.Clone(was.KeptDependencies), meant)
	note := func(key atoll.ItemKey) {
		if prev := p.previous[key]; prev != nil && prev.Dependency && !meant(key) {
			kept = append(kept, key)
		}
	}
	for _, key := range NamedDependencies(&was, t) {
		note(key)
	}
	if len(was.Selections) > 0 {
		for key, prev := range p.previous {
			if p.matchesSelections(&was, prev) {
				note(key)
			}
		}
	}
	slices.SortFunc(kept, atoll.ItemKey.Compare)
	return slices.Compact(kept)
}

// NamedDependencies returns what an object depends on by name: by interpreters, and by Atoll's own
// rules where the interpreters' answer is incomplete.
func NamedDependencies(answers *atoll.InterpreterAnswers, obj *unstructured.Unstructured) (refs []atoll.ItemKey) {
	if answers != nil {
		refs = slices.Clone(answers.Dependencies)
	}
	if answers == nil || !answers.DependenciesComplete {
		refs = append(refs, kinds.DependenciesOf(obj)...)
	}
	return refs
}

// isDivisibleByScript returns whether interpreters read and set the object's replicas, or did when it
// was divided.
func (p *contentBuilder) isDivisibleByScript(item *atoll.Item, t *unstructured.Unstructured) bool {
	if item.Interpreted == nil || item.Interpreted.Replicas == nil {
		return false
	}
	prev := p.previousItem(item)
	return StatesReplicas(t) || p.in.Interpreters.SetsReplicas(t.GroupVersionKind()) || prev != nil && prev.SourceFingerprint == item.SourceFingerprint && prev.Divided
}

// itemKinds returns the distinct kinds of the items.
func itemKinds(items []atoll.Item) []schema.GroupVersionKind {
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
