package hub

import "sync/atomic"

// componentsRef holds the parts that admission and the hub's endpoints ask: none at
// first, then those of a follower or a leader. It is safe for concurrent use.
type componentsRef struct{ pointer atomic.Pointer[components] }

// Set the parts; those of a leader take the place of a follower's.
func (l *componentsRef) Set(p *components) { l.pointer.Store(p) }

// Get the parts, if there are any yet.
func (l *componentsRef) Get() (*components, bool) {
	p := l.pointer.Load()
	return p, p != nil
}
