package render

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/schedule"
)

// mostShared is how many bytes a Renderer keeps at most, about, of what clusters have in
// common. What is beyond that is worked out for each cluster anew.
const mostShared = 2 << 20

// Renderer is a content made ready to be rendered for many clusters, as Rules and Render
// do for one. Whom a rule is about and what its overriders are called is read once, and
// what a set of rules makes of an item up to the first rule that asks the cluster for a
// value is worked out once: clusters with equal results share their bytes. Nothing of it
// changes what comes out. Not for concurrent use.
type Renderer struct {
	content *atoll.Content
	known   script.Interpreters
	rules   []ready
	scaled  map[atoll.ItemKey]bool // nil before it is asked for

	plans map[string]*plan // by the numbers of the rules
	room  int
}

// Compile a content, which is not to be changed from then on.
func Compile(content *atoll.Content) *Renderer {
	r := &Renderer{content: content, known: script.Of(content.Interpreters), rules: make([]ready, len(content.Rules)), plans: map[string]*plan{}, room: mostShared}
	for i := range content.Rules {
		r.rules[i].Rule = &content.Rules[i]
	}
	return r
}

// Rules is what the function Rules gives.
func (r *Renderer) Rules(c *atoll.ClusterView) (matching []int, variant string) {
	if c.Properties != nil { // as there
		stated := *c
		stated.Properties = nil
		c = &stated
	}
	for i := range r.rules {
		if r.rules[i].matches(c) {
			matching = append(matching, i)
		}
	}
	if p := r.plans[string(keyOf(matching))]; p != nil && len(p.texts) == 0 {
		return matching, p.variant
	}
	var texts []string
	for _, i := range matching {
		texts = append(texts, r.rules[i].texts()...)
	}
	return matching, variantOf(matching, texts, c)
}

// Render is what the function Render gives.
func (r *Renderer) Render(in Input) ([]atoll.Rendered, []Provenance) {
	p := r.planOf(in.Rules)
	if in.Cluster != nil && len(p.texts) > 0 {
		in.values, _ = valuesOf(p.texts, in.Cluster)
	}
	var atomic *atoll.Rule
	out := make([]atoll.Rendered, 0, len(p.items))
	var notes []Provenance
	var absent []*planned
	for i := range p.items {
		it := &p.items[i]
		if it.item.State == atoll.ItemRemovalHeld {
			continue
		}
		if it.kept != nil && in.out(it.item) {
			absent, notes = append(absent, it), append(notes, *it.kept)
			continue
		}
		rendered, n, failed := it.render(in)
		if failed != nil && failed.Atomic && atomic == nil {
			atomic = failed
		}
		out, notes = append(out, rendered), append(notes, n...)
	}
	if atomic != nil {
		for _, it := range absent { // which stays as it is, like all others
			out = append(out, it.bare())
		}
		slices.SortStableFunc(out, func(a, b atoll.Rendered) int { return a.Key.Compare(b.Key) })
		return stopped(out, atomic), nil
	}
	return out, notes
}

// ready is a rule whose parts are read at the first use.
type ready struct {
	*atoll.Rule
	about       *schedule.Target // nil before it is asked for
	does        []step
	expressions []string
	// read: does and expressions are there.
	read bool
}

// matches tells whether the rule targets the cluster.
func (r *ready) matches(c *atoll.ClusterView) bool {
	if r.about == nil {
		r.about = schedule.CompileTarget(r.Target)
	}
	return r.about.Matches(c)
}

// parts are the steps of the rule in the order of their application, and the texts of the
// expressions that it asks clusters.
func (r *ready) parts() (does []step, texts []string) {
	if !r.read {
		r.does, r.expressions, r.read = steps(&r.Overriders), expressions(&r.Overriders), true
	}
	return r.does, r.expressions
}

func (r *ready) texts() []string {
	_, texts := r.parts()
	return texts
}

// plan is what a set of rules comes to in every cluster that has that set.
type plan struct {
	texts   []string // of the expressions
	variant string   // where there are none
	items   []planned
}

// planned is an item under a set of rules.
type planned struct {
	item *atoll.Item
	// kept says by which rule the item is kept out, where it is: of rows that do not have
	// it any more, and where its replicas are handed over, of their division.
	kept  *Provenance
	rules []*ready
	// known sets replicas.
	known *script.Interpreters
	// same is how many of the rules come before the first that asks the cluster.
	same   int
	scaled bool

	base *base // nil before it is asked for
}

// base of an item is what the rules before the first that asks the cluster make of it.
type base struct {
	obj   map[string]any // not to be changed
	notes []Provenance
	// replicas and ordinals are what the template states of them.
	replicas int64
	ordinals any
	// scripted is the one field that a script sets replicas in; nil: no script does.
	scripted []string
	// failed is the rule that does not apply, if one does not.
	failed *atoll.Rule
	// whole is the result where all clusters have the same.
	whole *atoll.Rendered
}

// planOf a set of rules.
func (r *Renderer) planOf(rules []int) *plan {
	key := keyOf(rules)
	if p := r.plans[string(key)]; p != nil {
		return p
	}
	p, bytes := r.newPlan(rules)
	if bytes <= r.room {
		r.plans[string(key)] = p
		r.room -= bytes
	}
	return p
}

// usualNotes are how many there is room for at once on what the rules of one cluster set.
const usualNotes = 8

// Bytes that a plan takes, about: an entry, and a decoded object for a byte of its JSON.
const (
	plannedBytes = 384
	decodedBytes = 10
)

func (r *Renderer) newPlan(rules []int) (p *plan, bytes int) {
	p, bytes = &plan{}, plannedBytes
	matching := map[atoll.ItemKey][]*ready{}
	for _, i := range rules {
		rule := &r.rules[i]
		p.texts = append(p.texts, rule.texts()...)
		for _, key := range rule.Items {
			matching[key] = append(matching[key], rule)
		}
	}
	if len(p.texts) == 0 {
		p.variant = variantOf(rules, nil, nil)
	}
	if r.scaled == nil {
		r.scaled = autoscaled(r.content)
	}
	kept := unwanted(r.content, rules)
	p.items = make([]planned, len(r.content.Items))
	for i := range r.content.Items {
		item, it := &r.content.Items[i], &p.items[i]
		it.item, it.rules, it.scaled, it.known = item, matching[item.Key], r.scaled[item.Key], &r.known
		if by := kept[item.Key]; by != nil {
			it.kept = &Provenance{Item: item.Key, Policy: by.Policy, Rule: by.Index, Overrider: "notHere", Value: true}
		}
		for it.same < len(it.rules) && len(it.rules[it.same].texts()) == 0 {
			it.same++
		}
		switch bytes += plannedBytes; {
		case it.asks():
			bytes += decodedBytes * len(item.Object)
		case len(it.rules) > 0 || it.scaled:
			bytes += len(item.Object)
		}
	}
	return p, bytes
}

// asks tells whether clusters of one set of rules may have different results.
func (it *planned) asks() bool {
	return it.same < len(it.rules) || it.item.Divided || it.item.ReplicaOverrides
}

// basis of the item, worked out once.
func (it *planned) basis() *base {
	if it.base == nil {
		it.base = it.work()
	}
	return it.base
}

func (it *planned) work() *base {
	b, o := &base{}, &overriding{item: it.item}
	if len(it.rules) == 0 && !it.asks() && !it.scaled {
		whole := it.bare()
		whole.Object = it.item.Object
		whole = seal(whole)
		b.whole = &whole
		return b
	}
	err := utiljson.Unmarshal(it.item.Object, &o.obj)
	if err != nil {
		err = fmt.Errorf("content is not an object: %w", err)
	} else if b.scripted, _ = it.known.ReplicasAt(&unstructured.Unstructured{Object: o.obj}); it.asks() {
		b.replicas, _, _ = interpret.Replicas(&unstructured.Unstructured{Object: o.obj})
		ordinals, _ := interpret.Lookup(o.obj, ordinalsPath)
		b.ordinals = runtime.DeepCopyJSONValue(ordinals)
	}
	if o.scripted = b.scripted; err == nil {
		b.failed, err = o.applyAll(it.rules[:it.same])
	}
	if err == nil && it.asks() {
		b.obj, b.notes = o.obj, o.notes
		return b
	}
	whole := it.finish(o, b, Input{}, err)
	if b.whole = &whole; whole.Error == "" {
		b.notes = o.notes
	}
	return b
}

// render the item for one cluster.
func (it *planned) render(in Input) (r atoll.Rendered, notes []Provenance, failed *atoll.Rule) {
	b := it.basis()
	if b.whole != nil {
		return *b.whole, b.notes, b.failed
	}
	o := &overriding{item: it.item, obj: copied(b.obj), notes: slices.Grow(slices.Clone(b.notes), usualNotes), values: in.values, scripted: b.scripted}
	failed, err := o.applyAll(it.rules[it.same:])
	if r = it.finish(o, b, in, err); r.Error == "" {
		notes = o.notes
	}
	return r, notes, failed
}

// bare result, without what was rendered.
func (it *planned) bare() atoll.Rendered {
	item := it.item
	return atoll.Rendered{Key: item.Key, APIVersion: item.APIVersion, UID: item.UID, Dependency: item.Dependency}
}

// finish what the rules made of the item, or say why they did not apply.
func (it *planned) finish(o *overriding, b *base, in Input, err error) atoll.Rendered {
	r, key := it.bare(), it.item.Key.String()
	_, assigned := in.Assigned[key]
	start, ranged := in.Ordinals[key]
	if err == nil && it.item.Divided && (assigned || !it.scaled) {
		err = o.assign(in.Assigned, b.replicas, it.known)
	}
	if err == nil && it.item.Divided && ranged {
		err = o.begin(start, b.ordinals)
	}
	if err == nil && it.scaled {
		r.Leave = leaveReplicas(o.obj, o.scripted, assigned || !it.item.Divided)
	}
	if err == nil {
		r.Object, err = encode(o.obj, len(it.item.Object)+len(it.item.Object)/4+64)
	}
	if err != nil {
		r.Object, r.Leave, r.Error = nil, nil, err.Error()
	}
	return seal(r)
}
