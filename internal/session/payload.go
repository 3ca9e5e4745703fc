package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Payload is a manifest that can be sent to any number of agents. It is immutable.
type Payload struct {
	// Content hash of the manifest.
	Content string
	// Hashes of the manifest's parts.
	Hashes Hashes
	// Objects are the parts by hash: objects of items, and specs of interpreters.
	Objects map[string]json.RawMessage

	manifest atoll.Manifest // without objects and generation
}

// Hashes of objects that an agent holds.
type Hashes map[string]struct{}

// NewPayload returns the payload of a manifest with its objects.
func NewPayload(m atoll.Manifest) *Payload {
	p := &Payload{Content: m.Content, Hashes: Hashes{}, Objects: map[string]json.RawMessage{}, manifest: m.WithoutParts()}
	p.manifest.Generation = 0
	for hash, part := range m.HashedParts() {
		if isObjectPresent(*part) {
			p.Hashes[hash], p.Objects[hash] = struct{}{}, *part
		}
	}
	return p
}

// MemoryBytes is about how many bytes the payload takes in memory.
func (p *Payload) MemoryBytes() int {
	n := 512
	for _, o := range p.Objects {
		n += 2*len(o) + 128
	}
	return n + 256*len(p.manifest.Items)
}

// Encode returns the manifest for an agent that holds the given objects. Those are left
// out, and so are objects that would make the frame larger than InlineBytes, or than a frame may be.
// A manifest that no agent takes is a *OrderTooLargeError.
func (p *Payload) Encode(held Hashes) ([]byte, error) {
	return p.encodeManifest(p.manifest.WithListedAssessments(), held)
}

// EncodeForOlder is Encode for an agent that does not read listed assessments.
func (p *Payload) EncodeForOlder(held Hashes) ([]byte, error) {
	return p.encodeManifest(p.manifest, held)
}

func (p *Payload) encodeManifest(m atoll.Manifest, held Hashes) ([]byte, error) {
	if tooLarge := measureRules(&p.manifest); tooLarge != nil {
		return nil, tooLarge
	}
	b, err := p.encodeWithObjects(m, held)
	if err == nil && len(b) > MaxFrameBytes-upsertOverhead { // the agent requests the objects
		b, err = p.encodeWithObjects(m, p.Hashes)
	}
	if err != nil {
		return nil, fmt.Errorf("encode manifest %s of bundle %s: %w", m.Content, m.Bundle, err)
	}
	if tooLarge := measureManifest(b); tooLarge != nil {
		return nil, tooLarge
	}
	return b, nil
}

func (p *Payload) encodeWithObjects(m atoll.Manifest, held Hashes) ([]byte, error) {
	m, room := m.WithoutParts(), InlineBytes
	for hash, part := range m.HashedParts() {
		object := p.Objects[hash]
		if _, ok := held[hash]; ok || len(object) > room {
			continue
		}
		room -= len(object)
		*part = object
	}
	return json.Marshal(m)
}

// AnswerNeed answers a Need in frames of about InlineBytes. Hashes that the payload does
// not have are left out.
func (p *Payload) AnswerNeed(need *pb.Need) []*pb.FromHub {
	var frames []*pb.FromHub
	var current *pb.Objects
	room := 0
	for _, h := range slices.Compact(slices.Sorted(slices.Values(need.GetHashes()))) {
		object, ok := p.Objects[h]
		if !ok {
			continue
		}
		if current == nil || len(object) > room {
			current = &pb.Objects{Bundle: need.GetBundle(), Generation: need.GetGeneration(), Objects: map[string][]byte{}}
			frames = append(frames, &pb.FromHub{Frame: &pb.FromHub_Objects{Objects: current}})
			room = InlineBytes
		}
		current.Objects[h] = object
		room -= len(object)
	}
	return frames
}

// decodeManifest decodes the manifest of an Upsert, and checks its form.
func decodeManifest(u *pb.Upsert) (atoll.Manifest, error) {
	var m atoll.Manifest
	if tooLarge := measureManifest(u.GetManifest()); tooLarge != nil {
		return m, fmt.Errorf("the manifest of bundle %s: %w", u.GetBundle(), tooLarge)
	}
	if err := json.Unmarshal(u.GetManifest(), &m); err != nil {
		return m, fmt.Errorf("read the manifest of bundle %s: %w", u.GetBundle(), err)
	}
	if err := m.ResolveAssessments(); err != nil {
		return m, fmt.Errorf("the manifest of bundle %s is malformed: %w", u.GetBundle(), err)
	}
	m.Bundle, m.Generation = u.GetBundle(), u.GetGeneration()
	if err := checkManifestForm(&m); err != nil {
		return m, fmt.Errorf("the manifest of bundle %s is malformed: %w", u.GetBundle(), err)
	}
	return m, nil
}

// fillObjects fills in the parts that the manifest lacks, and returns the hashes of those
// that are still missing, sorted.
func fillObjects(m *atoll.Manifest, object func(hash string) (json.RawMessage, bool)) []string {
	missing := map[string]struct{}{}
	for hash, part := range m.HashedParts() {
		if isObjectPresent(*part) {
			continue
		}
		if *part = nil; hash == "" {
			continue
		}
		if o, ok := object(hash); ok && isObjectPresent(o) {
			*part = o
			continue
		}
		missing[hash] = struct{}{}
	}
	return slices.Sorted(maps.Keys(missing))
}

func isObjectPresent(o json.RawMessage) bool { return len(o) > 0 && string(o) != "null" }
