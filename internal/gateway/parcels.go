package gateway

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/state"
)

// basesLimit is how many encodings of one manifest are kept, by what the agent
// already holds.
const basesLimit = 4

// thin as a base means: leave all objects out.
const thin = "thin"

// parcels caches rendered manifests by what they depend on, up to a number of
// bytes, the least recently used going first. It is safe for concurrent use.
type parcels struct {
	ctx     context.Context
	render  func(context.Context, state.Row) (atoll.Manifest, error)
	salt    func(state.Row) string // may be nil
	limit   int
	metrics *metrics
	flight  singleflight.Group

	mu      sync.Mutex
	entries map[string]*list.Element
	recent  *list.List // of *parcel, most recently used first
	bytes   int
}

// parcel is a rendered manifest with its encodings.
type parcel struct {
	*session.Parcel
	key     string
	bytes   int
	metrics *metrics

	mu      sync.Mutex
	encoded map[string][]byte // by base
}

// base is what an agent is known to hold of a bundle; the zero base is nothing.
type base struct {
	content string // "" nothing, thin: something that is not known
	hashes  session.Hashes
}

func newParcels(ctx context.Context, o Options, m *metrics) *parcels {
	return &parcels{ctx: ctx, render: o.Render, salt: o.RenderSalt, limit: o.CacheBytes, metrics: m, entries: map[string]*list.Element{}, recent: list.New()}
}

func (p *parcels) keyOf(r state.Row) string {
	removing := r.Spec.Phase == atoll.RowRemoving
	key := fmt.Sprintf("%s|%t|%t|%s", r.Bundle.UID, removing, r.Spec.Orphan, r.Spec.Rendering(r.Spec.Variant))
	if p.salt != nil {
		key += "|" + p.salt(r)
	}
	return key
}

// of gives the row's parcel, rendering it if need be. Callers that ask for the same
// at the same time share one rendering.
func (p *parcels) of(row state.Row) (*parcel, error) {
	key := p.keyOf(row)
	if hit := p.get(key); hit != nil {
		p.metrics.hits.Inc()
		return hit, nil
	}
	v, err, shared := p.flight.Do(key, func() (any, error) {
		if hit := p.get(key); hit != nil {
			return hit, nil
		}
		p.metrics.renders.Inc()
		m, err := p.render(p.ctx, row)
		if err != nil {
			return nil, err
		}
		made := session.NewParcel(m)
		e := &parcel{Parcel: made, key: key, bytes: made.Bytes(), metrics: p.metrics, encoded: map[string][]byte{}}
		p.put(e)
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("render revision %s for cluster %s: %w", row.Spec.Revision, row.Cluster, err)
	}
	if shared {
		p.metrics.hits.Inc()
	}
	return v.(*parcel), nil
}

func (p *parcels) get(key string) *parcel {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[key]
	if !ok {
		return nil
	}
	p.recent.MoveToFront(e)
	return e.Value.(*parcel)
}

func (p *parcels) put(e *parcel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries[e.key] = p.recent.PushFront(e)
	p.bytes += e.bytes
	for p.bytes > p.limit && p.recent.Len() > 1 {
		last := p.recent.Back()
		old := p.recent.Remove(last).(*parcel)
		delete(p.entries, old.key)
		p.bytes -= old.bytes
	}
	p.metrics.cacheBytes.Set(float64(p.bytes))
}

// encode the manifest for an agent that holds b. Agents of equal base share the
// bytes.
func (e *parcel) encode(b base) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if body, ok := e.encoded[b.content]; ok {
		return body, nil
	}
	held := b.hashes
	if b.content == thin {
		held = e.Hashes
	}
	e.metrics.encodes.Inc()
	body, err := e.Encode(held)
	if err != nil {
		return nil, err
	}
	if len(e.encoded) >= basesLimit {
		clear(e.encoded)
	}
	e.encoded[b.content] = body
	return body, nil
}
