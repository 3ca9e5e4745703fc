package bind

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
)

// prints remembers the fingerprints of templates, so that the plan of a Bundle of many
// objects reads only those that changed. It is safe for concurrent use; the zero value
// is empty.
type prints struct {
	mu    sync.Mutex
	known map[atoll.ItemKey]fingerprint
}

type fingerprint struct {
	of    *unstructured.Unstructured // as the table has it; another one when it changes
	print string
}

// of a template that the table gave.
func (p *prints) of(t *unstructured.Unstructured) string {
	key := claim.KeyOf(t)
	p.mu.Lock()
	known, ok := p.known[key]
	p.mu.Unlock()
	if ok && known.of == t {
		return known.print
	}
	print := render.Fingerprint(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[atoll.ItemKey]fingerprint{}
	}
	p.known[key] = fingerprint{t, print}
	return print
}

// forget a template that is gone.
func (p *prints) forget(key atoll.ItemKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}
