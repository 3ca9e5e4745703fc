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

// takeFrame takes a frame and answers it.
func (c *conn) takeFrame(frame []byte) error {
	p := parsers.Get().(*parser)
	p.Reset(frame)
	defer func() {
		p.Reset(nil)
		parsers.Put(p)
	}()
	w := writers.Get().(*writer)
	defer w.release()
	f, err := p.framer.ReadFrame()
	if err == nil {
		err = c.order(f)
	}
	if err == nil {
		err = c.take(w, f)
	}
	var s http2.StreamError
	if errors.As(err, &s) {
		err = c.resetStream(w, s)
	}
	if w.Len() > 0 {
		c.send(w)
	}
	var ce http2.ConnectionError
	if errors.As(err, &ce) {
		err = breach{http2.ErrCode(ce), "the peer broke the protocol: " + ce.Error()}
	}
	return err
}

// order holds the peer to the order of frames.
func (c *conn) order(f http2.Frame) error {
	h := f.Header()
	switch more := h.Type == http2.FrameContinuation; {
	case !c.greeted && h.Type != http2.FrameSettings:
		return breach{http2.ErrCodeProtocol, "the peer does not begin with settings"}
	case c.in.block == nil && more:
		return breach{http2.ErrCodeProtocol, "header fields go on that did not begin"}
	case c.in.block != nil && (!more || c.in.block.stream != h.StreamID):
		return breach{http2.ErrCodeProtocol, "header fields are broken off"}
	}
	return nil
}

// take one frame.
func (c *conn) take(w *writer, f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.takeData(w, f)
	case *http2.HeadersFrame:
		c.in.block = &block{stream: f.StreamID, last: f.StreamEnded()}
		return c.takeFields(w, f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.ContinuationFrame:
		return c.takeFields(w, f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.SettingsFrame:
		return c.takeSettings(w, f)
	case *http2.WindowUpdateFrame:
		return c.takeWindow(f)
	case *http2.PingFrame:
		return c.takePing(w, f)
	case *http2.RSTStreamFrame:
		return c.takeReset(f)
	case *http2.PushPromiseFrame:
		return breach{http2.ErrCodeProtocol, "the peer pushes"}
	case *http2.GoAwayFrame: // it opens no more calls; those that are go on
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.patience.spend(costLittle)
}

// stream that is open. The caller holds mu.
func (c *conn) stream(id uint32) *stream {
	for _, s := range c.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

// idle tells whether the peer never opened that stream. The caller holds mu.
func (c *conn) idle(id uint32) bool { return id > c.highest || id%2 == 0 }

// takeData hands data to its stream, and opens windows again.
func (c *conn) takeData(w *writer, f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	length := int64(f.Length)
	if c.recvLeft -= length; c.recvLeft < 0 {
		return breach{http2.ErrCodeFlowControl, "more data than the connection's window"}
	}
	if open := c.recvWindow - c.recvLeft; open >= int64(c.server.o.Window/2) {
		c.recvLeft += open
		if err := w.framer.WriteWindowUpdate(0, uint32(open)); err != nil {
			return err
		}
	}
	s := c.stream(f.StreamID)
	if s == nil {
		if c.idle(f.StreamID) {
			return breach{http2.ErrCodeProtocol, "data of a stream that nobody opened"}
		}
		return c.patience.spend(costLittle) // the peer may not know yet that it is closed
	}
	if s.ended {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	}
	if s.recvLeft -= length; s.recvLeft < 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	data := f.Data()
	if len(data) == 0 && !f.StreamEnded() {
		if err := c.patience.spend(costLittle); err != nil {
			return err
		}
	}
	s.takeData(data, f.StreamEnded())
	s.total += length
	if err := c.widen(w, s); err != nil {
		return err
	}
	if open := s.opening(); open > 0 {
		return w.framer.WriteWindowUpdate(s.id, open)
	}
	return nil
}

// takeSettings of the peer.
func (c *conn) takeSettings(w *writer, f *http2.SettingsFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted && c.err == nil {
		if f.IsAck() {
			return breach{http2.ErrCodeProtocol, "the peer does not begin with its settings"}
		}
		c.greeted = true
		_ = c.nc.SetDeadline(time.Time{}) // that of greeting
	}
	if f.IsAck() {
		return c.patience.spend(costLittle)
	}
	if err := c.patience.spend(costSettings); err != nil {
		return err
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		if s.ID != http2.SettingInitialWindowSize {
			return nil // frames and tables of the server are as small as any peer may ask for
		}
		for _, open := range c.streams {
			if open.sendWindow += int64(s.Val) - c.sendStart; open.sendWindow > math.MaxInt32 {
				return breach{http2.ErrCodeFlowControl, "too large a window"}
			}
		}
		c.sendStart = int64(s.Val)
		return nil
	})
	if err != nil {
		return err
	}
	c.change.Broadcast()
	return w.framer.WriteSettingsAck()
}

// takeWindow lets more be sent.
func (c *conn) takeWindow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.change.Broadcast()
	if err := c.patience.spend(costLittle); err != nil {
		return err
	}
	if f.StreamID == 0 {
		if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
			return breach{http2.ErrCodeFlowControl, "too large a window"}
		}
		c.sendMost = max(c.sendMost, c.sendWindow)
		return nil
	}
	s := c.stream(f.StreamID)
	if s == nil {
		if c.idle(f.StreamID) {
			return breach{http2.ErrCodeProtocol, "a window of a stream that nobody opened"}
		}
		return nil
	}
	if s.sendWindow += int64(f.Increment); s.sendWindow > math.MaxInt32 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	return nil
}

// takePing answers it.
func (c *conn) takePing(w *writer, f *http2.PingFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		return c.patience.spend(costLittle)
	}
	if err := c.patience.ping(c.heard.Load(), c.server.o.PingsApart); err != nil {
		return err
	}
	return w.framer.WritePing(true, f.Data)
}

// takeReset ends a call.
func (c *conn) takeReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle(f.StreamID) {
		return breach{http2.ErrCodeProtocol, "reset of a stream that nobody opened"}
	}
	if s := c.stream(f.StreamID); s != nil {
		s.silenced = true
		s.endLocked(status.Error(codes.Canceled, "the peer ended the call"))
	}
	return c.patience.spend(costReset)
}

// resetStream of which the peer broke the rules.
func (c *conn) resetStream(w *writer, e http2.StreamError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.stream(e.StreamID); s != nil {
		s.silenced = true
		s.endLocked(status.Errorf(codes.Internal, "the peer broke the protocol: %v", e.Code))
	}
	if err := c.patience.spend(costReset); err != nil {
		return err
	}
	return w.framer.WriteRSTStream(e.StreamID, e.Code)
}

// remove a stream whose handler has returned. The caller holds mu.
func (c *conn) remove(s *stream) {
	if i := slices.Index(c.streams, s); i >= 0 {
		c.streams = slices.Delete(c.streams, i, i+1)
		c.server.spare.Add(s.window - int64(c.server.o.Window))
	}
}
