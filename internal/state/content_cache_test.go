package state

import (
	"encoding/json"
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func contentOfSize(bytes int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{Object: make(json.RawMessage, bytes)}}}
}

// TestContentsAreBoundByBytes: many small ones or a few large ones are kept, and the
// one that was used last always.
func TestContentsAreBoundByBytes(t *testing.T) {
	const limit = 1 << 20
	c := newContentCache(limit)
	keeps := func(name string, want bool) {
		t.Helper()
		if _, ok := c.get(name); ok != want {
			t.Errorf("%s is kept: %t", name, ok)
		}
	}
	for i := range 5000 {
		c.add(fmt.Sprint("small-", i), contentOfSize(1000))
		c.get("small-0")
	}
	if n := len(c.byName); n < limit/2000 || c.bytes > limit || c.recent.Len() != n {
		t.Errorf("%d are kept, %d bytes", n, c.bytes)
	}
	keeps("small-0", true)
	keeps("small-1", false)
	keeps("small-4999", true)

	c.add("large", contentOfSize(10*limit))
	keeps("large", true)
	keeps("small-4999", false)
	c.add("large", contentOfSize(limit/2)) // the same again is counted once
	c.add("other", contentOfSize(limit/4))
	keeps("large", true)
	keeps("other", true)
	c.remove("large")
	c.remove("other")
	c.remove("other")
	if len(c.byName)+c.bytes+c.recent.Len() != 0 {
		t.Errorf("%d bytes are left of nothing", c.bytes)
	}
}

// TestSizeOfContent: what is counted is about what it takes to say it.
func TestSizeOfContent(t *testing.T) {
	c := contentOfSize(100_000)
	c.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/web", Items: make([]atoll.ItemKey, 1000)}}
	c.Tombstones = make([]atoll.Tombstone, 1000)
	if n := estimateContentMemory(c); n < 350_000 || n > 1_000_000 {
		t.Errorf("it is said to take %d bytes", n)
	}
}
