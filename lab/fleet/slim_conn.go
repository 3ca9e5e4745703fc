package fleet

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// slimConn is a TLS connection that releases its buffers while it waits. Package tls keeps
// buffers as large as the largest record and handshake message so far, 12 kB of an idle
// connection, and has no way to release them. If the fields of tls.Conn differ from the
// expected ones, nothing is released, and TestMemory fails.
type slimConn struct {
	*tls.Conn
	wire *cuttableConn
}

// keptBufferSize is the size up to which a buffer is kept.
const keptBufferSize = 1 << 10

// Read has one caller at a time, so that no other goroutine uses the buffers.
func (s slimConn) Read(p []byte) (int, error) {
	at := unsafe.Pointer(s.Conn)
	if tlsConnFields.known {
		raw, hand := (*bytes.Buffer)(unsafe.Add(at, tlsConnFields.raw)), (*bytes.Buffer)(unsafe.Add(at, tlsConnFields.hand))
		input := (*bytes.Reader)(unsafe.Add(at, tlsConnFields.input))
		if raw.Len() == 0 && hand.Len() == 0 && input.Len() == 0 {
			if raw.Cap()+hand.Cap() > keptBufferSize {
				*raw, *hand = bytes.Buffer{}, bytes.Buffer{}
				input.Reset(nil)
			}
			s.wire.awaitReadable()
		}
	}
	return s.Conn.Read(p)
}

// tlsConnFields are the buffer fields of a tls.Conn.
var tlsConnFields = func() (at struct {
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
