package atoll

import (
	"encoding/json"
	"iter"
	"slices"
)

// HashedParts returns what of the manifest has a hash of its own, by which it is sent once and
// looked up: the object of each item and the spec of each interpreter, in that order. The
// yielded part may be replaced, and is empty where the manifest is sent without it. The hash is
// empty where nothing belongs: an item that could not be rendered has no object.
func (m *Manifest) HashedParts() iter.Seq2[string, *json.RawMessage] {
	return func(yield func(string, *json.RawMessage) bool) {
		for i := range m.Items {
			it := &m.Items[i]
			hash := it.Hash
			if it.Failed() {
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

// FindPart returns the part of that hash; false where the manifest goes without it.
func (m *Manifest) FindPart(hash string) (json.RawMessage, bool) {
	for h, part := range m.HashedParts() {
		if h == hash && len(*part) > 0 {
			return *part, true
		}
	}
	return nil, false
}

// WithoutParts is the manifest without its Parts. Those of m stay, and can be put into it.
func (m *Manifest) WithoutParts() Manifest {
	out := *m
	out.Items, out.Interpreters = slices.Clone(m.Items), slices.Clone(m.Interpreters)
	for _, part := range out.HashedParts() {
		*part = nil
	}
	return out
}
