package hub

import "sync/atomic"

// published holds the parts that admission and the hub's endpoints ask: none at
// first, then those of a follower or a leader. It is safe for concurrent use.
type published struct{ parts atomic.Pointer[parts] }

// Set the parts; those of a leader take the place of a follower's.
func (l *published) Set(p *parts) { l.parts.Store(p) }

// Get the parts, if there are any yet.
func (l *published) Get() (*parts, bool) {
	p := l.parts.Load()
	return p, p != nil
}
