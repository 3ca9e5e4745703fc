package h2

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var (
	errConnClosed = status.Error(codes.Canceled, "the connection has ended")
	errAborted    = status.Error(codes.Canceled, "context canceled")
	errNoProto    = errors.New("not a protobuf message")
)

// maxChunkBytes is the most that a call writes at once, so that the calls of a connection take
// turns.
const maxChunkBytes = 2 * maxFrameBytes

// reservedWindow is the part of a connection's window that is reserved for Inline calls; at most
// a quarter.
const reservedWindow = 64 << 10

// serverStream is one call, and the grpc.ServerStream of its handler.
type serverStream struct {
	conn   *serverConn
	id     uint32
	method *method
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by conn.mu:
	received      recvBuffer
	reading       bool  // the handler waits for a message
	remoteClosed  bool  // the peer has half-closed the stream
	remoteReset   bool  // the peer has reset the stream
	err           error // why the call ended for the handler
	window        int64 // size of the receive window
	recvAvailable int64 // part of it that the peer can still use
	receivedBytes int64 // bytes received, until the window has its full size
	sendWindow    int64
	turn          largeTurn   // for a message that is larger than the window
	turnTimer     *time.Timer // ends a call that has the turn for too long; nil without a turn

	// header fields were sent
	headersSent     bool // header fields were sent
	finished        bool // nothing more is sent
	header, trailer metadata.MD
}

// newStream returns the stream of a request. The caller holds conn.mu.
func newStream(c *serverConn, id uint32, m *method, r *requestHeaders) *serverStream {
	s := &serverStream{conn: c, id: id, method: m, window: int64(c.server.options.Window), recvAvailable: int64(c.server.options.Window), sendWindow: c.initialSendWindow}
	ctx := metadata.NewIncomingContext(c.baseContext, r.md)
	ctx = grpc.NewContextWithServerTransportStream(ctx, (*streamTransport)(s))
	if r.timeout == 0 {
		s.ctx, s.cancel = context.WithCancel(ctx)
		return s
	}
	s.ctx, s.cancel = context.WithTimeout(ctx, r.timeout)
	context.AfterFunc(s.ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.endLocked(status.FromContextError(s.ctx.Err()).Err())
	})
	return s
}

// streamTransport is the view of a stream that package grpc finds in the call's context.
type streamTransport serverStream

func (t *streamTransport) Method() string                  { return t.method.name }
func (t *streamTransport) SetHeader(md metadata.MD) error  { return (*serverStream)(t).SetHeader(md) }
func (t *streamTransport) SendHeader(md metadata.MD) error { return (*serverStream)(t).SendHeader(md) }
func (t *streamTransport) SetTrailer(md metadata.MD) error {
	(*serverStream)(t).SetTrailer(md)
	return nil
}

// endLocked ends the call for its handler. The caller holds conn.mu.
func (s *serverStream) endLocked(why error) {
	if s.err != nil {
		return
	}
	s.err = why
	s.endTurn()
	s.cancel()
	s.conn.wakeReader()
}

// abortCall ends the call, so that the handler stops waiting for the peer.
func (s *serverStream) abortCall() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.endLocked(errAborted)
}

// run runs the handler and sends its status to the peer.
func (s *serverStream) run() {
	s.sendStatus(s.handle())
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.endLocked(errAborted)
	s.received.dropAll()
}

func (s *serverStream) handle() error {
	if s.method.stream != nil {
		return s.method.stream(s.method.impl, s)
	}
	reply, err := s.method.unary(s.method.impl, s.ctx, s.RecvMsg, nil)
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}

// sendStatus removes the stream from the open ones and sends its status. It removes first,
// because the peer may open the next stream as soon as it reads the status.
func (s *serverStream) sendStatus(err error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	c := s.conn
	w := writers.Get().(*frameWriter)
	defer w.release()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	c.remove(s)
	remoteClosed, gone := s.remoteClosed, s.remoteReset || c.err != nil
	var flooded error
	switch {
	case st.Code() == codes.PermissionDenied || st.Code() == codes.Unauthenticated:
		flooded = c.flood.spendAllowance(costLittle)
	case !gone:
		c.flood.earnAllowance()
	}
	if flooded != nil {
		c.failLocked(flooded)
	}
	c.mu.Unlock()
	s.finished = true
	if gone || flooded != nil {
		return
	}
	last := trailerFields(s.headersSent, "200", st, s.trailer)
	if !s.headersSent {
		last = append(last, customHeaderFields(s.header)...)
	}
	if errors.Join(w.writeFields(s.id, true, last), w.resetUnlessEnded(s.id, remoteClosed)) == nil {
		_ = c.flush(w) // a failed write ends the connection
	}
}

// Context returns the context of the call.
func (s *serverStream) Context() context.Context { return s.ctx }

// SetHeader adds header fields, which are sent before the first message.
func (s *serverStream) SetHeader(md metadata.MD) error {
	s.conn.writeMu.Lock()
	defer s.conn.writeMu.Unlock()
	if s.headersSent || s.finished {
		return status.Error(codes.Internal, "header fields were sent already")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader adds header fields and sends them now.
func (s *serverStream) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	w := writers.Get().(*frameWriter)
	defer w.release()
	s.conn.writeMu.Lock()
	defer s.conn.writeMu.Unlock()
	if err := s.writeHead(w); err != nil {
		return err
	}
	return unavailableError(s.conn.flush(w))
}

// writeHead writes the header fields once. The caller holds conn.writeMu.
func (s *serverStream) writeHead(w *frameWriter) error {
	if s.headersSent {
		return nil
	}
	s.headersSent = true
	return w.writeFields(s.id, false, append(responseHeaderFields("200"), customHeaderFields(s.header)...))
}

// SetTrailer adds fields that are sent with the status.
func (s *serverStream) SetTrailer(md metadata.MD) {
	s.conn.writeMu.Lock()
	defer s.conn.writeMu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

// SendMsg sends a message. It returns when the message was written.
func (s *serverStream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "send %T: %v", m, errNoProto)
	}
	buffer := getBuffer(PrefixBytes + proto.Size(message))
	defer recycleBuffer(buffer)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(append(*buffer, make([]byte, PrefixBytes)...), message)
	if err != nil {
		return status.Errorf(codes.Internal, "write %T: %v", m, err)
	}
	*buffer = b
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-PrefixBytes))
	for len(b) > 0 {
		n, err := s.sendSome(b)
		if err != nil {
			return err
		}
		if b = b[n:]; n == 0 {
			s.awaitWindow()
		}
	}
	return nil
}

// sendSome sends as much of b as the windows allow. n can be zero.
func (s *serverStream) sendSome(b []byte) (n int, err error) {
	c := s.conn
	if !s.method.inline {
		c.bulkMu.Lock()
		defer c.bulkMu.Unlock()
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if s.finished {
		return 0, status.Error(codes.Internal, "send on a call that has ended")
	}
	c.mu.Lock()
	err = s.err
	if n = int(min(int64(len(b)), maxChunkBytes, s.sendableBytes())); err == nil && n > 0 {
		c.sendWindow -= int64(n)
		s.sendWindow -= int64(n)
		c.flood.earnAllowance()
	}
	c.mu.Unlock()
	if err != nil || n <= 0 {
		return 0, err
	}
	w := writers.Get().(*frameWriter)
	defer w.release()
	if err := s.writeHead(w); err != nil {
		return 0, status.Error(codes.Internal, err.Error())
	}
	for rest := b[:n]; len(rest) > 0; rest = rest[min(len(rest), maxFrameBytes):] {
		if err := w.framer.WriteData(s.id, false, rest[:min(len(rest), maxFrameBytes)]); err != nil {
			return 0, status.Error(codes.Internal, err.Error())
		}
	}
	return n, unavailableError(c.flush(w))
}

// sendableBytes returns how much the stream can send now. A stream that is not Inline leaves
// reservedWindow of the connection's window to Inline streams. The caller holds conn.mu.
func (s *serverStream) sendableBytes() int64 {
	ofConn := s.conn.sendWindow
	if !s.method.inline {
		ofConn -= min(reservedWindow, s.conn.maxSendWindow/4)
	}
	return min(ofConn, s.sendWindow)
}

func unavailableError(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Unavailable, err.Error())
}

// awaitWindow waits until the stream can send, or the call has ended.
func (s *serverStream) awaitWindow() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitCondition(func() bool { return s.err != nil || c.err != nil || s.sendableBytes() > 0 })
}

// RecvMsg waits for a message. It reads the connection when no other goroutine does.
func (s *serverStream) RecvMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "receive %T: %v", m, errNoProto)
	}
	raw, increment, err := s.nextMessage()
	if err != nil {
		return err
	}
	defer recycleBuffer(raw)
	if increment > 0 {
		s.sendWindowUpdate(increment)
	}
	if err := proto.Unmarshal((*raw)[PrefixBytes:], message); err != nil {
		return status.Errorf(codes.Internal, "read %T: %v", m, err)
	}
	return nil
}

// nextMessage returns the next message with its prefix, and the window to return to the peer.
// Messages that were received before the connection ended are still returned. An aborted call
// ends at once.
func (s *serverStream) nextMessage() (raw *[]byte, increment uint32, err error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.isReadable() {
		s.reading = true
		if increment := s.windowIncrement(); increment > 0 { // for the rest of a message that is larger
			c.mu.Unlock()
			s.sendWindowUpdate(increment)
			c.mu.Lock()
		}
		c.awaitCondition(s.isReadable)
		s.reading = false
	}
	length, whole, err := s.received.firstMessage(s.method.maxMessageBytes)
	switch {
	case s.err != nil && !errors.Is(s.err, errConnClosed):
		return nil, 0, s.err
	case err != nil:
		return nil, 0, err
	case whole:
		s.endTurn()
		raw = s.received.takeMessage(length)
		return raw, s.windowIncrement(), nil
	case s.remoteClosed && s.received.byteSize() > 0:
		return nil, 0, status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	case s.remoteClosed:
		return nil, 0, io.EOF
	}
	return nil, 0, errConnClosed
}

// isReadable reports whether the handler can receive without waiting. The caller holds conn.mu.
func (s *serverStream) isReadable() bool {
	_, whole, err := s.received.firstMessage(s.method.maxMessageBytes)
	return whole || err != nil || s.remoteClosed || s.err != nil || s.conn.err != nil
}

// receiveData adds data of the peer. The caller holds conn.mu.
func (s *serverStream) receiveData(data []byte, last bool) {
	if s.err == nil {
		s.received.add(data)
	}
	s.remoteClosed = s.remoteClosed || last
	s.conn.change.Broadcast()
}

// windowIncrement returns the window to return to the peer: all but the unread data. While the
// handler waits for the rest of a message, the unread data is not subtracted, so that a message
// can be larger than the window when its turn has come. The caller holds conn.mu.
func (s *serverStream) windowIncrement() uint32 {
	held := 0
	if !s.reading || s.isReadable() || !s.mayExceedWindow() {
		held = s.received.byteSize()
	}
	open := s.window - int64(held) - s.recvAvailable
	if s.remoteClosed || s.err != nil || open < s.window/2 {
		return 0
	}
	s.recvAvailable += open
	return uint32(open)
}

// sendWindowUpdate returns window to the peer.
func (s *serverStream) sendWindowUpdate(by uint32) {
	w := writers.Get().(*frameWriter)
	defer w.release()
	s.conn.writeMu.Lock()
	defer s.conn.writeMu.Unlock()
	if err := w.framer.WriteWindowUpdate(s.id, by); err == nil && !s.finished {
		_ = s.conn.flush(w) // a failed write ends the connection
	}
}
