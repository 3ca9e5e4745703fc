package tunnel

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// shareBytes of all tunnels may be with gRPC's client before they are written: other frames of the
	// connection stand behind them. 50 ms of 20 Mbit/s, and twice what gRPC
	// takes of one tunnel, so that one alone does not notice.
	shareBytes = 128 << 10
	// loanMost is how long a piece counts. One that is not written by then is of a tunnel
	// that the other end does not read, and must not keep others waiting.
	loanMost = 250 * time.Millisecond
)

// SendBudget bounds the data of one connection's tunnels in gRPC's client at a time. The client gives
// each stream its turn, and would take 96 KiB of every tunnel: of fifty, a session's message would
// wait for all of them. The zero value is ready; it is safe for concurrent use.
type SendBudget struct {
	mu      sync.Mutex
	used    int
	loans   []*byteReservation // that count, the oldest first
	waiting []*borrower
	timer   *time.Timer // looks for loans that are too old, while a tunnel waits
}

// byteReservation is a reservation of a piece's bytes.
type byteReservation struct {
	of    *SendBudget
	bytes int
	since time.Time
}

type borrower struct {
	bytes int
	got   chan *byteReservation
}

// reserveBytes takes a loan, in turn.
func (s *SendBudget) reserveBytes(ctx context.Context, bytes int) (*byteReservation, error) {
	b := &borrower{bytes: bytes, got: make(chan *byteReservation, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, b)
	s.grantReservations()
	s.mu.Unlock()
	select {
	case l := <-b.got:
		return l, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, b); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else {
		s.dropReservation(<-b.got)
	}
	s.grantReservations()
	return nil, context.Cause(ctx)
}

// release ends with a loan: the piece is written, or dropped.
func (l *byteReservation) release() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.dropReservation(l)
	l.of.grantReservations()
}

// dropReservation ends a loan, if it counts still. The caller holds mu.
func (s *SendBudget) dropReservation(l *byteReservation) {
	if i := slices.Index(s.loans, l); i >= 0 {
		s.loans = slices.Delete(s.loans, i, i+1)
		s.used -= l.bytes
	}
}

// grantReservations serves waiting tunnels. The caller holds mu.
func (s *SendBudget) grantReservations() {
	now := time.Now()
	for len(s.loans) > 0 && now.Sub(s.loans[0].since) >= loanMost {
		s.dropReservation(s.loans[0])
	}
	for len(s.waiting) > 0 && (s.used == 0 || s.used+s.waiting[0].bytes <= shareBytes) {
		b := s.waiting[0]
		s.waiting = slices.Delete(s.waiting, 0, 1)
		l := &byteReservation{of: s, bytes: b.bytes, since: now}
		s.loans, s.used = append(s.loans, l), s.used+b.bytes
		b.got <- l // there is room for it
	}
	switch {
	case len(s.waiting) == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.loans[0].since.Add(loanMost).Sub(now), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.grantReservations()
		})
	default:
		s.timer.Reset(s.loans[0].since.Add(loanMost).Sub(now))
	}
}

// ClientStream is a client's end of a gRPC stream of pieces.
type ClientStream interface {
	Stream
	CloseSend() error
	Context() context.Context
}

// OpenStream opens a stream that has its share of what is sent: by gives it, of a client, with the
// options that make it so.
func (s *SendBudget) OpenStream(by func(...grpc.CallOption) (ClientStream, error)) (ClientStream, error) {
	t := &budgetedStream{CodecV2: encoding.GetCodecV2(grpcproto.Name), share: s}
	stream, err := by(grpc.ForceCodecV2(t), grpc.MaxRetryRPCBufferSize(0)) // what is kept for another try is never written
	if err != nil {
		return nil, err
	}
	t.ClientStream = stream
	return t, nil
}

// budgetedStream is a stream, and the codec that reports a written piece.
type budgetedStream struct {
	ClientStream
	encoding.CodecV2
	share *SendBudget
	loan  *byteReservation // of the piece that is being sent
}

// Send sends a piece, when it is this tunnel's turn.
func (t *budgetedStream) Send(p *wrapperspb.BytesValue) error {
	if !mem.IsBelowBufferPoolingThreshold(len(p.GetValue())) {
		l, err := t.share.reserveBytes(t.Context(), len(p.GetValue()))
		if err != nil {
			return err
		}
		t.loan = l
	}
	err := t.ClientStream.Send(p)
	if t.loan != nil { // it came to nothing
		t.loan.release()
		t.loan = nil
	}
	return err
}

// Marshal marshals a piece, for gRPC, which frees it once it is written.
func (t *budgetedStream) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(proto.Message)
	if t.loan == nil || !ok {
		return t.CodecV2.Marshal(v)
	}
	pool := reservedPool{mem.DefaultBufferPool(), t.loan}
	b := pool.Get(proto.Size(message))
	if _, err := (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*b)[:0], message); err != nil {
		pool.BufferPool.Put(b)
		return nil, err
	}
	t.loan = nil
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// reservedPool buffers end a loan when they are given back.
type reservedPool struct {
	mem.BufferPool
	loan *byteReservation
}

// Put returns a buffer to the pool.
func (l reservedPool) Put(b *[]byte) {
	l.BufferPool.Put(b)
	l.loan.release()
}
