package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Parcel is a manifest ready to be sent to any number of agents. It is immutable.
type Parcel struct {
	// Content hash of the manifest.
	Content string
	// Hashes of the items that have an object, and of interpreters.
	Hashes Hashes
	// Objects in JSON by hash, and specs of interpreters.
	Objects map[string]json.RawMessage

	manifest atoll.Manifest // without objects and generation
}

// Hashes of objects that an agent holds.
type Hashes map[string]struct{}

// NewParcel of a manifest with its objects.
func NewParcel(m atoll.Manifest) *Parcel {
	p := &Parcel{Content: m.Content, Hashes: Hashes{}, Objects: map[string]json.RawMessage{}, manifest: m}
	p.manifest.Generation = 0
	p.manifest.Items = slices.Clone(m.Items)
	for i := range p.manifest.Items {
		item := &p.manifest.Items[i]
		if hasObject(item.Object) {
			p.Hashes[item.Hash] = struct{}{}
			p.Objects[item.Hash] = item.Object
		}
		item.Object = nil
	}
	p.manifest.Interpreters = slices.Clone(m.Interpreters)
	for i := range p.manifest.Interpreters {
		x := &p.manifest.Interpreters[i]
		p.Hashes[x.Hash], p.Objects[x.Hash], x.Spec = struct{}{}, x.Spec, nil
	}
	return p
}

// Bytes that the parcel takes in memory, about.
func (p *Parcel) Bytes() int {
	n := 512
	for _, o := range p.Objects {
		n += 2*len(o) + 128
	}
	return n + 256*len(p.manifest.Items)
}

// Encode the manifest for an agent that holds the given objects: theirs are left
// out, and so are those that would make the frame larger than InlineBytes.
func (p *Parcel) Encode(held Hashes) ([]byte, error) {
	m, room := p.manifest, InlineBytes
	m.Items = slices.Clone(m.Items)
	for i := range m.Items {
		object := p.Objects[m.Items[i].Hash]
		if _, ok := held[m.Items[i].Hash]; ok || len(object) > room {
			continue
		}
		room -= len(object)
		m.Items[i].Object = object
	}
	m.Interpreters = slices.Clone(m.Interpreters)
	for i := range m.Interpreters {
		spec := p.Objects[m.Interpreters[i].Hash]
		if _, ok := held[m.Interpreters[i].Hash]; ok || len(spec) > room {
			continue
		}
		room -= len(spec)
		m.Interpreters[i].Spec = spec
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest %s of bundle %s: %w", m.Content, m.Bundle, err)
	}
	return b, nil
}

// Answer a Need in frames of about InlineBytes. Hashes that the parcel does not have
// are left out.
func (p *Parcel) Answer(need *pb.Need) []*pb.FromHub {
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

// decodeManifest reads an Upsert's manifest.
func decodeManifest(u *pb.Upsert) (atoll.Manifest, error) {
	var m atoll.Manifest
	if err := json.Unmarshal(u.GetManifest(), &m); err != nil {
		return m, fmt.Errorf("read the manifest of bundle %s: %w", u.GetBundle(), err)
	}
	m.Bundle, m.Generation = u.GetBundle(), u.GetGeneration()
	return m, nil
}

// fill puts objects into items, and specs into interpreters, that lack theirs and names
// what is still missing, sorted.
func fill(m *atoll.Manifest, object func(hash string) (json.RawMessage, bool)) []string {
	missing := map[string]struct{}{}
	for i := range m.Items {
		item := &m.Items[i]
		if hasObject(item.Object) {
			continue
		}
		if item.Object = nil; item.Error != "" {
			continue
		}
		if o, ok := object(item.Hash); ok && hasObject(o) {
			item.Object = o
			continue
		}
		missing[item.Hash] = struct{}{}
	}
	for i := range m.Interpreters {
		x := &m.Interpreters[i]
		if hasObject(x.Spec) {
			continue
		}
		if x.Spec = nil; x.Hash == "" {
			continue
		}
		spec, ok := object(x.Hash)
		if !ok || !hasObject(spec) {
			missing[x.Hash] = struct{}{}
			continue
		}
		x.Spec = spec
	}
	return slices.Sorted(maps.Keys(missing))
}

func hasObject(o json.RawMessage) bool { return len(o) > 0 && string(o) != "null" }
