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

// ruleField is a field of a spec that answers a question.
type ruleField struct {
	name string
	q    question
	rule **v1alpha1.InterpreterRule
}

func ruleFieldsOf(s *v1alpha1.ResourceInterpreterSpec) []ruleField {
	return []ruleField{
		{"replicas", qReplicas, &s.Replicas}, {"components", qComponents, &s.Components}, {"revise", qRevise, &s.Revise},
		{"retain", qRetain, &s.Retain}, {"health", qHealth, &s.Health}, {"status", qStatus, &s.Status},
		{"aggregate", qAggregate, &s.Aggregate}, {"dependencies", qDependencies, &s.Dependencies},
	}
}

// keepQuestions returns the spec with these questions alone; false where it answers none of
// them.
func keepQuestions(s v1alpha1.ResourceInterpreterSpec, asked ...question) (_ v1alpha1.ResourceInterpreterSpec, any bool) {
	for _, f := range ruleFieldsOf(&s) {
		if !slices.Contains(asked, f.q) {
			*f.rule = nil
		}
		any = any || *f.rule != nil
	}
	return s, any
}

// Library holds all ResourceInterpreters of a hub. A nil Library has none. It is immutable
// except for its cache of answers, and safe for concurrent use.
type Library struct {
	Interpreters
	sortedObjects []*v1alpha1.ResourceInterpreter
	cachedAnswers *lru.Cache // by interpreters and template
}

// NewLibrary takes ownership of the objects, which must not be changed afterwards.
func NewLibrary(objects []*v1alpha1.ResourceInterpreter) *Library {
	return (*Library)(nil).WithInterpreters(objects)
}

// WithInterpreters returns the library of these ResourceInterpreters. Objects of l are not compiled again,
// so an edit costs one compilation however many interpreters there are.
func (l *Library) WithInterpreters(objects []*v1alpha1.ResourceInterpreter) *Library {
	had := map[*v1alpha1.ResourceInterpreter]*Customization{}
	if l != nil {
		for i, o := range l.sortedObjects {
			had[o] = l.list[i]
		}
	}
	next := &Library{sortedObjects: slices.Clone(objects)}
	if l != nil {
		next.cachedAnswers = l.cachedAnswers
	} else {
		next.cachedAnswers = lru.New(maxCachedAnswers)
	}
	slices.SortFunc(next.sortedObjects, func(a, b *v1alpha1.ResourceInterpreter) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range next.sortedObjects {
		c := had[o]
		if c == nil {
			i := newInterpreter(o.Name, o.Spec)
			c = compileInterpreterCached(&i)
		}
		next.list = append(next.list, c)
	}
	return next
}

// SetsReplicas reports whether an interpreter sets replicas of the kind.
func (l *Library) SetsReplicas(gvk schema.GroupVersionKind) bool {
	return l != nil && l.RevisesReplicas(gvk)
}

// DividesReplicas reports whether interpreters both read and set the replicas of the kind.
func (l *Library) DividesReplicas(gvk schema.GroupVersionKind) bool {
	return l.SetsReplicas(gvk) && l.findInterpreter(gvk, qReplicas) != nil
}

// ChangedKinds returns a function that reports whether two libraries may answer differently
// about a kind: an interpreter for it is in one of them alone.
func ChangedKinds(a, b *Library) (means func(schema.GroupKind) bool) {
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
		return slices.ContainsFunc(targets, func(t *v1alpha1.InterpreterTarget) bool { return targetMatchesGroupKind(t, gk) })
	}
}

// InterpretersForContent returns the interpreters of the kinds, sorted by name, for the content of a Bundle.
// It leaves out the operations that run when a template becomes an item: the item stores
// these answers.
func (l *Library) InterpretersForContent(kinds []schema.GroupVersionKind) []atoll.Interpreter {
	if l == nil {
		return nil
	}
	var out []atoll.Interpreter
	for _, o := range l.sortedObjects {
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return targetMatches(&o.Spec.Target, k) }) {
			continue
		}
		if spec, any := keepQuestions(o.Spec, qRevise, qRetain, qHealth, qStatus, qAggregate); any {
			out = append(out, newInterpreter(o.Name, spec))
		}
	}
	return out
}

// InterpretersForMember returns the part of a content's interpreters that agents need.
func InterpretersForMember(list []atoll.Interpreter) []atoll.Interpreter {
	var out []atoll.Interpreter
	for _, i := range list {
		var spec v1alpha1.ResourceInterpreterSpec
		if json.Unmarshal(i.Spec, &spec) != nil {
			continue // written by a newer hub, whose leader reports it
		}
		joins := spec.Aggregate != nil
		spec, any := keepQuestions(spec, qRetain, qHealth, qStatus)
		if !any && !joins {
			continue
		}
		made := newInterpreter(i.Name, spec)
		if made.ReportsWholeStatus = joins; joins {
			made.Hash = atoll.HashParts(made.Spec, []byte("whole"))
		}
		out = append(out, made)
	}
	return out
}

func newInterpreter(name string, spec v1alpha1.ResourceInterpreterSpec) atoll.Interpreter {
	b, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("script: a spec is made of plain values: %v", err))
	}
	return atoll.Interpreter{Name: name, Hash: atoll.HashParts(b), Spec: b}
}
