package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/panicorigin"
	"atoll.dev/atoll/internal/refusal"
)

// maxSharedBytes bounds, approximately, the bytes that a Renderer keeps of what clusters have in
// common. Beyond it, results are computed for each cluster.
const maxSharedBytes = 2 << 20

// Renderer is a content prepared for rendering for many clusters. It parses each rule once. It
// computes once what a set of rules makes of an item, up to the first rule that takes a value of
// the cluster. Clusters with equal results share their bytes. Results equal those of the functions
// MatchRules and RenderItems. Not for concurrent use.
type Renderer struct {
	content      *atoll.Content
	interpreters script.Interpreters
	rules        []overrides.CompiledRule
	hooked       bool                   // the content has hooks
	autoscaled   map[atoll.ItemKey]bool // nil before it is read

	ruleSets  map[string]*ruleSet // by the numbers of the rules
	versions  map[atoll.MemberVersions]*versionChoice
	replaced  map[string]atoll.RenderedItem // items in other API versions, by what they follow from
	freeBytes int
}

// NewRenderer returns a Renderer of a content, which must not change from then on.
func NewRenderer(content *atoll.Content) *Renderer {
	r := &Renderer{content: content, interpreters: script.NewInterpreters(content.Interpreters), rules: make([]overrides.CompiledRule, len(content.Rules)), ruleSets: map[string]*ruleSet{}, freeBytes: maxSharedBytes}
	r.hooked = hasHooks(content)
	for i := range content.Rules {
		r.rules[i].Rule = &content.Rules[i]
	}
	return r
}

// MatchRules returns what the function MatchRules returns.
func (r *Renderer) MatchRules(c *atoll.ClusterView) (matching []int, variant string) {
	if c.Properties != nil { // as in the function MatchRules
		stated := *c
		stated.Properties = nil
		c = &stated
	}
	var applied appliedRules
	for i := range r.rules {
		if r.rules[i].MatchesCluster(c) && applied.admitRule(r.rules[i].Rule) {
			matching = append(matching, i)
		}
	}
	versions := r.versionsOf(c.Versions)
	if p := r.ruleSets[string(encodeRuleKey(matching))]; p != nil && len(p.expressions) == 0 {
		return matching, versions.nameVariant(p.variant)
	}
	var texts []string
	for _, i := range matching {
		texts = append(texts, r.rules[i].Expressions()...)
	}
	return matching, versions.nameVariant(hashVariant(matching, texts, c))
}

// RenderItems returns what the function RenderItems returns.
func (r *Renderer) RenderItems(in RenderInput) ([]atoll.RenderedItem, []overrides.Provenance) {
	p := r.ruleSetFor(in.Rules)
	if in.Cluster != nil && len(p.expressions) > 0 {
		in.clusterValues, _ = overrides.EvaluateValues(p.expressions, in.Cluster)
	}
	versions := r.versionsFor(in.Cluster)
	var atomic *atoll.Rule
	out := make([]atoll.RenderedItem, 0, len(p.items))
	var notes []overrides.Provenance
	var absent []*sharedItem
	for i := range p.items {
		it := &p.items[i]
		if it.item.State == atoll.ItemRemovalHeld {
			continue
		}
		if it.exclusion != nil && in.isAbsent(it.item) {
			absent, notes = append(absent, it), append(notes, *it.exclusion)
			continue
		}
		rendered, n, failed := r.renderItem(it, in, versions)
		if failed != nil && failed.Atomic && atomic == nil {
			atomic = failed
		}
		out, notes = append(out, rendered), append(notes, n...)
	}
	if atomic != nil {
		for _, it := range absent { // an absent item stays as it is, like all others
			out = append(out, it.newRenderedItem())
		}
		slices.SortStableFunc(out, func(a, b atoll.RenderedItem) int { return a.Key.Compare(b.Key) })
		out, notes = failAllItems(out, atomic), nil
	}
	markHooked(out, r.hooked)
	return out, notes
}

// ruleSet is the result of a set of rules in every cluster that has the set.
type ruleSet struct {
	expressions []string // of the expressions
	variant     string   // where there are none
	items       []sharedItem
}

// sharedItem is an item under a set of rules.
type sharedItem struct {
	item *atoll.Item
	// exclusion names the rule that excludes the item, if any: from rows that no longer have it,
	// and from their division where overrides may set replicas.
	exclusion *overrides.Provenance
	rules     []*overrides.CompiledRule
	// interpreters sets replicas.
	interpreters *script.Interpreters
	// sharedRules is the number of rules before the first that takes a value of the cluster.
	sharedRules int
	autoscaled  bool
	// hooked: the content has hooks.
	hooked bool

	result *sharedResult // nil before it is read
}

// sharedResult is what the rules before the first that takes a value of the cluster make of an
// item.
type sharedResult struct {
	obj   map[string]any // not to be changed
	notes []overrides.Provenance
	// emptiedMaps are those of the ObjectPatcher.
	emptiedMaps []string
	// statedReplicas and statedOrdinals are what the template states.
	statedReplicas int64
	statedOrdinals any
	// scriptedPath is the field in which a script sets replicas; nil: no script does.
	scriptedPath []string
	// failedRule is the rule that does not apply; nil: all apply.
	failedRule *atoll.Rule
	// complete is the result where all clusters have the same.
	complete *atoll.RenderedItem
}

// ruleSetFor returns the ruleSet of the rules with these indexes.
func (r *Renderer) ruleSetFor(rules []int) *ruleSet {
	key := encodeRuleKey(rules)
	if p := r.ruleSets[string(key)]; p != nil {
		return p
	}
	p, bytes := r.newRuleSet(rules)
	if bytes <= r.freeBytes {
		r.ruleSets[string(key)] = p
		r.freeBytes -= bytes
	}
	return p
}

// typicalNotes is the initial capacity for what the rules of one cluster set.
const typicalNotes = 8

// Approximate bytes of a ruleSet: an entry, and a decoded object for a byte of its JSON.
const (
	sharedItemBytes = 384
	decodedBytes    = 10
)

func (r *Renderer) newRuleSet(rules []int) (p *ruleSet, bytes int) {
	p, bytes = &ruleSet{}, sharedItemBytes
	matching := map[atoll.ItemKey][]*overrides.CompiledRule{}
	for _, i := range rules {
		rule := &r.rules[i]
		p.expressions = append(p.expressions, rule.Expressions()...)
		for _, key := range rule.Items {
			matching[key] = append(matching[key], rule)
		}
	}
	if len(p.expressions) == 0 {
		p.variant = hashVariant(rules, nil, nil)
	}
	if r.autoscaled == nil {
		r.autoscaled = findAutoscaled(r.content)
	}
	kept := excludingRules(r.content, rules)
	p.items = make([]sharedItem, len(r.content.Items))
	for i := range r.content.Items {
		item, it := &r.content.Items[i], &p.items[i]
		it.item, it.rules, it.autoscaled, it.interpreters = item, matching[item.Key], r.autoscaled[item.Key], &r.interpreters
		it.hooked = r.hooked
		if by := kept[item.Key]; by != nil {
			it.exclusion = &overrides.Provenance{Item: item.Key, Policy: by.Policy, Rule: by.Index, Description: by.Description, Overrider: "notHere", Value: true}
		}
		for it.sharedRules < len(it.rules) && len(it.rules[it.sharedRules].Expressions()) == 0 {
			it.sharedRules++
		}
		bytes += it.estimateCachedBytes()
	}
	return p, bytes
}

// estimateCachedBytes returns about how many bytes the item's shared result keeps.
func (it *sharedItem) estimateCachedBytes() int {
	switch {
	case it.variesByCluster():
		return sharedItemBytes + decodedBytes*len(it.item.Object)
	case it.isUnchanged():
		return sharedItemBytes
	}
	return sharedItemBytes + len(it.item.Object)
}

// isUnchanged reports whether every cluster gets the item's object as it is.
func (it *sharedItem) isUnchanged() bool {
	return len(it.rules) == 0 && !it.variesByCluster() && !it.autoscaled && it.item.Treatment == nil
}

// variesByCluster returns whether clusters of one set of rules may have different results.
func (it *sharedItem) variesByCluster() bool {
	return it.sharedRules < len(it.rules) || it.item.Divided || it.item.ReplicaOverrides
}

// ensureResult returns the item's shared result, and computes it once.
func (it *sharedItem) ensureResult() *sharedResult {
	if it.result == nil {
		it.result = it.computeResult()
	}
	return it.result
}

func (it *sharedItem) computeResult() *sharedResult {
	b, o := &sharedResult{}, &overrides.ObjectPatcher{Item: it.item}
	if it.isUnchanged() {
		whole := it.newRenderedItem()
		whole.Object = it.item.Object
		whole = withHash(whole)
		b.complete = &whole
		return b
	}
	err := utiljson.Unmarshal(it.item.Object, &o.Object)
	if err != nil {
		err = refusal.WithReason(atoll.ReasonContentMalformed, fmt.Errorf("content is not an object: %w", err))
	} else if b.scriptedPath, _ = it.interpreters.ScriptedReplicasPath(&unstructured.Unstructured{Object: o.Object}); it.variesByCluster() {
		b.statedReplicas, b.statedOrdinals = overrides.StatedPlacementFields(o.Object)
	}
	if o.ScriptedPath = b.scriptedPath; err == nil {
		b.failedRule, err = o.ApplyRules(it.rules[:it.sharedRules])
	}
	if err == nil && it.variesByCluster() {
		b.obj, b.notes, b.emptiedMaps = o.Object, o.Notes, o.EmptiedMaps
		return b
	}
	whole := it.finishRendering(o, b, RenderInput{}, err)
	if b.complete = &whole; !whole.Failed() {
		b.notes = o.Notes
	}
	return b
}

// renderForCluster renders the item for one cluster. A panic becomes the item's error: one object
// must not end the hub, which would render it again at its next start.
func (it *sharedItem) renderForCluster(in RenderInput) (r atoll.RenderedItem, notes []overrides.Provenance, failed *atoll.Rule) {
	defer func() {
		if p := recover(); p != nil {
			r, notes, failed = it.newRenderedItem(), nil, it.firstAtomicRule()
			r.Error, r.ErrorReason = "rendering the object failed by a defect of Atoll, which deserves a report: "+panicorigin.DescribePanic(p), atoll.ReasonRenderPanicked
			r = withHash(r)
		}
	}()
	b := it.ensureResult()
	if b.complete != nil {
		return *b.complete, b.notes, b.failedRule
	}
	o := &overrides.ObjectPatcher{Item: it.item, Object: runtime.DeepCopyJSON(b.obj), Notes: slices.Grow(slices.Clone(b.notes), typicalNotes), Values: in.clusterValues, ScriptedPath: b.scriptedPath, EmptiedMaps: slices.Clip(b.emptiedMaps)}
	failed, err := o.ApplyRules(it.rules[it.sharedRules:])
	if r = it.finishRendering(o, b, in, err); !r.Failed() {
		notes = o.Notes
	}
	return r, notes, failed
}

// firstAtomicRule returns the first rule of the item that is atomic, or nil.
func (it *sharedItem) firstAtomicRule() *atoll.Rule {
	for _, r := range it.rules {
		if r != nil && r.Atomic {
			return r.Rule
		}
	}
	return nil
}

// newRenderedItem returns the item's result without an object.
func (it *sharedItem) newRenderedItem() atoll.RenderedItem {
	item := it.item
	return atoll.RenderedItem{
		Key: item.Key, APIVersion: item.APIVersion, UID: item.UID, Dependency: item.Dependency, ConflictResolution: item.Treatment.OwnResolution(),
		Recreate: item.Treatment.IsRecreated(), Wave: item.Treatment.StatedWave(), Hook: item.Treatment.StatedHook(),
	}
}

// finishRendering applies what the placement sets, and encodes the object. err is why the rules did
// not apply.
func (it *sharedItem) finishRendering(o *overrides.ObjectPatcher, b *sharedResult, in RenderInput, err error) atoll.RenderedItem {
	r := it.newRenderedItem()
	o.DropEmptiedMaps()
	if err == nil {
		r.SharedHash, err = it.hashShared(o.Object)
	}
	if err == nil {
		err = it.setAssignedReplicasAndOrdinals(o, b, in)
	}
	if err == nil && it.autoscaled {
		_, assigned := in.Assigned[it.item.Key.String()]
		r.MemberOwned = memberOwnedReplicas(o.Object, o.ScriptedPath, assigned || !it.item.Divided)
	}
	if err == nil && it.item.Treatment != nil {
		r.MemberOwned, err = withTreatment(r.MemberOwned, it.item.Treatment, o.Object)
	}
	if err == nil {
		r.Object, err = encodeObject(o.Object, len(it.item.Object)+len(it.item.Object)/4+64)
	}
	if err != nil {
		r.Object, r.MemberOwned, r.Error = nil, nil, err.Error()
		r.ErrorReason = refusal.ReasonOf(err, atoll.ReasonRuleNotApplicable)
		return withHash(r)
	}
	return it.addTreatment(r)
}

// addTreatment returns a rendered item with its hash, and with what older agents do not support of its treatment.
func (it *sharedItem) addTreatment(r atoll.RenderedItem) atoll.RenderedItem {
	if r.Observe = it.item.Treatment.Observation(); r.Observe != "" {
		r.Error = atoll.UnknownObservation
	}
	if r.ServiceAccount = it.item.Treatment.WritingServiceAccount(); r.ServiceAccount != "" {
		r.Error = atoll.UnknownServiceAccount
	}
	r = withHash(r)
	if r.Assessment = it.item.Treatment.StatedAssessment(); r.Assessment != nil {
		r.Error = cmp.Or(r.Error, atoll.UnknownAssessment)
	}
	return r
}

// hashShared returns the hash of the object before the cluster's share of replicas; empty where it is not needed.
func (it *sharedItem) hashShared(object map[string]any) (string, error) {
	if !it.hooked || !it.variesByCluster() {
		return "", nil
	}
	text, err := encodeObject(object, 0)
	return atoll.HashParts(text), err
}

// setAssignedReplicasAndOrdinals sets the cluster's share of a divided item: its replicas, and where its ordinals begin.
func (it *sharedItem) setAssignedReplicasAndOrdinals(o *overrides.ObjectPatcher, b *sharedResult, in RenderInput) (err error) {
	if !it.item.Divided {
		return nil
	}
	key := it.item.Key.String()
	if _, assigned := in.Assigned[key]; assigned || !it.autoscaled {
		err = o.AssignReplicas(in.Assigned, b.statedReplicas, it.interpreters)
	}
	if start, ranged := in.Ordinals[key]; err == nil && ranged {
		err = o.SetOrdinalsStart(start, b.statedOrdinals)
	}
	if err != nil {
		return refusal.WithReason(atoll.ReasonReplicasNotSet, err)
	}
	return nil
}
