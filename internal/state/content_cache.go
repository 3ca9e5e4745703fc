package state

import (
	linked "container/list"
	"encoding/json"
	"slices"
	"sync"

	"atoll.dev/atoll/internal/atoll"
)

// contentCacheBytes is how much decoded content stays in memory.
const contentCacheBytes = 64 << 20

// contentCache of Revisions that were read or cut last, up to a number of bytes; the one
// that was used last stays, however large it is. It is safe for concurrent use.
type contentCache struct {
	maxBytes int

	mu     sync.Mutex
	bytes  int
	byName map[string]*linked.Element
	recent *linked.List // of *kept, the last used first
}

type cachedContent struct {
	name    string
	content *atoll.Content
	bytes   int
}

func newContentCache(limit int) *contentCache {
	return &contentCache{maxBytes: limit, byName: map[string]*linked.Element{}, recent: linked.New()}
}

func (c *contentCache) get(name string) (*atoll.Content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byName[name]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cachedContent).content, true
}

func (c *contentCache) add(name string, content *atoll.Content) {
	k := &cachedContent{name, content, estimateContentMemory(content)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(name)
	c.byName[name] = c.recent.PushFront(k)
	c.bytes += k.bytes
	for c.bytes > c.maxBytes && c.recent.Len() > 1 {
		c.dropLocked(c.recent.Back().Value.(*cachedContent).name)
	}
}

func (c *contentCache) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(name)
}

// dropLocked drops one, if it is there. The caller holds the lock.
func (c *contentCache) dropLocked(name string) {
	if e, ok := c.byName[name]; ok {
		c.bytes -= c.recent.Remove(e).(*cachedContent).bytes
		delete(c.byName, name)
	}
}

// itemOverheadBytes is what an item takes beside its object and the names that are its own.
const itemOverheadBytes = 256

// estimateContentMemory estimates the size of a content in memory, about.
func estimateContentMemory(c *atoll.Content) int {
	n := itemOverheadBytes * (1 + len(c.Items) + len(c.Tombstones))
	for i := range c.Items {
		it := &c.Items[i]
		n += cap(it.Object) + len(it.Key.Namespace) + len(it.Key.Name) + len(it.UID) + len(it.Hash) + len(it.SourceFingerprint)
	}
	for i := range c.Tombstones {
		n += len(c.Tombstones[i].Key.Name) + len(c.Tombstones[i].UID)
		for _, f := range slices.Concat(c.Tombstones[i].Finalizers, c.Tombstones[i].ReleasedFinalizers) {
			n += len(f)
		}
	}
	for i := range c.Interpreters {
		n += len(c.Interpreters[i].Spec)
	}
	if len(c.Rules) > 0 {
		if raw, err := json.Marshal(c.Rules); err == nil {
			n += 2 * len(raw) // decoded, it is that much larger
		}
	}
	return n
}
