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
	treeFanOut = 16
	// leafEntries is how many bundles a range may hold to be listed and not divided.
	leafEntries = 16
	// prefixLimit is the length of a whole hashed UID.
	prefixLimit = 32
	digestBytes = 16
	hexDigits   = "0123456789abcdef"
)

// Entry describes what an agent holds of a bundle, as one side of the session sees it.
type Entry struct {
	Bundle     string
	Generation int64
	// Content hash of the manifest; on the hub's side empty when it is unknown.
	Content string
	// Status is StatusHash of the last report; empty without one.
	Status string
}

// DigestTree is a set of entries with digests over ranges of hashed bundle UIDs. The digest of a
// range does not depend on the order of insertion. The zero Tree is empty.
type DigestTree struct {
	nodes  map[string]node
	sum    digest
	sorted []node // by key; nil when nodes changed since
}

type digest [digestBytes]byte

func (d *digest) addDigest(o digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

type node struct {
	key    string
	digest digest
	entry  Entry
}

// NewTree returns a Tree of the entries. The last of several entries of one bundle counts.
func NewTree(entries []Entry) *DigestTree {
	t := &DigestTree{nodes: make(map[string]node, len(entries))}
	for _, e := range entries {
		t.Put(e)
	}
	return t
}

// Put sets the bundle's entry.
func (t *DigestTree) Put(e Entry) {
	t.Delete(e.Bundle)
	if t.nodes == nil {
		t.nodes = map[string]node{}
	}
	n := node{key: hashedKey(e.Bundle), digest: entryDigest(e), entry: e}
	t.nodes[e.Bundle] = n
	t.sum.addDigest(n.digest)
	t.sorted = nil
}

// Delete removes the bundle's entry, if there is one.
func (t *DigestTree) Delete(bundle string) {
	if n, ok := t.nodes[bundle]; ok {
		delete(t.nodes, bundle)
		t.sum.addDigest(n.digest)
		t.sorted = nil
	}
}

// Get returns the bundle's entry.
func (t *DigestTree) Get(bundle string) (Entry, bool) {
	n, ok := t.nodes[bundle]
	return n.entry, ok
}

// Len is the number of entries.
func (t *DigestTree) Len() int { return len(t.nodes) }

// RootDigest returns the digest over all entries. Equal digests mean equal sets.
func (t *DigestTree) RootDigest() []byte { return slices.Clone(t.sum[:]) }

// AnswerQuery returns the ranges of a query. Invalid prefixes are left out.
func (t *DigestTree) AnswerQuery(q *pb.DigestQuery) *pb.Digest {
	out := &pb.Digest{}
	for _, p := range q.GetPrefixes() {
		if isValidDigestPrefix(p) {
			out.Ranges = append(out.Ranges, t.answerRange(p))
		}
	}
	return out
}

func (t *DigestTree) answerRange(prefix string) *pb.Range {
	within := t.nodesWithin(prefix)
	r := &pb.Range{Prefix: prefix}
	if len(within) <= leafEntries || len(prefix) == prefixLimit {
		for _, n := range within {
			e := n.entry
			r.Entries = append(r.Entries, &pb.Entry{Bundle: e.Bundle, Generation: e.Generation, Content: e.Content, Status: e.Status})
		}
		return r
	}
	for _, d := range childDigests(within, len(prefix)) {
		r.Children = append(r.Children, d[:])
	}
	return r
}

// Difference is a bundle whose entries differ between the two sides. A side without an entry is
// nil.
type Difference struct {
	Ours, Theirs *Entry
}

// BundleUID returns the UID of the bundle that differs.
func (d Difference) BundleUID() string {
	if d.Ours != nil {
		return d.Ours.Bundle
	}
	return d.Theirs.Bundle
}

// CompareRange compares a range of the other end with our own. It returns the child ranges
// that must be queried, and where listed entries differ. Entries outside of the range are
// ignored.
func (t *DigestTree) CompareRange(r *pb.Range) (ask []string, differ []Difference) {
	if !isValidDigestPrefix(r.GetPrefix()) {
		return nil, nil
	}
	within := t.nodesWithin(r.GetPrefix())
	if len(r.GetChildren()) == treeFanOut && len(r.GetPrefix()) < prefixLimit {
		ours := childDigests(within, len(r.GetPrefix()))
		for i, theirs := range r.GetChildren() {
			if string(theirs) != string(ours[i][:]) {
				ask = append(ask, r.GetPrefix()+hexDigits[i:i+1])
			}
		}
		return ask, nil
	}
	theirs := map[string]Entry{}
	for _, e := range r.GetEntries() {
		if strings.HasPrefix(hashedKey(e.GetBundle()), r.GetPrefix()) {
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

// nodesWithin lists the nodes whose key begins with prefix, by key.
func (t *DigestTree) nodesWithin(prefix string) []node {
	all := t.sortedNodes()
	from, _ := slices.BinarySearchFunc(all, prefix, func(n node, p string) int { return strings.Compare(n.key, p) })
	to := from + len(all[from:])
	if prefix != "" {
		to, _ = slices.BinarySearchFunc(all, prefix+"g", func(n node, p string) int { return strings.Compare(n.key, p) })
	}
	return all[from:to]
}

func (t *DigestTree) sortedNodes() []node {
	if t.sorted == nil && len(t.nodes) > 0 {
		t.sorted = slices.SortedFunc(maps.Values(t.nodes), func(a, b node) int { return strings.Compare(a.key, b.key) })
	}
	return t.sorted
}

// childDigests returns the digests of the 16 ranges below a prefix of that length.
func childDigests(within []node, depth int) [treeFanOut]digest {
	var out [treeFanOut]digest
	for _, n := range within {
		out[strings.IndexByte(hexDigits, n.key[depth])].addDigest(n.digest)
	}
	return out
}

func isValidDigestPrefix(p string) bool {
	return len(p) <= prefixLimit && strings.Trim(p, hexDigits) == ""
}

func hashedKey(bundle string) string {
	h := sha256.Sum256([]byte(bundle))
	return hex.EncodeToString(h[:prefixLimit/2])
}

func entryDigest(e Entry) digest {
	var b []byte
	for _, s := range []string{e.Bundle, e.Content, e.Status} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, e.Generation)
	h := sha256.Sum256(b)
	return digest(h[:digestBytes])
}
