package payloads

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/state"
)

// maxEncodings is how many encodings of one manifest are kept, by the content that the
// agent holds already.
const maxEncodings = 4

// unknownContent is the content of a base of which no hash is known.
const unknownContent = "unknown"

// Source reads the inputs of manifests and renders them. Renderer is one.
type Source interface {
	ReadManifestInput(ctx context.Context, row state.Row) (ManifestInput, error)
	RenderManifest(ctx context.Context, in ManifestInput) (atoll.Manifest, error)
}

// Metrics count the work of a Cache.
type Metrics struct {
	Renders, RenderFailures, Encodes, Hits prometheus.Counter
	RenderSeconds                          prometheus.Histogram
	Bytes                                  prometheus.Gauge
}

// Cache keeps rendered manifests by the keys of their inputs, up to a number of bytes. The
// manifest that was used least recently is dropped first. A Cache is safe for concurrent use.
type Cache struct {
	ctx      context.Context
	source   Source
	maxBytes int
	metrics  Metrics
	flight   singleflight.Group

	mu      sync.Mutex
	entries map[string]*list.Element
	recent  *list.List // of *Payload, the one used last first
	bytes   int
}

// Payload is a rendered manifest with its encodings. It is safe for concurrent use.
type Payload struct {
	*session.Payload
	key     string
	bytes   int
	encodes prometheus.Counter

	mu      sync.Mutex
	encoded map[encodingKey]encoding
}

// encodingKey has what encodings of one manifest differ by: the content of the base, and whether the agent reads listed
// assessments.
type encodingKey struct {
	content          string
	listsAssessments bool
}

// encoding is an encoded manifest, or why no agent takes it.
type encoding struct {
	body     []byte
	tooLarge *session.OrderTooLargeError
}

// Base is what an agent is known to hold of a bundle. The zero Base is nothing.
type Base struct {
	Content string
	Hashes  session.Hashes
	// ListsAssessments: the agent reads manifests that list the parts of assessments.
	ListsAssessments bool
}

// UnknownBase is what an agent holds of which the content is not known. Payloads are
// encoded for it without objects: the agent requests those that it lacks.
func UnknownBase() Base { return Base{Content: unknownContent} }

// NewCache returns a Cache over the source that keeps up to maxBytes. Reads and renderings
// end with ctx.
func NewCache(ctx context.Context, source Source, maxBytes int, metrics Metrics) *Cache {
	return &Cache{ctx: ctx, source: source, maxBytes: maxBytes, metrics: metrics, entries: map[string]*list.Element{}, recent: list.New()}
}

// GetOrRender returns the payload of the row as the tables are now. Concurrent calls for
// equal inputs share one rendering. A panic is an error: the agent's session tries the row again
// later, and sends its other rows.
func (c *Cache) GetOrRender(row state.Row) (p *Payload, err error) {
	err = reconcile.ContainPanic(func() (err error) {
		p, err = c.getOrRender(row)
		return err
	})
	return p, err
}

func (c *Cache) getOrRender(row state.Row) (*Payload, error) {
	fail := func(err error) error {
		return fmt.Errorf("render revision %s for cluster %s: %w", row.Spec.Revision, row.Cluster, err)
	}
	in, err := c.source.ReadManifestInput(c.ctx, row)
	if err != nil {
		return nil, fail(err)
	}
	key := in.CacheKey()
	if hit := c.get(key); hit != nil {
		c.metrics.Hits.Inc()
		return hit, nil
	}
	v, err, shared := c.flight.Do(key, func() (any, error) {
		if hit := c.get(key); hit != nil {
			return hit, nil
		}
		c.metrics.Renders.Inc()
		start := time.Now()
		m, err := c.source.RenderManifest(c.ctx, in)
		if err != nil {
			c.metrics.RenderFailures.Inc()
			return nil, err
		}
		c.metrics.RenderSeconds.Observe(time.Since(start).Seconds())
		made := session.NewPayload(m)
		p := &Payload{Payload: made, key: key, bytes: made.MemoryBytes(), encodes: c.metrics.Encodes, encoded: map[encodingKey]encoding{}}
		c.put(p)
		return p, nil
	})
	if err != nil {
		return nil, fail(err)
	}
	if shared {
		c.metrics.Hits.Inc()
	}
	return v.(*Payload), nil
}

func (c *Cache) get(key string) *Payload {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*Payload)
}

func (c *Cache) put(p *Payload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[p.key] = c.recent.PushFront(p)
	c.bytes += p.bytes
	for c.bytes > c.maxBytes && c.recent.Len() > 1 {
		old := c.recent.Remove(c.recent.Back()).(*Payload)
		delete(c.entries, old.key)
		c.bytes -= old.bytes
	}
	c.metrics.Bytes.Set(float64(c.bytes))
}

// EncodeFor returns the manifest for an agent that holds the base. Agents of equal bases
// share the bytes. A panic is an error, and a manifest that no agent takes a *session.OrderTooLargeError.
func (p *Payload) EncodeFor(b Base) (body []byte, err error) {
	err = reconcile.ContainPanic(func() (err error) {
		body, err = p.encodeFor(b)
		return err
	})
	return body, err
}

func (p *Payload) encodeFor(b Base) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := encodingKey{b.Content, b.ListsAssessments}
	if known, ok := p.encoded[key]; ok {
		return known.getBody()
	}
	held := b.Hashes
	if b.Content == unknownContent {
		held = p.Hashes
	}
	p.encodes.Inc()
	encode := p.Encode
	if !b.ListsAssessments {
		encode = p.EncodeForOlder
	}
	body, err := encode(held)
	made := encoding{body: body}
	if err != nil && !errors.As(err, &made.tooLarge) {
		return nil, err
	}
	if len(p.encoded) >= maxEncodings {
		clear(p.encoded)
	}
	p.encoded[key] = made
	return made.getBody()
}

// getBody returns the encoded manifest, or why no agent takes it.
func (e encoding) getBody() ([]byte, error) {
	if e.tooLarge != nil {
		return nil, e.tooLarge
	}
	return e.body, nil
}
