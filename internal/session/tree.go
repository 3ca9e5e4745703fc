package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	fanOut = 16
	// leafEntries is how many bundles a range holds at most to be listed rather
	// than divided.
	leafEntries = 16
	// prefixLimit is the length of a whole hashed UID.
	prefixLimit = 32
	digestBytes = 16
	hexDigits   = "0123456789abcdef"
)

// Entry is what one end believes the agent to hold of a bundle.
type Entry struct {
	Bundle     string
	Generation int64
	// Content hash of the manifest; on the hub's side empty when it is not known.
	Content string
	// Status is StatusHash of the last report; empty without one.
	Status string
}

// Tree is a set of entries with digests over ranges of hashed bundle UIDs. The
// digest of a range does not depend on the order in which entries came. The zero
// Tree is empty.
type Tree struct {
	nodes  map[string]node
	sum    digest
	sorted []node // by key; nil when nodes changed since
}

type digest [digestBytes]byte

func (d *digest) add(o digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

type node struct {
	key    string
	digest digest
	entry  Entry
}

// NewTree of entries; of two for one bundle the later counts.
func NewTree(entries []Entry) *Tree {
	t := &Tree{nodes: make(map[string]node, len(entries))}
	for _, e := range entries {
		t.Put(e)
	}
	return t
}

// Put an entry in place of the bundle's former one.
func (t *Tree) Put(e Entry) {
	t.Delete(e.Bundle)
	if t.nodes == nil {
		t.nodes = map[string]node{}
	}
	n := node{key: keyOf(e.Bundle), digest: digestOf(e), entry: e}
	t.nodes[e.Bundle] = n
	t.sum.add(n.digest)
	t.sorted = nil
}

// Delete the bundle's entry, if there is one.
func (t *Tree) Delete(bundle string) {
	if n, ok := t.nodes[bundle]; ok {
		delete(t.nodes, bundle)
		t.sum.add(n.digest)
		t.sorted = nil
	}
}

// Get the bundle's entry.
func (t *Tree) Get(bundle string) (Entry, bool) {
	n, ok := t.nodes[bundle]
	return n.entry, ok
}

// Len is the number of entries.
func (t *Tree) Len() int { return len(t.nodes) }

// Entries lists all in the order of their hashed UIDs.
func (t *Tree) Entries() []Entry {
	out := make([]Entry, 0, len(t.nodes))
	for _, n := range t.order() {
		out = append(out, n.entry)
	}
	return out
}

// Digest over everything: equal digests are equal sets.
func (t *Tree) Digest() []byte { return slices.Clone(t.sum[:]) }

// Answer gives the ranges that a query asks for. Prefixes that are none are left
// out.
func (t *Tree) Answer(q *pb.DigestQuery) *pb.Digest {
	out := &pb.Digest{}
	for _, p := range q.GetPrefixes() {
		if validPrefix(p) {
			out.Ranges = append(out.Ranges, t.answer(p))
		}
	}
	return out
}

func (t *Tree) answer(prefix string) *pb.Range {
	within := t.within(prefix)
	r := &pb.Range{Prefix: prefix}
	if len(within) <= leafEntries || len(prefix) == prefixLimit {
		for _, n := range within {
			e := n.entry
			r.Entries = append(r.Entries, &pb.Entry{Bundle: e.Bundle, Generation: e.Generation, Content: e.Content, Status: e.Status})
		}
		return r
	}
	for _, d := range children(within, len(prefix)) {
		r.Children = append(r.Children, d[:])
	}
	return r
}

// Difference between two ends about one bundle; an end that has no entry is nil.
type Difference struct {
	Ours, Theirs *Entry
}

// Bundle that the difference is about.
func (d Difference) Bundle() string {
	if d.Ours != nil {
		return d.Ours.Bundle
	}
	return d.Theirs.Bundle
}

// Compare a range of the other end with our own: which child ranges must be asked
// for, and where listed entries differ. Entries outside of the range are ignored.
func (t *Tree) Compare(r *pb.Range) (ask []string, differ []Difference) {
	if !validPrefix(r.GetPrefix()) {
		return nil, nil
	}
	within := t.within(r.GetPrefix())
	if len(r.GetChildren()) == fanOut && len(r.GetPrefix()) < prefixLimit {
		ours := children(within, len(r.GetPrefix()))
		for i, theirs := range r.GetChildren() {
			if string(theirs) != string(ours[i][:]) {
				ask = append(ask, r.GetPrefix()+hexDigits[i:i+1])
			}
		}
		return ask, nil
	}
	theirs := map[string]Entry{}
	for _, e := range r.GetEntries() {
		if strings.HasPrefix(keyOf(e.GetBundle()), r.GetPrefix()) {
			theirs[e.GetBundle()] = Entry{e.GetBundle(), e.GetGeneration(), e.GetContent(), e.GetStatus()}
		}
	}
	for _, n := range within {
		ours := n.entry
		d := Difference{Ours: &ours}
		if e, ok := theirs[ours.Bundle]; ok {
			delete(theirs, ours.Bundle)
			if e == ours {
				continue
			}
			d.Theirs = &e
		}
		differ = append(differ, d)
	}
	for _, bundle := range slices.Sorted(maps.Keys(theirs)) {
		e := theirs[bundle]
		differ = append(differ, Difference{Theirs: &e})
	}
	return nil, differ
}

// within lists the nodes whose key begins with prefix, by key.
func (t *Tree) within(prefix string) []node {
	all := t.order()
	from, _ := slices.BinarySearchFunc(all, prefix, func(n node, p string) int { return strings.Compare(n.key, p) })
	to := from + len(all[from:])
	if prefix != "" {
		to, _ = slices.BinarySearchFunc(all, prefix+"g", func(n node, p string) int { return strings.Compare(n.key, p) })
	}
	return all[from:to]
}

func (t *Tree) order() []node {
	if t.sorted == nil && len(t.nodes) > 0 {
		t.sorted = slices.SortedFunc(maps.Values(t.nodes), func(a, b node) int { return strings.Compare(a.key, b.key) })
	}
	return t.sorted
}

// children digests the 16 ranges below a prefix of that length.
func children(within []node, depth int) [fanOut]digest {
	var out [fanOut]digest
	for _, n := range within {
		out[strings.IndexByte(hexDigits, n.key[depth])].add(n.digest)
	}
	return out
}

func validPrefix(p string) bool {
	return len(p) <= prefixLimit && strings.Trim(p, hexDigits) == ""
}

func keyOf(bundle string) string {
	h := sha256.Sum256([]byte(bundle))
	return hex.EncodeToString(h[:prefixLimit/2])
}

func digestOf(e Entry) digest {
	var b []byte
	for _, s := range []string{e.Bundle, e.Content, e.Status} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, e.Generation)
	h := sha256.Sum256(b)
	return digest(h[:digestBytes])
}
