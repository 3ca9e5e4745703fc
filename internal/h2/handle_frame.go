package h2

import (
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// processFrame parses, checks and handles one frame, and writes the answer.
func (c *serverConn) processFrame(frame []byte) error {
	p := parsers.Get().(*parser)
	p.Reset(frame)
	defer func() {
		p.Reset(nil)
		parsers.Put(p)
	}()
	w := writers.Get().(*frameWriter)
	defer w.release()
	f, err := p.framer.ReadFrame()
	if err == nil {
		err = c.checkFrameOrder(f)
	}
	if err == nil {
		err = c.handleFrame(w, f)
	}
	var s http2.StreamError
	if errors.As(err, &s) {
		err = c.resetStream(w, s)
	}
	if w.Len() > 0 {
		c.flushReplies(w)
	}
	var ce http2.ConnectionError
	if errors.As(err, &ce) {
		err = connError{http2.ErrCode(ce), "the peer broke the protocol: " + ce.Error()}
	}
	return err
}

// checkFrameOrder returns an error when HTTP/2 does not allow the frame at this point.
func (c *serverConn) checkFrameOrder(f http2.Frame) error {
	h := f.Header()
	switch more := h.Type == http2.FrameContinuation; {
	case !c.settingsReceived && h.Type != http2.FrameSettings:
		return connError{http2.ErrCodeProtocol, "the first frame is not SETTINGS"}
	case c.input.block == nil && more:
		return connError{http2.ErrCodeProtocol, "a continuation without header fields before it"}
	case c.input.block != nil && (!more || c.input.block.stream != h.StreamID):
		return connError{http2.ErrCodeProtocol, "another frame within a header block"}
	}
	return nil
}

// handleFrame handles one frame.
func (c *serverConn) handleFrame(w *frameWriter, f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.handleData(w, f)
	case *http2.HeadersFrame:
		c.input.block = &headerBlock{stream: f.StreamID, endStream: f.StreamEnded()}
		return c.readHeaderFragment(w, f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.ContinuationFrame:
		return c.readHeaderFragment(w, f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.SettingsFrame:
		return c.handleSettings(w, f)
	case *http2.WindowUpdateFrame:
		return c.handleWindowUpdate(f)
	case *http2.PingFrame:
		return c.handlePing(w, f)
	case *http2.RSTStreamFrame:
		return c.handleReset(f)
	case *http2.PushPromiseFrame:
		return connError{http2.ErrCodeProtocol, "the peer sent PUSH_PROMISE"}
	case *http2.GoAwayFrame: // the peer opens no more calls; open ones continue
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flood.spendAllowance(costLittle)
}

// findStream returns the open stream with that number, or nil. The caller holds mu.
func (c *serverConn) findStream(id uint32) *serverStream {
	for _, s := range c.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

// isIdleStream reports whether the peer never opened that stream. The caller holds mu.
func (c *serverConn) isIdleStream(id uint32) bool { return id > c.lastStreamID || id%2 == 0 }

// handleData passes data to its stream and returns window to the peer.
func (c *serverConn) handleData(w *frameWriter, f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	length := int64(f.Length)
	if err := c.chargeRecvWindow(w, length); err != nil {
		return err
	}
	s := c.findStream(f.StreamID)
	if s == nil {
		if c.isIdleStream(f.StreamID) {
			return connError{http2.ErrCodeProtocol, "data on an unopened stream"}
		}
		return c.flood.spendAllowance(costLittle) // the peer may not have read yet that it is closed
	}
	if s.remoteClosed {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	}
	if s.recvAvailable -= length; s.recvAvailable < 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	data := f.Data()
	if len(data) == 0 && !f.StreamEnded() {
		if err := c.flood.spendAllowance(costLittle); err != nil {
			return err
		}
	}
	s.receiveData(data, f.StreamEnded())
	s.receivedBytes += length
	if err := c.widenWindow(w, s); err != nil {
		return err
	}
	if open := s.windowIncrement(); open > 0 {
		return w.framer.WriteWindowUpdate(s.id, open)
	}
	return nil
}

// chargeRecvWindow charges received data to the connection's window, and returns window to the peer
// once half of it is used. The caller holds mu.
func (c *serverConn) chargeRecvWindow(w *frameWriter, length int64) error {
	if c.recvAvailable -= length; c.recvAvailable < 0 {
		return connError{http2.ErrCodeFlowControl, "more data than the connection's window"}
	}
	increment := c.recvWindow - c.recvAvailable
	if increment < int64(c.server.options.Window/2) {
		return nil
	}
	c.recvAvailable += increment
	return w.framer.WriteWindowUpdate(0, uint32(increment))
}

// handleSettings applies the peer's settings.
func (c *serverConn) handleSettings(w *frameWriter, f *http2.SettingsFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settingsReceived && c.err == nil {
		if f.IsAck() {
			return connError{http2.ErrCodeProtocol, "the first SETTINGS frame is an acknowledgement"}
		}
		c.settingsReceived = true
		_ = c.netConn.SetDeadline(time.Time{}) // the deadline of the handshake
	}
	if f.IsAck() {
		return c.flood.spendAllowance(costLittle)
	}
	if err := c.flood.spendAllowance(costSettings); err != nil {
		return err
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		if s.ID != http2.SettingInitialWindowSize {
			return nil // the server's frames and tables have the smallest sizes that a peer can require
		}
		for _, open := range c.streams {
			if open.sendWindow += int64(s.Val) - c.initialSendWindow; open.sendWindow > math.MaxInt32 {
				return connError{http2.ErrCodeFlowControl, "the window is larger than allowed"}
			}
		}
		c.initialSendWindow = int64(s.Val)
		return nil
	})
	if err != nil {
		return err
	}
	c.change.Broadcast()
	return w.framer.WriteSettingsAck()
}

// handleWindowUpdate enlarges a send window and wakes the senders.
func (c *serverConn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.change.Broadcast()
	if err := c.flood.spendAllowance(costLittle); err != nil {
		return err
	}
	if f.StreamID == 0 {
		if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
			return connError{http2.ErrCodeFlowControl, "the window is larger than allowed"}
		}
		c.maxSendWindow = max(c.maxSendWindow, c.sendWindow)
		return nil
	}
	s := c.findStream(f.StreamID)
	if s == nil {
		if c.isIdleStream(f.StreamID) {
			return connError{http2.ErrCodeProtocol, "a window update on an unopened stream"}
		}
		return nil
	}
	if s.sendWindow += int64(f.Increment); s.sendWindow > math.MaxInt32 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	return nil
}

// handlePing answers a ping.
func (c *serverConn) handlePing(w *frameWriter, f *http2.PingFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		return c.flood.spendAllowance(costLittle)
	}
	if err := c.flood.checkPing(c.lastRead.Load(), c.server.options.PingsApart); err != nil {
		return err
	}
	return w.framer.WritePing(true, f.Data)
}

// handleReset ends a call that the peer canceled.
func (c *serverConn) handleReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isIdleStream(f.StreamID) {
		return connError{http2.ErrCodeProtocol, "a reset of an unopened stream"}
	}
	if s := c.findStream(f.StreamID); s != nil {
		s.remoteReset = true
		s.endLocked(status.Error(codes.Canceled, "the peer canceled the call"))
	}
	return c.flood.spendAllowance(costReset)
}

// resetStream resets a stream on which the peer broke the protocol.
func (c *serverConn) resetStream(w *frameWriter, e http2.StreamError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.findStream(e.StreamID); s != nil {
		s.remoteReset = true
		s.endLocked(status.Errorf(codes.Internal, "the peer broke the protocol: %v", e.Code))
	}
	if err := c.flood.spendAllowance(costReset); err != nil {
		return err
	}
	return w.framer.WriteRSTStream(e.StreamID, e.Code)
}

// remove removes a stream from the open ones, and returns its spare window. The caller holds mu.
func (c *serverConn) remove(s *serverStream) {
	if i := slices.Index(c.streams, s); i >= 0 {
		c.streams = slices.Delete(c.streams, i, i+1)
		c.server.spare.Add(s.window - int64(c.server.options.Window))
	}
}
