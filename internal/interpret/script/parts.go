package script

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// specField of a spec that answers a question.
type specField struct {
	name string
	q    question
	rule **v1alpha1.InterpreterRule
}

func rulesOf(s *v1alpha1.ResourceInterpreterSpec) []specField {
	return []specField{
		{"replicas", qReplicas, &s.Replicas}, {"components", qComponents, &s.Components}, {"revise", qRevise, &s.Revise},
		{"retain", qRetain, &s.Retain}, {"health", qHealth, &s.Health}, {"status", qStatus, &s.Status},
		{"aggregate", qAggregate, &s.Aggregate}, {"dependencies", qDependencies, &s.Dependencies},
	}
}

// only these questions of a spec; false where it answers none of them.
func only(s v1alpha1.ResourceInterpreterSpec, asked ...question) (_ v1alpha1.ResourceInterpreterSpec, any bool) {
	for _, f := range rulesOf(&s) {
		if !slices.Contains(asked, f.q) {
			*f.rule = nil
		}
		any = any || *f.rule != nil
	}
	return s, any
}

// Library is all ResourceInterpreters of a hub. Nil has none. It is immutable, but for what it
// remembers of answers.
type Library struct {
	Interpreters
	objects []*v1alpha1.ResourceInterpreter // in the order of their names
	told    *lru.Cache                      // by interpreters and template
}

// NewLibrary of ResourceInterpreters, which are not to be changed from then on.
func NewLibrary(objects []*v1alpha1.ResourceInterpreter) *Library {
	return (*Library)(nil).Next(objects)
}

// Next library, of these ResourceInterpreters. Those that l has already are not compiled anew,
// so that an edit costs the one that was edited, however many there are.
func (l *Library) Next(objects []*v1alpha1.ResourceInterpreter) *Library {
	had := map[*v1alpha1.ResourceInterpreter]*Customization{}
	if l != nil {
		for i, o := range l.objects {
			had[o] = l.list[i]
		}
	}
	next := &Library{objects: slices.Clone(objects)}
	if l != nil {
		next.told = l.told
	} else {
		next.told = lru.New(mostTold)
	}
	slices.SortFunc(next.objects, func(a, b *v1alpha1.ResourceInterpreter) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range next.objects {
		c := had[o]
		if c == nil {
			i := interpreter(o.Name, o.Spec)
			c = compiled(&i)
		}
		next.list = append(next.list, c)
	}
	return next
}

// Sets tells whether an interpreter sets replicas of the kind.
func (l *Library) Sets(gvk schema.GroupVersionKind) bool { return l != nil && l.Revises(gvk) }

// Divides tells whether interpreters know how many replicas objects of the kind have and how
// to set them.
func (l *Library) Divides(gvk schema.GroupVersionKind) bool {
	return l.Sets(gvk) && l.find(gvk, qReplicas) != nil
}

// Replaces tells about which kinds two libraries may answer otherwise: those that the
// interpreters mean that only one of them has.
func Replaces(a, b *Library) (means func(schema.GroupKind) bool) {
	var targets []*v1alpha1.InterpreterTarget
	for _, pair := range [][2]*Library{{a, b}, {b, a}} {
		if pair[0] == nil {
			continue
		}
		for _, c := range pair[0].list {
			if pair[1] == nil || !slices.ContainsFunc(pair[1].list, func(o *Customization) bool { return o.name == c.name && o.hash == c.hash }) {
				targets = append(targets, &c.target)
			}
		}
	}
	return func(gk schema.GroupKind) bool {
		return slices.ContainsFunc(targets, func(t *v1alpha1.InterpreterTarget) bool { return meansKind(t, gk) })
	}
}

// ForContent gives what interpreters answer of objects that have become items, for those
// that mean one of the kinds; in the order of their names. What a template is asked when it
// becomes an item is left out: the item has the answers.
func (l *Library) ForContent(kinds []schema.GroupVersionKind) []atoll.Interpreter {
	if l == nil {
		return nil
	}
	var out []atoll.Interpreter
	for _, o := range l.objects {
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return matches(&o.Spec.Target, k) }) {
			continue
		}
		if spec, any := only(o.Spec, qRevise, qRetain, qHealth, qStatus, qAggregate); any {
			out = append(out, interpreter(o.Name, spec))
		}
	}
	return out
}

// ForMember gives what agents are asked of a content's interpreters.
func ForMember(list []atoll.Interpreter) []atoll.Interpreter {
	var out []atoll.Interpreter
	for _, i := range list {
		var spec v1alpha1.ResourceInterpreterSpec
		if json.Unmarshal(i.Spec, &spec) != nil {
			continue // a newer hub's; who leads tells why
		}
		joins := spec.Aggregate != nil
		spec, any := only(spec, qRetain, qHealth, qStatus)
		if !any && !joins {
			continue
		}
		made := interpreter(i.Name, spec)
		if made.Whole = joins; joins {
			made.Hash = atoll.Hash(made.Spec, []byte("whole"))
		}
		out = append(out, made)
	}
	return out
}

func interpreter(name string, spec v1alpha1.ResourceInterpreterSpec) atoll.Interpreter {
	b, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("script: a spec is made of plain values: %v", err))
	}
	return atoll.Interpreter{Name: name, Hash: atoll.Hash(b), Spec: b}
}
