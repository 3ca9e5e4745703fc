package fleet

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// slim is a TLS connection that gives its buffers back while it waits. Package tls
// keeps them as large as the largest record and the longest handshake message that
// ever came, 12 kB of what an idle connection costs, and has no way to ask for them.
// Where its fields are not as expected, nothing is given back; TestMemory would tell.
type slim struct {
	*tls.Conn
	wire *wire
}

// slimMost is what a buffer may keep.
const slimMost = 1 << 10

// Read is called by one goroutine at a time, so that nobody else uses the buffers.
func (s slim) Read(p []byte) (int, error) {
	at := unsafe.Pointer(s.Conn)
	if fields.known {
		raw, hand := (*bytes.Buffer)(unsafe.Add(at, fields.raw)), (*bytes.Buffer)(unsafe.Add(at, fields.hand))
		input := (*bytes.Reader)(unsafe.Add(at, fields.input))
		if raw.Len() == 0 && hand.Len() == 0 && input.Len() == 0 {
			if raw.Cap()+hand.Cap() > slimMost {
				*raw, *hand = bytes.Buffer{}, bytes.Buffer{}
				input.Reset(nil)
			}
			s.wire.await()
		}
	}
	return s.Conn.Read(p)
}

// fields of a tls.Conn that hold buffers.
var fields = func() (at struct {
	known            bool
	raw, hand, input uintptr
}) {
	conn := reflect.TypeFor[tls.Conn]()
	raw, ok1 := conn.FieldByName("rawInput")
	hand, ok2 := conn.FieldByName("hand")
	input, ok3 := conn.FieldByName("input")
	buffer, reader := reflect.TypeFor[bytes.Buffer](), reflect.TypeFor[bytes.Reader]()
	at.known = ok1 && ok2 && ok3 && raw.Type == buffer && hand.Type == buffer && input.Type == reader
	at.raw, at.hand, at.input = raw.Offset, hand.Offset, input.Offset
	return at
}()
