package bind

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
)

// Prints remembers the fingerprints of templates, so that the plan of a Bundle of many
// objects, and whoever else asks, reads only those that changed. A Binder forgets those
// of templates that are gone. It is safe for concurrent use; the zero value is empty, and
// nil remembers nothing.
type Prints struct {
	mu    sync.Mutex
	known map[atoll.ItemKey]fingerprint
}

type fingerprint struct {
	of    *unstructured.Unstructured // as the table has it; another one when it changes
	print string
}

// Of a template that the table gave.
func (p *Prints) Of(t *unstructured.Unstructured) string {
	if p == nil {
		return render.Fingerprint(t)
	}
	key := claim.KeyOf(t)
	p.mu.Lock()
	known, ok := p.known[key]
	p.mu.Unlock()
	if ok && known.of == t {
		return known.print
	}
	print := known.print
	if !ok || !render.Untouched(known.of, t) {
		print = render.Fingerprint(t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[atoll.ItemKey]fingerprint{}
	}
	p.known[key] = fingerprint{t, print}
	return print
}

// forget a template that is gone.
func (p *Prints) forget(key atoll.ItemKey) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}
