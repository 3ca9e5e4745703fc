package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// chunkSize is the most that a connection holds in flight per direction.
const chunkSize = 32 << 10

// relayedConn is one connection through a link.
type relayedConn struct {
	link   *Link
	client *net.TCPConn
	// cancel ends the dialling of the target.
	cancel context.CancelFunc

	// The link's lock guards the following fields.
	server    *net.TCPConn
	bytesLost bool // bytes were discarded
	wasReset  bool // reset was called
}

// run forwards the connection's bytes until both sides ended or it is reset.
func (c *relayedConn) run(ctx context.Context) {
	defer c.link.dropConn(c)
	defer c.cancel()
	defer c.client.Close()
	if c.recordLossIfHalfOpen(false) {
		// The connection arrived while the link was half-open: the target never sees it.
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
	if !c.attachServer(server.(*net.TCPConn)) {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { c.copyUntilEnd(server.(*net.TCPConn), c.client) })
	pumps.Go(func() { c.copyUntilEnd(c.client, server.(*net.TCPConn)) })
	pumps.Wait()
}

// copyUntilEnd forwards bytes from src to dst until src ends.
func (c *relayedConn) copyUntilEnd(dst, src *net.TCPConn) {
	buffer := make([]byte, chunkSize)
	for {
		n, err := src.Read(buffer)
		if c.recordLossIfHalfOpen(n > 0 || err != nil) {
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

// recordLossIfHalfOpen reports whether the link is half-open for this connection, and records a
// loss.
func (c *relayedConn) recordLossIfHalfOpen(loss bool) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.bytesLost {
		return true
	}
	if c.link.mode != HalfOpen {
		return false
	}
	c.bytesLost = loss
	return loss
}

// attachServer makes the target's side known to reset, unless reset came first.
func (c *relayedConn) attachServer(server *net.TCPConn) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.wasReset {
		_ = server.SetLinger(0)
		return false
	}
	c.server = server
	return true
}

// reset resets both sides at once, like a machine that lost its state.
func (c *relayedConn) reset() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.wasReset = true
	c.cancel()
	for _, side := range []*net.TCPConn{c.client, c.server} {
		if side != nil {
			_ = side.SetLinger(0)
			_ = side.Close()
		}
	}
}
