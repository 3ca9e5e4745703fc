package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// chunk is the most that a connection holds in flight per direction.
const chunk = 32 << 10

// conn is one connection through a link.
type conn struct {
	link   *Link
	client *net.TCPConn
	// cancel ends the dialling of the target.
	cancel context.CancelFunc

	// The link's lock guards what follows.
	server *net.TCPConn
	lost   bool // something was swallowed
	dead   bool // reset was called
}

// run passes the connection's bytes until both sides ended or it is reset.
func (c *conn) run(ctx context.Context) {
	defer c.link.forget(c)
	defer c.cancel()
	defer c.client.Close()
	if c.swallows(false) {
		// It came while the link was half-open: the target never hears of it.
		_, _ = io.Copy(io.Discard, c.client)
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(ctx, "tcp", c.link.target)
	if err != nil {
		c.reset()
		return
	}
	defer server.Close()
	if !c.attach(server.(*net.TCPConn)) {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(server.(*net.TCPConn), c.client) })
	pumps.Go(func() { c.pump(c.client, server.(*net.TCPConn)) })
	pumps.Wait()
}

// pump passes bytes from src to dst until src ends.
func (c *conn) pump(dst, src *net.TCPConn) {
	buffer := make([]byte, chunk)
	for {
		n, err := src.Read(buffer)
		if c.swallows(n > 0 || err != nil) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, werr := dst.Write(buffer[:n]); werr != nil {
				c.reset()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = dst.CloseWrite()
			return
		}
		if err != nil {
			c.reset()
			return
		}
	}
}

// swallows says whether the link is half-open for this connection, and if so
// remembers a loss.
func (c *conn) swallows(loss bool) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.lost {
		return true
	}
	if c.link.mode != HalfOpen {
		return false
	}
	c.lost = loss
	return loss
}

// attach makes the target's side known to reset, unless reset came first.
func (c *conn) attach(server *net.TCPConn) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.dead {
		_ = server.SetLinger(0)
		return false
	}
	c.server = server
	return true
}

// reset ends both sides at once, as a machine does that lost its state.
func (c *conn) reset() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.dead = true
	c.cancel()
	for _, side := range []*net.TCPConn{c.client, c.server} {
		if side != nil {
			_ = side.SetLinger(0)
			_ = side.Close()
		}
	}
}
