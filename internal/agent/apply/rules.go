package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
)

// Rules of feedback, health and completion come with the items whose objects they judge.

// setRules compiles the rules of a Bundle's items. Rules that stay as they are, are not compiled again. The content
// that is kept of an item keeps its rules. The caller holds mu.
func (e *MemberApplier) setRules(h *ownership.BundleHolding) {
	before, now := e.rules[h.Manifest.Bundle], map[atoll.ItemKey]*assess.Rules{}
	add := func(items []atoll.RenderedItem) {
		for i := range items {
			it := &items[i]
			if it.Assessment == nil || it.Key.IsSecret() || now[it.Key] != nil {
				continue
			}
			if now[it.Key] = before[it.Key]; now[it.Key].ID() != it.Assessment.ID() {
				now[it.Key] = assess.CompileRules(it.Assessment)
			}
		}
	}
	add(h.Manifest.Items)
	add(h.Kept)
	delete(e.rules, h.Manifest.Bundle)
	if len(now) > 0 {
		e.rules[h.Manifest.Bundle] = now
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
		e.rejudge(key)
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if now[key] != nil && observe.NeedsOnlyMetadata(gk.Group, gk.Kind) && !kinds[gk] {
			kinds[gk] = true
			whole = append(whole, gk)
		}
	}
	return whole
}

// rejudge looks again at the key's object. The caller holds mu.
func (e *MemberApplier) rejudge(key atoll.ItemKey) {
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
		e.rejudge(key)
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
