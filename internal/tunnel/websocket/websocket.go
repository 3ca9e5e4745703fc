package websocket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/tunnel"
)

const (
	// Path at which hubs take WebSockets of agents.
	Path = "/atoll.dev/agents"
	// protocol that is spoken on them.
	protocol = "v1.agents.atoll.dev"
	// handshakeTimeout bounds TLS with the proxy, and HTTP.
	handshakeTimeout = 10 * time.Second
	// answerMost bounds what is read before the WebSocket is open: certificates of the proxy, and the header of its
	// answer.
	answerMost = 256 << 10
	// bufferBytes of what is read at a time.
	bufferBytes = 4 << 10
	// pieceFirst is what a message is read into, until more comes at once.
	pieceFirst = 1 << 10
	// messageMost is more than either end puts into a message.
	messageMost = 2 * tunnel.PieceMost
)

var writing = &sync.Pool{}

// WebSocketDialer reaches hubs. Those without a default are required.
type WebSocketDialer struct {
	// Dial gives a connection to an address, as net.Dialer does.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Roots verify the proxy.
	Roots *x509.CertPool
	// Plain speaks HTTP without TLS.
	Plain bool
}

// URL returns the URL of the hub at an address.
func (d WebSocketDialer) URL(address string) string {
	if d.Plain {
		return "ws://" + address + Path
	}
	return "wss://" + address + Path
}

// StatusError is an HTTP answer other than that the protocol is switched.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the answer is %d %s", e.Code, http.StatusText(e.Code))
	switch e.Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return text + ": does it reach the hub?"
	}
	return text + ": does it pass " + Path + " on to the hub, with the header Upgrade?"
}

// Open opens a connection to the hub at an address.
func (d WebSocketDialer) Open(ctx context.Context, address string) (net.Conn, error) {
	var answering *answeringConn
	dialer := &gorilla.Dialer{
		NetDialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := d.Dial(ctx, address)
			if err != nil {
				return nil, err
			}
			answering = &answeringConn{Conn: conn, left: answerMost}
			return answering, nil
		},
		TLSClientConfig:  &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: d.Roots, NextProtos: []string{"http/1.1"}},
		HandshakeTimeout: handshakeTimeout,
		Subprotocols:     []string{protocol},
		ReadBufferSize:   bufferBytes, WriteBufferSize: bufferBytes, WriteBufferPool: writing,
	}
	ws, answer, err := dialer.DialContext(ctx, d.URL(address), nil)
	if errors.Is(err, gorilla.ErrBadHandshake) && answer != nil {
		err = &StatusError{Code: answer.StatusCode}
	}
	if err != nil {
		return nil, fmt.Errorf("by WebSocket at %s: %w", d.URL(address), err)
	}
	answering.opened = true
	return carryBytes(ws, address), nil
}

// errLongAnswer ends a connection whose peer answers without an end.
var errLongAnswer = fmt.Errorf("the answer has more than %d KiB", answerMost>>10)

// answeringConn bounds what is read until the WebSocket is open. One goroutine reads.
type answeringConn struct {
	net.Conn
	left   int
	opened bool
}

// Read reads from the connection, up to the bound of the answer.
func (c *answeringConn) Read(b []byte) (int, error) {
	if c.opened {
		return c.Conn.Read(b)
	}
	if c.left <= 0 {
		return 0, errLongAnswer
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

var upgrader = &gorilla.Upgrader{
	HandshakeTimeout: handshakeTimeout, Subprotocols: []string{protocol},
	WriteBufferSize: bufferBytes, WriteBufferPool: writing,
}

// UpgradeRequest makes a connection of a request. It answers requests that are none.
func UpgradeRequest(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, fmt.Errorf("a WebSocket from %s: %w", r.RemoteAddr, err)
	}
	return carryBytes(ws, r.RemoteAddr), nil
}

// carryBytes returns a net.Conn that carries its bytes over the WebSocket.
func carryBytes(ws *gorilla.Conn, name string) net.Conn {
	ws.SetReadLimit(messageMost)
	s := &messageStream{ws: ws, next: pieceFirst}
	conn := tunnel.New(s, s.closeNow, name)
	go func() {
		_ = conn.PumpMessages() // the reader gets an error
		_ = conn.Close()
	}()
	return conn
}

// messageStream is one end of a WebSocket, for a tunnel.
type messageStream struct {
	ws      *gorilla.Conn
	message io.Reader // that is being read
	next    int       // bytes to read at once
}

// Send sends a message.
func (s *messageStream) Send(p *wrapperspb.BytesValue) error {
	return s.ws.WriteMessage(gorilla.BinaryMessage, p.GetValue())
}

// Recv receives a part of a message: a proxy may have cut and joined them.
func (s *messageStream) Recv() (*wrapperspb.BytesValue, error) {
	for {
		if s.message == nil {
			kind, r, err := s.ws.NextReader()
			var closed *gorilla.CloseError
			switch {
			case errors.As(err, &closed):
				return nil, io.EOF
			case err != nil:
				return nil, err
			case kind != gorilla.BinaryMessage:
				return nil, errors.New("a text came by a WebSocket of bytes")
			}
			s.message = r
		}
		b := make([]byte, s.next)
		n, err := s.message.Read(b)
		if errors.Is(err, io.EOF) {
			s.message = nil
		} else if err != nil {
			return nil, err
		}
		if s.next = pieceFirst; n == len(b) {
			s.next = tunnel.PieceMost
		}
		if n > 0 {
			return wrapperspb.Bytes(b[:n]), nil
		}
	}
}

// closeNow cuts the WebSocket off without a word, which might have to wait: the carried protocol
// reports how it ends.
func (s *messageStream) closeNow() {
	conn := s.ws.NetConn()
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	_ = conn.Close() // its end is not reported
}
