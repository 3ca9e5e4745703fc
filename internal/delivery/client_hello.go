package delivery

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

const (
	// helloReadTimeout is how long a connection may take to send the first record of its
	// handshake.
	helloReadTimeout = 5 * time.Second
	// recordHeaderBytes come before a TLS record; its length is in the last two.
	recordHeaderBytes = 5
	recordHandshake   = 22
	// maxRecordBytes is the largest plain record of TLS.
	maxRecordBytes = 16 << 10
	// extensionPreSharedKey is the extension of a ClientHello that offers tickets (RFC 8446,
	// section 4.2.11). typeClientHello is the type of the message.
	extensionPreSharedKey = 41
	typeClientHello       = 1
)

var errNoHello = errors.New("the connection does not begin with a TLS handshake")

// helloConn is a connection whose first record was read ahead.
type helloConn struct {
	*trackedConn
	head []byte // not read again yet
}

// Read reads what was read ahead first.
func (c *helloConn) Read(b []byte) (int, error) {
	if len(c.head) == 0 {
		return c.trackedConn.Read(b)
	}
	n := copy(b, c.head)
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return n, nil
}

// readHello waits for the first record of a handshake, so that a connection that sends nothing
// takes no turn of the limiter of handshakes.
func readHello(from *trackedConn) (*helloConn, error) {
	if err := from.SetReadDeadline(time.Now().Add(helloReadTimeout)); err != nil {
		return nil, fmt.Errorf("bound the wait for a handshake: %w", err)
	}
	head := make([]byte, recordHeaderBytes, 2<<10)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[3:]))
	if head[0] != recordHandshake || n == 0 || n > maxRecordBytes {
		return nil, errNoHello
	}
	head = append(head, make([]byte, n)...)
	if _, err := io.ReadFull(from, head[recordHeaderBytes:]); err != nil {
		return nil, err
	}
	return &helloConn{trackedConn: from, head: head}, nil
}

// holdsValidTicket reports whether the ClientHello in the record offers a ticket of this process
// first. Only agents get such tickets. A copied ticket passes here, and fails in the handshake.
func holdsValidTicket(record []byte, config *tls.Config) bool {
	ticket := offeredTicket(record)
	if ticket == nil {
		return false
	}
	session, err := config.DecryptTicket(ticket, tls.ConnectionState{})
	return err == nil && session != nil
}

// offeredTicket returns the first ticket of the ClientHello in the record; nil if there is none.
func offeredTicket(record []byte) []byte {
	extensions := clientHelloExtensions(record)
	for !extensions.Empty() {
		var extension uint16
		var data, identities, ticket cryptobyte.String
		if !extensions.ReadUint16(&extension) || !extensions.ReadUint16LengthPrefixed(&data) {
			return nil
		}
		if extension == extensionPreSharedKey && data.ReadUint16LengthPrefixed(&identities) && identities.ReadUint16LengthPrefixed(&ticket) {
			return ticket
		}
	}
	return nil
}

// clientHelloExtensions returns the extensions of the ClientHello in the record; nil for another record.
func clientHelloExtensions(record []byte) cryptobyte.String {
	const versionAndRandom = 2 + 32
	hello := cryptobyte.String(record)
	var kind uint8
	var body, session, suites, compressions, extensions cryptobyte.String
	if !hello.Skip(recordHeaderBytes) || !hello.ReadUint8(&kind) || kind != typeClientHello || !hello.ReadUint24LengthPrefixed(&body) {
		return nil
	}
	if !body.Skip(versionAndRandom) || !body.ReadUint8LengthPrefixed(&session) || !body.ReadUint16LengthPrefixed(&suites) ||
		!body.ReadUint8LengthPrefixed(&compressions) || !body.ReadUint16LengthPrefixed(&extensions) {
		return nil
	}
	return extensions
}

var _ net.Conn = (*helloConn)(nil)
