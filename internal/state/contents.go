package state

import (
	linked "container/list"
	"encoding/json"
	"sync"

	"atoll.dev/atoll/internal/atoll"
)

// contentBytes is how much decoded content stays in memory.
const contentBytes = 64 << 20

// contents of Revisions that were read or cut last, up to a number of bytes; the one
// that was used last stays, however large it is. It is safe for concurrent use.
type contents struct {
	limit int

	mu     sync.Mutex
	bytes  int
	byName map[string]*linked.Element
	recent *linked.List // of *kept, the last used first
}

type kept struct {
	name    string
	content *atoll.Content
	bytes   int
}

func newContents(limit int) *contents {
	return &contents{limit: limit, byName: map[string]*linked.Element{}, recent: linked.New()}
}

func (c *contents) get(name string) (*atoll.Content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byName[name]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*kept).content, true
}

func (c *contents) add(name string, content *atoll.Content) {
	k := &kept{name, content, sizeOf(content)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
	c.byName[name] = c.recent.PushFront(k)
	c.bytes += k.bytes
	for c.bytes > c.limit && c.recent.Len() > 1 {
		c.drop(c.recent.Back().Value.(*kept).name)
	}
}

func (c *contents) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
}

// drop one, if it is there. The caller holds the lock.
func (c *contents) drop(name string) {
	if e, ok := c.byName[name]; ok {
		c.bytes -= c.recent.Remove(e).(*kept).bytes
		delete(c.byName, name)
	}
}

// itemBytes is what an item takes beside its object and the names that are its own.
const itemBytes = 256

// sizeOf a content in memory, about.
func sizeOf(c *atoll.Content) int {
	n := itemBytes * (1 + len(c.Items) + len(c.Tombstones))
	for i := range c.Items {
		it := &c.Items[i]
		n += cap(it.Object) + len(it.Key.Namespace) + len(it.Key.Name) + len(it.UID) + len(it.Hash) + len(it.Source)
	}
	for i := range c.Tombstones {
		n += len(c.Tombstones[i].Key.Name) + len(c.Tombstones[i].UID)
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
