package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
)

// Rules of feedback, health and completion come with the items whose objects they judge.

// compileRules returns the rules of a Bundle's items. The content that is kept of an item keeps its rules. It takes up to
// seconds, so that the caller does not hold mu.
func compileRules(h *ownership.BundleHolding) map[atoll.ItemKey]*assess.Rules {
	out, compiled := map[atoll.ItemKey]*assess.Rules{}, map[*atoll.Assessment]*assess.Rules{} // items share assessments
	for _, items := range [][]atoll.RenderedItem{h.Manifest.Items, h.Kept} {
		for i := range items {
			if it := &items[i]; it.Assessment != nil && !it.Key.IsSecret() && out[it.Key] == nil {
				if compiled[it.Assessment] == nil {
					compiled[it.Assessment] = assess.CompileRules(it.Assessment)
				}
				out[it.Key] = compiled[it.Assessment]
			}
		}
	}
	return out
}

// setRules takes the rules of a Bundle's items. The caller holds mu.
func (e *MemberApplier) setRules(bundle string, rules map[atoll.ItemKey]*assess.Rules) {
	delete(e.rules, bundle)
	if len(rules) > 0 {
		e.rules[bundle] = rules
	}
}

// rejudgeOnRuleChange looks again at each object of a Bundle that other rules judge than before. It returns the kinds
// of which whole objects are to be watched from now on. The caller holds mu.
func (e *MemberApplier) rejudgeOnRuleChange(bundle string, before map[atoll.ItemKey]*assess.Rules) (whole []schema.GroupKind) {
	now := e.rules[bundle]
	changed := map[atoll.ItemKey]bool{}
	for key, rules := range before {
		changed[key] = rules.ID() != now[key].ID()
	}
	for key, rules := range now {
		changed[key] = rules.ID() != before[key].ID()
	}
	kinds := map[schema.GroupKind]bool{}
	for key, other := range changed {
		if !other {
			continue
		}
		e.dropCompletion(bundle, key, before[key], now[key])
		e.rejudgeObject(key)
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if now[key] != nil && observe.NeedsOnlyMetadata(gk.Group, gk.Kind) && !kinds[gk] {
			kinds[gk] = true
			whole = append(whole, gk)
		}
	}
	return whole
}

// dropCompletion drops the recorded completion of an object that exists, where another expression decides
// it from now on. The caller holds mu.
func (e *MemberApplier) dropCompletion(bundle string, key atoll.ItemKey, before, now *assess.Rules) {
	if r, known := e.book.Record(key); known && r.Owner == bundle && before.CompletionText() != now.CompletionText() {
		e.book.RecordCompletion(key, r.UID, false)
	}
}

// rejudgeObject looks again at the key's object. The caller holds mu.
func (e *MemberApplier) rejudgeObject(key atoll.ItemKey) {
	e.markObservationStale(key)
	if r, _ := e.book.Record(key); r.UID != "" { // else it is judged when it is made
		e.ensureTask(key).judge = true
		e.markDue(key)
	}
}

// setForbidden notes why the member's administrator denies the key's object; empty: it is permitted. Rules do not
// read what is denied, so that the object is judged again where that changes. The caller holds mu.
func (e *MemberApplier) setForbidden(key atoll.ItemKey, why string) {
	changed := (e.forbidden[key] == "") != (why == "")
	if e.forbidden[key] = why; why == "" {
		delete(e.forbidden, key)
	}
	r, _ := e.book.Record(key)
	observer, _ := e.book.ObservedItem(key)
	if changed && (e.rules[r.Owner][key] != nil || e.rules[observer][key] != nil) {
		e.rejudgeObject(key)
	}
}

// rulesOf returns the rules that judge the object of a Bundle now; nil without any, and for an object that is denied.
// The caller holds mu.
func (e *MemberApplier) rulesOf(bundle string, key atoll.ItemKey) *assess.Rules {
	if e.forbidden[key] != "" {
		return nil
	}
	return e.rules[bundle][key]
}

// isKindRuled reports whether rules judge an object of the kind. The caller holds mu.
func (e *MemberApplier) isKindRuled(gk schema.GroupKind) bool {
	for _, rules := range e.rules {
		for key := range rules {
			if key.Group == gk.Group && key.Kind == gk.Kind {
				return true
			}
		}
	}
	return false
}

// JudgesOf returns what judges the object of a Bundle.
func (e *MemberApplier) JudgesOf(bundle string, key atoll.ItemKey) observe.Judges {
	e.mu.Lock()
	defer e.mu.Unlock()
	return observe.Judges{Interpreters: e.interpreters[bundle], Rules: e.rulesOf(bundle, key)}
}
