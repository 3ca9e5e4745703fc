package bind

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

// selections are what items depend on by labels, with the templates that match. A kind is
// listed, in one namespace, when the first Bundle asks for a selection; from then on each
// template that changes is held against the selections that may mean it. All methods may be
// called concurrently.
type selections struct {
	mu  sync.Mutex
	all map[atoll.Selection]*selected
	at  map[anchor]map[atoll.Selection]bool
	of  map[claim.BundleID][]atoll.Selection
	in  map[atoll.ItemKey]map[atoll.Selection]bool // by keys that matched
}

// selected is one selection.
type selected struct {
	labels labels.Selector
	anchor anchor
	// keys of templates that matched when they were last heard of.
	keys  map[atoll.ItemKey]bool
	users map[claim.BundleID]bool
}

// anchor is where selections are looked up for a template: by its kind and namespace, and
// by one label that they ask for; an empty one where they ask for no single value.
type anchor struct {
	kind             schema.GroupKind
	namespace, label string
}

func newSelections() *selections {
	return &selections{
		all: map[atoll.Selection]*selected{}, at: map[anchor]map[atoll.Selection]bool{},
		of: map[claim.BundleID][]atoll.Selection{}, in: map[atoll.ItemKey]map[atoll.Selection]bool{},
	}
}

func anchorOf(s atoll.Selection, l labels.Selector) anchor {
	a := anchor{kind: schema.GroupKind{Group: s.Group, Kind: s.Kind}, namespace: s.Namespace}
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

// find the templates that match now, for a Bundle that from now on hears of those that come.
func (x *selections) find(s atoll.Selection, id claim.BundleID, templates Templates) []atoll.ItemKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	one := x.all[s]
	if one == nil {
		l := claim.Labels(s)
		one = &selected{labels: l, anchor: anchorOf(s, l), keys: map[atoll.ItemKey]bool{}, users: map[claim.BundleID]bool{}}
		x.all[s] = one
		include(x.at, one.anchor, s)
		for _, t := range templates.OfKind(one.anchor.kind, s.Namespace) {
			if l.Matches(labels.Set(t.GetLabels())) {
				x.note(s, claim.KeyOf(t))
			}
		}
	}
	if !one.users[id] {
		one.users[id] = true
		x.of[id] = append(x.of[id], s)
	}
	out := make([]atoll.ItemKey, 0, len(one.keys))
	for key := range one.keys {
		// What was heard of last may be older than the table.
		if t, ok := templates.Get(key); ok && one.labels.Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}

func (x *selections) note(s atoll.Selection, key atoll.ItemKey) {
	x.all[s].keys[key] = true
	include(x.in, key, s)
}

// hear of a template that came or changed, and tell which Bundles depend on it by labels.
func (x *selections) hear(t *unstructured.Unstructured) []claim.BundleID {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.all) == 0 {
		return nil
	}
	key, users := claim.KeyOf(t), map[claim.BundleID]bool{}
	x.forget(key)
	for _, s := range x.matching(key, t.GetLabels()) {
		x.note(s, key)
		maps.Copy(users, x.all[s].users)
	}
	return slices.SortedFunc(maps.Keys(users), claim.BundleID.Compare)
}

// gone is a template that a user deleted.
func (x *selections) gone(key atoll.ItemKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(key)
}

func (x *selections) forget(key atoll.ItemKey) {
	for s := range x.in[key] {
		delete(x.all[s].keys, key)
	}
	delete(x.in, key)
}

// mean tells whether a Bundle depends by labels on what has these.
func (x *selections) mean(key atoll.ItemKey, has map[string]string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.matching(key, has)) > 0
}

func (x *selections) matching(key atoll.ItemKey, has map[string]string) (out []atoll.Selection) {
	look := func(label string) {
		for s := range x.at[anchor{claim.GroupKind(key), key.Namespace, label}] {
			if x.all[s].labels.Matches(labels.Set(has)) {
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

// uses notes all selections of a Bundle, each of which it has found.
func (x *selections) uses(id claim.BundleID, now []atoll.Selection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.of[id] {
		one := x.all[s]
		if one == nil || slices.Contains(now, s) {
			continue
		}
		if delete(one.users, id); len(one.users) > 0 {
			continue
		}
		delete(x.all, s)
		exclude(x.at, one.anchor, s)
		for key := range one.keys {
			exclude(x.in, key, s)
		}
	}
	if x.of[id] = slices.Clone(now); len(now) == 0 {
		delete(x.of, id)
	}
}

func (x *selections) clone() *selections {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := newSelections()
	for s, one := range x.all {
		out.all[s] = &selected{labels: one.labels, anchor: one.anchor, keys: maps.Clone(one.keys), users: maps.Clone(one.users)}
	}
	deepCopy(out.at, x.at)
	deepCopy(out.in, x.in)
	for id, list := range x.of {
		out.of[id] = slices.Clone(list)
	}
	return out
}
