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

// healthMood is the health that the simulated member gives a Bundle.
type healthMood uint8

// The health moods.
const (
	moodNone healthMood = iota
	moodProgressing
	moodReady
	moodDegraded
	moodCount
)

// keptManifest is the part of a manifest that a simulated member keeps. All agents with the same
// content share it.
type keptManifest struct {
	bundle, content   string
	namespace         string
	isRemoval         bool
	deletedNamespaces []string
	tombstones        []atoll.Tombstone
	parts             []keptItem
	// listedKeys are the keys of listed items and of their namespaces.
	listedKeys map[atoll.ItemKey]bool
	namespaces map[string]bool

	holders int // number of agents with this shape; the table's mutex guards it

	mu           sync.Mutex
	statusHashes map[statusKey][16]byte
}

// statusKey holds the inputs of the hash of a plain status.
type statusKey struct {
	generation int64
	mood       healthMood
}

// keptItem is one item of a shape.
type keptItem struct {
	key   atoll.ItemKey
	hash  string
	error string
	views *objectViews
}

// objectViews are the views of an object in a simulated member, by mood. Items of equal
// hash share them.
type objectViews struct {
	views       [moodCount]objectView
	holders     int
	objectsMark uint32 // mark of the object (ObjectsChecksum)
	contentHash uint64 // hash of the object as received
}

type objectView struct {
	health          atoll.Health
	reason, message string
	reflected       json.RawMessage
	applyFails      bool // the member cannot apply the object
}

// keptManifestTable holds the shapes of all members of a process.
type keptManifestTable struct {
	mu          sync.Mutex
	byKey       map[[2]string]*keptManifest // by bundle and content
	viewsByHash map[string]*objectViews     // by hash
	seed        maphash.Seed
}

func newKeptManifestTable() *keptManifestTable {
	return &keptManifestTable{byKey: map[[2]string]*keptManifest{}, viewsByHash: map[string]*objectViews{}, seed: maphash.MakeSeed()}
}

// acquireManifest returns the manifest's shape and the mark of the received objects. Every
// call needs one call of releaseManifest.
func (t *keptManifestTable) acquireManifest(m *atoll.Manifest) (*keptManifest, uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{m.Bundle, m.Content}
	s := t.byKey[key]
	if s == nil {
		s = t.createKeptManifest(m)
		t.byKey[[2]string{s.bundle, s.content}] = s
	}
	s.holders++
	return s, t.itemsChecksum(m)
}

// itemsChecksum returns the mark of the manifest's items as received. Agents share items by the
// hub's hashes, so the hashes themselves cannot verify the content. The caller holds mu.
func (t *keptManifestTable) itemsChecksum(m *atoll.Manifest) (sum uint32) {
	for i := range m.Items {
		it := &m.Items[i]
		seen := t.viewsByHash[it.Hash]
		switch {
		case seen != nil && (bytes.Equal(it.Object, emptyObject) || maphash.Bytes(t.seed, it.Object) == seen.contentHash):
			sum += seen.objectsMark
		default:
			sum += ObjectsChecksum(it.Object)
		}
	}
	return sum
}

func (t *keptManifestTable) createKeptManifest(m *atoll.Manifest) *keptManifest {
	s := &keptManifest{
		bundle: strings.Clone(m.Bundle), content: strings.Clone(m.Content), namespace: m.Namespace, isRemoval: m.Remove,
		deletedNamespaces: m.DeletedNamespaces, tombstones: slices.Clone(m.Tombstones),
		listedKeys: map[atoll.ItemKey]bool{}, namespaces: map[string]bool{},
	}
	for i := range m.Items {
		it := &m.Items[i]
		p := keptItem{key: it.Key, hash: it.Hash}
		if it.Failed() {
			p.error = it.Error
		}
		if p.views = t.viewsByHash[it.Hash]; p.views == nil {
			p.views = fakeObjectViews(it)
			p.views.contentHash = maphash.Bytes(t.seed, it.Object)
			t.viewsByHash[it.Hash] = p.views
		}
		p.views.holders++
		s.parts = append(s.parts, p)
		s.listedKeys[it.Key] = true
		s.namespaces[it.Key.Namespace] = true
	}
	return s
}

// releaseManifest releases a shape for one agent.
func (t *keptManifestTable) releaseManifest(s *keptManifest) {
	if s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.holders--; s.holders > 0 {
		return
	}
	delete(t.byKey, [2]string{s.bundle, s.content})
	for _, p := range s.parts {
		if p.views.holders--; p.views.holders == 0 {
			delete(t.viewsByHash, p.hash)
		}
	}
}

// hashesMost bounds the status hashes of a shape: old generations accumulate.
const hashesMost = 64

// statusHash returns the hash of a status of the shape (session.StatusHash). Agents with
// the same shape report the same, unless the status contains removals.
func (s *keptManifest) statusHash(h *heldBundle, st *atoll.RowStatus) (out [16]byte) {
	t := statusKey{h.generation, h.mood}
	plain := !s.isRemoval && len(s.tombstones) == 0
	if plain {
		s.mu.Lock()
		defer s.mu.Unlock()
		if known, ok := s.statusHashes[t]; ok {
			return known
		}
	}
	_, _ = hex.Decode(out[:], []byte(session.StatusHash(*st))) // StatusHash is always hexadecimal
	if plain {
		if s.statusHashes == nil || len(s.statusHashes) >= hashesMost {
			s.statusHashes = map[statusKey][16]byte{}
		}
		s.statusHashes[t] = out
	}
	return out
}

// needsMemberState reports whether the status depends on other content of the member.
func (s *keptManifest) needsMemberState() bool {
	return s.isRemoval || slices.ContainsFunc(s.tombstones, func(t atoll.Tombstone) bool { return len(t.MovedTo) > 0 })
}

// hasItemHash reports whether an item has the hash.
func (s *keptManifest) hasItemHash(hash string) bool {
	return slices.ContainsFunc(s.parts, func(p keptItem) bool { return p.hash == hash })
}

// rowStatusInMood returns the status of the shape in a member with the mood. The caller gives the
// other inputs of the report.
func (s *keptManifest) rowStatusInMood(m healthMood, given report.Input, since int64) atoll.RowStatus {
	given.Content, given.Remove = s.content, s.isRemoval
	given.AllGone = len(given.Gone) == len(s.tombstones)
	for i := range s.parts {
		p := &s.parts[i]
		v := &p.views.views[m]
		item := report.Item{Key: p.key, RenderError: p.error, Observed: p.error == "", Applied: p.error == ""}
		switch {
		case p.error != "":
		case v.applyFails:
			item.Reason, item.Message, item.Error, item.Applied = atoll.Reason(v.reason), v.message, true, false
		default:
			item.Health, item.Why, item.Text, item.Reflected = v.health, atoll.Reason(v.reason), v.message, v.reflected
		}
		given.Items = append(given.Items, item)
	}
	return report.BuildStatus(given, nil, since)
}
