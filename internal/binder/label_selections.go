package binder

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

// labelSelections holds what items depend on by labels, with the templates that match. The first
// Bundle that needs a selection lists the kind once, in one namespace. Later each changed
// template is matched against the selections of its anchors. All methods may be called
// concurrently.
type labelSelections struct {
	mu           sync.Mutex
	states       map[atoll.Selection]*selectionState
	byAnchor     map[selectionAnchor]map[atoll.Selection]bool
	byBundle     map[policymatch.BundleID][]atoll.Selection
	byMatchedKey map[atoll.ItemKey]map[atoll.Selection]bool // by keys that match
}

// selectionState is one selection with its matches and its Bundles.
type selectionState struct {
	selector labels.Selector
	anchor   selectionAnchor
	// keys of templates that matched at their last change.
	keys    map[atoll.ItemKey]bool
	bundles map[policymatch.BundleID]bool
}

// selectionAnchor is the index key of a selection: kind, namespace and one label that it
// requires. label is empty when the selection requires no single value.
type selectionAnchor struct {
	kind             schema.GroupKind
	namespace, label string
}

func newLabelSelections() *labelSelections {
	return &labelSelections{
		states: map[atoll.Selection]*selectionState{}, byAnchor: map[selectionAnchor]map[atoll.Selection]bool{},
		byBundle: map[policymatch.BundleID][]atoll.Selection{}, byMatchedKey: map[atoll.ItemKey]map[atoll.Selection]bool{},
	}
}

func anchorOf(s atoll.Selection, l labels.Selector) selectionAnchor {
	a := selectionAnchor{kind: schema.GroupKind{Group: s.Group, Kind: s.Kind}, namespace: s.Namespace}
	requirements, _ := l.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				a.label = r.Key() + "=" + values[0]
				return a
			}
		}
	}
	return a
}

// findMatching returns the templates that match now. Later matches touch the Bundle.
func (x *labelSelections) findMatching(s atoll.Selection, id policymatch.BundleID, templates Templates) []atoll.ItemKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	one := x.states[s]
	if one == nil {
		l := bundlecontent.ParseSelection(s)
		one = &selectionState{selector: l, anchor: anchorOf(s, l), keys: map[atoll.ItemKey]bool{}, bundles: map[policymatch.BundleID]bool{}}
		x.states[s] = one
		addToSet(x.byAnchor, one.anchor, s)
		for _, t := range templates.ListOfKind(one.anchor.kind, s.Namespace) {
			if l.Matches(labels.Set(t.GetLabels())) {
				x.addMatch(s, policymatch.ItemKeyOf(t))
			}
		}
	}
	if !one.bundles[id] {
		one.bundles[id] = true
		x.byBundle[id] = append(x.byBundle[id], s)
	}
	out := make([]atoll.ItemKey, 0, len(one.keys))
	for key := range one.keys {
		// The last event can be older than the table.
		if t, ok := templates.Get(key); ok && one.selector.Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}

func (x *labelSelections) addMatch(s atoll.Selection, key atoll.ItemKey) {
	x.states[s].keys[key] = true
	addToSet(x.byMatchedKey, key, s)
}

// templateChanged updates the matches of a template, and returns the Bundles that depend on it
// by labels.
func (x *labelSelections) templateChanged(t *unstructured.Unstructured) []policymatch.BundleID {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.states) == 0 {
		return nil
	}
	key, users := policymatch.ItemKeyOf(t), map[policymatch.BundleID]bool{}
	x.removeMatches(key)
	for _, s := range x.matchingSelections(key, t.GetLabels()) {
		x.addMatch(s, key)
		maps.Copy(users, x.states[s].bundles)
	}
	return slices.SortedFunc(maps.Keys(users), policymatch.BundleID.Compare)
}

// templateDeleted removes the matches of a deleted template.
func (x *labelSelections) templateDeleted(key atoll.ItemKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeMatches(key)
}

func (x *labelSelections) removeMatches(key atoll.ItemKey) {
	for s := range x.byMatchedKey[key] {
		delete(x.states[s].keys, key)
	}
	delete(x.byMatchedKey, key)
}

// isSelected reports whether a Bundle depends by labels on an object with these labels.
func (x *labelSelections) isSelected(key atoll.ItemKey, has map[string]string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.matchingSelections(key, has)) > 0
}

func (x *labelSelections) matchingSelections(key atoll.ItemKey, has map[string]string) (out []atoll.Selection) {
	look := func(label string) {
		for s := range x.byAnchor[selectionAnchor{policymatch.GroupKindOf(key), key.Namespace, label}] {
			if x.states[s].selector.Matches(labels.Set(has)) {
				out = append(out, s)
			}
		}
	}
	look("")
	for k, v := range has {
		look(k + "=" + v)
	}
	return out
}

// setBundleSelections replaces the selections of a Bundle, each of which went through
// findMatching.
func (x *labelSelections) setBundleSelections(id policymatch.BundleID, now []atoll.Selection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.byBundle[id] {
		one := x.states[s]
		if one == nil || slices.Contains(now, s) {
			continue
		}
		if delete(one.bundles, id); len(one.bundles) > 0 {
			continue
		}
		delete(x.states, s)
		removeFromSet(x.byAnchor, one.anchor, s)
		for key := range one.keys {
			removeFromSet(x.byMatchedKey, key, s)
		}
	}
	if x.byBundle[id] = slices.Clone(now); len(now) == 0 {
		delete(x.byBundle, id)
	}
}

func (x *labelSelections) clone() *labelSelections {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := newLabelSelections()
	for s, one := range x.states {
		out.states[s] = &selectionState{selector: one.selector, anchor: one.anchor, keys: maps.Clone(one.keys), bundles: maps.Clone(one.bundles)}
	}
	cloneSets(out.byAnchor, x.byAnchor)
	cloneSets(out.byMatchedKey, x.byMatchedKey)
	for id, list := range x.byBundle {
		out.byBundle[id] = slices.Clone(list)
	}
	return out
}
