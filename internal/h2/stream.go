package h2

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var (
	errGone    = status.Error(codes.Canceled, "the connection is over")
	errHungUp  = status.Error(codes.Canceled, "context canceled")
	errNoProto = errors.New("not a message of protobuf")
)

// chunkMost is written at once, so that calls of a connection take turns.
const chunkMost = 2 * frameMost

// windowReserved of a connection's window for calls that are Inline, a quarter at most.
const windowReserved = 64 << 10

// stream is one call. It is its handler's grpc.ServerStream.
type stream struct {
	c      *conn
	id     uint32
	method *method
	ctx    context.Context
	cancel context.CancelFunc

	// Under the connection's mu:
	came       pile
	reading    bool  // the handler waits for a message
	ended      bool  // the peer says no more
	silenced   bool  // nor listens
	err        error // why the call is over for the handler
	window     int64 // what the handler need not have read
	recvLeft   int64 // what the peer may send
	total      int64 // that it has sent, until window is as large as it may be
	sendWindow int64

	// Under the connection's wmu:
	headed          bool // header fields were sent
	over            bool // nothing more is sent
	header, trailer metadata.MD
}

// newStream of a request. The caller holds the connection's mu.
func newStream(c *conn, id uint32, m *method, r *request) *stream {
	s := &stream{c: c, id: id, method: m, window: int64(c.server.o.Window), recvLeft: int64(c.server.o.Window), sendWindow: c.sendStart}
	ctx := metadata.NewIncomingContext(c.base, r.md)
	ctx = grpc.NewContextWithServerTransportStream(ctx, (*transport)(s))
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

// transport is what package grpc finds of a stream in its context.
type transport stream

func (t *transport) Method() string                  { return t.method.name }
func (t *transport) SetHeader(md metadata.MD) error  { return (*stream)(t).SetHeader(md) }
func (t *transport) SendHeader(md metadata.MD) error { return (*stream)(t).SendHeader(md) }
func (t *transport) SetTrailer(md metadata.MD) error {
	(*stream)(t).SetTrailer(md)
	return nil
}

// endLocked ends the call for its handler. The caller holds the connection's mu.
func (s *stream) endLocked(why error) {
	if s.err != nil {
		return
	}
	s.err = why
	s.cancel()
	s.c.poke()
}

// hangUp frees the handler from waiting for the peer.
func (s *stream) hangUp() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.endLocked(errHungUp)
}

// run the handler, and tell the peer how it ended.
func (s *stream) run() {
	s.finish(s.handle())
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.endLocked(errHungUp)
	c.remove(s)
	s.came.drop()
}

func (s *stream) handle() error {
	if s.method.stream != nil {
		return s.method.stream(s.method.impl, s)
	}
	reply, err := s.method.unary(s.method.impl, s.ctx, s.RecvMsg, nil)
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}

// finish tells the peer the status.
func (s *stream) finish(err error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	c := s.c
	w := writers.Get().(*writer)
	defer w.release()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	ended, gone := s.ended, s.silenced || c.err != nil
	var broke error
	switch {
	case st.Code() == codes.PermissionDenied || st.Code() == codes.Unauthenticated:
		broke = c.patience.spend(costLittle)
	case !gone:
		c.patience.earn()
	}
	if broke != nil {
		c.failLocked(broke)
	}
	c.mu.Unlock()
	s.over = true
	if gone || broke != nil {
		return
	}
	last := lastFields(s.headed, "200", st, s.trailer)
	if !s.headed {
		last = append(last, userFields(s.header)...)
	}
	if errors.Join(w.fields(s.id, true, last), w.end(s.id, ended)) == nil {
		_ = c.flush(w) // the connection is over by that
	}
}

// Context of the call.
func (s *stream) Context() context.Context { return s.ctx }

// SetHeader adds to what is sent before the first message.
func (s *stream) SetHeader(md metadata.MD) error {
	s.c.wmu.Lock()
	defer s.c.wmu.Unlock()
	if s.headed || s.over {
		return status.Error(codes.Internal, "header fields were sent already")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader sends them now.
func (s *stream) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	w := writers.Get().(*writer)
	defer w.release()
	s.c.wmu.Lock()
	defer s.c.wmu.Unlock()
	if err := s.head(w); err != nil {
		return err
	}
	return unavailable(s.c.flush(w))
}

// head writes the header fields, once. The caller holds wmu.
func (s *stream) head(w *writer) error {
	if s.headed {
		return nil
	}
	s.headed = true
	return w.fields(s.id, false, append(firstFields("200"), userFields(s.header)...))
}

// SetTrailer adds to what is sent with the status.
func (s *stream) SetTrailer(md metadata.MD) {
	s.c.wmu.Lock()
	defer s.c.wmu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

// SendMsg returns when the message was written.
func (s *stream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "send %T: %v", m, errNoProto)
	}
	buffer := bufferOf(PrefixBytes + proto.Size(message))
	defer keep(buffer)
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

// sendSome of a message, as much as the peer's windows take; n may be zero.
func (s *stream) sendSome(b []byte) (n int, err error) {
	c := s.c
	if !s.method.inline {
		c.bulk.Lock()
		defer c.bulk.Unlock()
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if s.over {
		return 0, status.Error(codes.Internal, "send on a call that is over")
	}
	c.mu.Lock()
	err = s.err
	if n = int(min(int64(len(b)), chunkMost, s.sendable())); err == nil && n > 0 {
		c.sendWindow -= int64(n)
		s.sendWindow -= int64(n)
		c.patience.earn()
	}
	c.mu.Unlock()
	if err != nil || n <= 0 {
		return 0, err
	}
	w := writers.Get().(*writer)
	defer w.release()
	if err := s.head(w); err != nil {
		return 0, status.Error(codes.Internal, err.Error())
	}
	for rest := b[:n]; len(rest) > 0; rest = rest[min(len(rest), frameMost):] {
		if err := w.framer.WriteData(s.id, false, rest[:min(len(rest), frameMost)]); err != nil {
			return 0, status.Error(codes.Internal, err.Error())
		}
	}
	return n, unavailable(c.flush(w))
}

// sendable is how much of its windows the stream may use now. What is not Inline leaves a part of the connection's
// to those that are. The caller holds the connection's mu.
func (s *stream) sendable() int64 {
	ofConn := s.c.sendWindow
	if !s.method.inline {
		ofConn -= min(windowReserved, s.c.sendMost/4)
	}
	return min(ofConn, s.sendWindow)
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Unavailable, err.Error())
}

// awaitWindow waits until something may be sent, or the call is over.
func (s *stream) awaitWindow() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.await(func() bool { return s.err != nil || c.err != nil || s.sendable() > 0 })
}

// RecvMsg waits for a message, and reads the connection meanwhile where nobody does.
func (s *stream) RecvMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "receive %T: %v", m, errNoProto)
	}
	raw, open, err := s.next()
	if err != nil {
		return err
	}
	defer keep(raw)
	if open > 0 {
		s.open(open)
	}
	if err := proto.Unmarshal((*raw)[PrefixBytes:], message); err != nil {
		return status.Errorf(codes.Internal, "read %T: %v", m, err)
	}
	return nil
}

// next message with its prefix, and how far the window is to be opened again. Messages
// that came before the end of the connection are handed over; a call that is hung up
// ends at once.
func (s *stream) next() (raw *[]byte, open uint32, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.ready() {
		s.reading = true
		if open := s.opening(); open > 0 { // for the rest of a message that is larger
			c.mu.Unlock()
			s.open(open)
			c.mu.Lock()
		}
		c.await(s.ready)
		s.reading = false
	}
	length, whole, err := s.came.first(s.method.most)
	switch {
	case s.err != nil && !errors.Is(s.err, errGone):
		return nil, 0, s.err
	case err != nil:
		return nil, 0, err
	case whole:
		raw = s.came.take(length)
		return raw, s.opening(), nil
	case s.ended && s.came.size() > 0:
		return nil, 0, status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	case s.ended:
		return nil, 0, io.EOF
	}
	return nil, 0, errGone
}

// ready tells whether the handler need not wait for a message. The caller holds the
// connection's mu.
func (s *stream) ready() bool {
	_, whole, err := s.came.first(s.method.most)
	return whole || err != nil || s.ended || s.err != nil || s.c.err != nil
}

// takeData of the peer. The caller holds the connection's mu.
func (s *stream) takeData(data []byte, last bool) {
	if s.err == nil {
		s.came.add(data)
	}
	s.ended = s.ended || last
	s.c.change.Broadcast()
}

// opening is how far the window is to be opened: it holds what the handler has not
// read. While he waits for a message it holds none of it, so that a message may be
// larger. The caller holds the connection's mu.
func (s *stream) opening() uint32 {
	held := 0
	if !s.reading || s.ready() {
		held = s.came.size()
	}
	open := s.window - int64(held) - s.recvLeft
	if s.ended || s.err != nil || open < s.window/2 {
		return 0
	}
	s.recvLeft += open
	return uint32(open)
}

// open the window.
func (s *stream) open(by uint32) {
	w := writers.Get().(*writer)
	defer w.release()
	s.c.wmu.Lock()
	defer s.c.wmu.Unlock()
	if err := w.framer.WriteWindowUpdate(s.id, by); err == nil && !s.over {
		_ = s.c.flush(w) // the connection is over by that
	}
}
