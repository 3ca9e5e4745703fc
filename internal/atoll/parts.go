package atoll

import (
	"encoding/json"
	"iter"
	"slices"
)

// Parts gives what of the manifest has a hash of its own, by which it is sent once and looked
// up: the object of each item and the spec of each interpreter, in that order. What is yielded
// may be replaced, and is empty where the manifest goes without it. The hash is empty where
// nothing belongs: an item that could not be rendered has no object.
func (m *Manifest) Parts() iter.Seq2[string, *json.RawMessage] {
	return func(yield func(string, *json.RawMessage) bool) {
		for i := range m.Items {
			it := &m.Items[i]
			hash := it.Hash
			if it.Error != "" {
				hash = ""
			}
			if !yield(hash, &it.Object) {
				return
			}
		}
		for i := range m.Interpreters {
			if x := &m.Interpreters[i]; !yield(x.Hash, &x.Spec) {
				return
			}
		}
	}
}

// Part of that hash; false where the manifest goes without it.
func (m *Manifest) Part(hash string) (json.RawMessage, bool) {
	for h, part := range m.Parts() {
		if h == hash && len(*part) > 0 {
			return *part, true
		}
	}
	return nil, false
}

// Bare is the manifest without its Parts. Those of m stay, and can be put into it.
func (m *Manifest) Bare() Manifest {
	out := *m
	out.Items, out.Interpreters = slices.Clone(m.Items), slices.Clone(m.Interpreters)
	for _, part := range out.Parts() {
		*part = nil
	}
	return out
}
