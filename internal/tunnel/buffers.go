package tunnel

import "sync"

// copyBytes of a body are copied at a time, at both ends of a tunnel: little, since many
// wait for logs of which nothing comes.
const copyBytes = 16 << 10

// Buffers for bodies, as net/http/httputil asks for them; shared by all who ask.
type Buffers struct{}

var buffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Get a buffer.
func (Buffers) Get() []byte { return buffers.Get().(*[copyBytes]byte)[:] }

// Put it back.
func (Buffers) Put(b []byte) {
	if cap(b) >= copyBytes {
		buffers.Put((*[copyBytes]byte)(b[:copyBytes]))
	}
}
