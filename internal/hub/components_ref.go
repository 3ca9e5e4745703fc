package hub

import "sync/atomic"

// componentsRef holds the parts that admission and the hub's endpoints call: none at
// first, then those of a follower or a leader. It is safe for concurrent use.
type componentsRef struct{ pointer atomic.Pointer[components] }

// Set sets the components of the hub; those of a leader replace those of a follower.
func (l *componentsRef) Set(p *components) { l.pointer.Store(p) }

// Get returns the components of the hub; ok is false before they exist.
func (l *componentsRef) Get() (*components, bool) {
	p := l.pointer.Load()
	return p, p != nil
}
