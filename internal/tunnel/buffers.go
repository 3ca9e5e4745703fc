package tunnel

import "sync"

// copyBytes of a body are copied at a time, at both ends of a tunnel: little, since many
// wait for logs of which nothing comes.
const copyBytes = 16 << 10

// Buffers for bodies, in the interface of net/http/httputil; shared by all.
type Buffers struct{}

var buffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Get returns a buffer.
func (Buffers) Get() []byte { return buffers.Get().(*[copyBytes]byte)[:] }

// Put puts it back.
func (Buffers) Put(b []byte) {
	if cap(b) >= copyBytes {
		buffers.Put((*[copyBytes]byte)(b[:copyBytes]))
	}
}
