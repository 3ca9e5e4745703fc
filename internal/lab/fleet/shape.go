package fleet

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
)

// mood is how the imagined member finds a Bundle.
type mood uint8

// The moods.
const (
	moodNone mood = iota
	moodProgressing
	moodReady
	moodDegraded
	moods
)

// shape is a manifest as far as an imagined member keeps it. All agents that hold
// the same content share it.
type shape struct {
	bundle, content   string
	namespace         string
	remove            bool
	deletedNamespaces []string
	tombstones        []atoll.Tombstone
	items             []part
	// listed items, and namespaces that they are in.
	listed     map[atoll.ItemKey]bool
	namespaces map[string]bool

	holders int // agents that hold it; guarded by the table

	mu     sync.Mutex
	hashes map[telling][16]byte
}

// telling is what the hash of a plain status depends on.
type telling struct {
	generation int64
	mood       mood
}

// part is one item of a shape.
type part struct {
	key   atoll.ItemKey
	hash  string
	error string
	seen  *sight
}

// sight is what an imagined member shows of an object, by mood. Items of equal hash
// share it.
type sight struct {
	views   [moods]view
	holders int
	mark    uint32 // of the object (MarkOf)
	bytes   uint64 // hash of the object as it came
}

type view struct {
	health    atoll.Health
	why, text string
	reflected json.RawMessage
	failed    bool // it cannot even be applied
}

// shapes is the table of what all members of a process hold.
type shapes struct {
	mu     sync.Mutex
	byKey  map[[2]string]*shape // by bundle and content
	sights map[string]*sight    // by hash
	seed   maphash.Seed
}

func newShapes() *shapes {
	return &shapes{byKey: map[[2]string]*shape{}, sights: map[string]*sight{}, seed: maphash.MakeSeed()}
}

// hold gives the manifest's shape, and the mark of the objects that came with it; every
// call is to be answered by one of release.
func (t *shapes) hold(m *atoll.Manifest) (*shape, uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{m.Bundle, m.Content}
	s := t.byKey[key]
	if s == nil {
		s = t.make(m)
		t.byKey[[2]string{s.bundle, s.content}] = s
	}
	s.holders++
	return s, t.markOf(m)
}

// markOf the manifest's items as they came, not as the hub calls them: agents share what
// has the same hashes, and those are what the hub says. The caller holds mu.
func (t *shapes) markOf(m *atoll.Manifest) (sum uint32) {
	for i := range m.Items {
		it := &m.Items[i]
		seen := t.sights[it.Hash]
		switch {
		case seen != nil && (bytes.Equal(it.Object, held) || maphash.Bytes(t.seed, it.Object) == seen.bytes):
			sum += seen.mark
		default:
			sum += MarkOf(it.Object)
		}
	}
	return sum
}

func (t *shapes) make(m *atoll.Manifest) *shape {
	s := &shape{
		bundle: strings.Clone(m.Bundle), content: strings.Clone(m.Content), namespace: m.Namespace, remove: m.Remove,
		deletedNamespaces: m.DeletedNamespaces, tombstones: slices.Clone(m.Tombstones),
		listed: map[atoll.ItemKey]bool{}, namespaces: map[string]bool{},
	}
	for i := range m.Items {
		it := &m.Items[i]
		p := part{key: it.Key, hash: it.Hash, error: it.Error}
		if p.seen = t.sights[it.Hash]; p.seen == nil {
			p.seen = imagine(it)
			p.seen.bytes = maphash.Bytes(t.seed, it.Object)
			t.sights[it.Hash] = p.seen
		}
		p.seen.holders++
		s.items = append(s.items, p)
		s.listed[it.Key] = true
		s.namespaces[it.Key.Namespace] = true
	}
	return s
}

// release a shape that one agent holds no longer.
func (t *shapes) release(s *shape) {
	if s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.holders--; s.holders > 0 {
		return
	}
	delete(t.byKey, [2]string{s.bundle, s.content})
	for _, p := range s.items {
		if p.seen.holders--; p.seen.holders == 0 {
			delete(t.sights, p.hash)
		}
	}
}

// hashesMost bounds what a shape remembers of them: old generations.
const hashesMost = 64

// hash of a status of the shape (session.StatusHash). Agents that hold the same report
// the same, unless there is something to remove.
func (s *shape) hash(h *holding, st *atoll.RowStatus) (out [16]byte) {
	t := telling{h.generation, h.mood}
	plain := !s.remove && len(s.tombstones) == 0
	if plain {
		s.mu.Lock()
		defer s.mu.Unlock()
		if known, ok := s.hashes[t]; ok {
			return known
		}
	}
	_, _ = hex.Decode(out[:], []byte(session.StatusHash(*st))) // it is hexadecimal
	if plain {
		if s.hashes == nil || len(s.hashes) >= hashesMost {
			s.hashes = map[telling][16]byte{}
		}
		s.hashes[t] = out
	}
	return out
}

// waits tells whether what it reports depends on what else the member holds.
func (s *shape) waits() bool {
	return s.remove || slices.ContainsFunc(s.tombstones, func(t atoll.Tombstone) bool { return len(t.MovedTo) > 0 })
}

// has tells whether one of its items has that hash.
func (s *shape) has(hash string) bool {
	return slices.ContainsFunc(s.items, func(p part) bool { return p.hash == hash })
}

// status of the shape in a member that finds it so; the rest of what the report
// says is given.
func (s *shape) status(m mood, given report.Input, since int64) atoll.RowStatus {
	given.Content, given.Remove = s.content, s.remove
	given.AllGone = len(given.Gone) == len(s.tombstones)
	for i := range s.items {
		p := &s.items[i]
		v := &p.seen.views[m]
		item := report.Item{Key: p.key, RenderError: p.error, Observed: p.error == "", Applied: p.error == ""}
		switch {
		case p.error != "":
		case v.failed:
			item.Reason, item.Message, item.Error, item.Applied = v.why, v.text, true, false
		default:
			item.Health, item.Why, item.Text, item.Reflected = v.health, v.why, v.text, v.reflected
		}
		given.Items = append(given.Items, item)
	}
	return report.Build(given, nil, since)
}
