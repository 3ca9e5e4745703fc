package binder

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/userfields"
)

// FingerprintCache caches the fingerprints of templates, so that a plan hashes only the
// templates that changed. A Binder removes deleted templates. It is safe for concurrent use. The
// zero value is empty; nil caches nothing.
type FingerprintCache struct {
	mu      sync.Mutex
	entries map[atoll.ItemKey]cachedFingerprint
}

type cachedFingerprint struct {
	template *unstructured.Unstructured // the table's object, which is replaced on each change
	hash     string
}

// FingerprintOf returns the fingerprint of a template of the table.
func (p *FingerprintCache) FingerprintOf(t *unstructured.Unstructured) string {
	if p == nil {
		return userfields.FingerprintUserFields(t)
	}
	key := policymatch.ItemKeyOf(t)
	p.mu.Lock()
	known, ok := p.entries[key]
	p.mu.Unlock()
	if ok && known.template == t {
		return known.hash
	}
	print := known.hash
	if !ok || !userfields.IsUntouchedByUsers(known.template, t) {
		print = userfields.FingerprintUserFields(t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries == nil {
		p.entries = map[atoll.ItemKey]cachedFingerprint{}
	}
	p.entries[key] = cachedFingerprint{t, print}
	return print
}

// removeTemplate drops a deleted template.
func (p *FingerprintCache) removeTemplate(key atoll.ItemKey) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.entries, key)
}
