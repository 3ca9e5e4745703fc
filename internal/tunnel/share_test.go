package tunnel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestTunnelsTakeTurns: their data has a bound together, the longest waiting one is next, and a
// piece that the other end does not take delays others for a moment only.
func TestTunnelsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s SendBudget
		var loans []*byteReservation
		for range shareBytes / PieceMost {
			l, err := s.reserveBytes(t.Context(), PieceMost)
			if err != nil {
				t.Fatal(err)
			}
			loans = append(loans, l)
		}
		var mu sync.Mutex
		var served []int
		order := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(served)
		}
		for i := range 3 {
			go func() {
				if _, err := s.reserveBytes(t.Context(), PieceMost); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.reserveBytes(gone, PieceMost); err == nil {
			t.Error("one that is closed goes on")
		}
		if got := order(); len(got) > 0 || s.used != shareBytes {
			t.Errorf("beyond the bound: %v, %d bytes", got, s.used)
		}
		loans[1].release()
		synctest.Wait()
		if got := order(); !slices.Equal(got, []int{0}) {
			t.Errorf("after one was written: %v", got)
		}
		began := time.Now()
		<-time.After(loanMost)
		synctest.Wait()
		if got := order(); len(got) != 3 {
			t.Errorf("%s after nothing was written: %v", time.Since(began), got)
		}
		for _, l := range loans {
			l.release() // once more, of some
		}
		if s.used != 2*PieceMost { // the first of the three was too old with the others
			t.Errorf("%d bytes count", s.used)
		}
	})
}

// TestWhoGivesUpHasNothing: neither what he waited for, if that came at the same moment, nor
// his place before others.
func TestWhoGivesUpHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s SendBudget
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // of which about half find that it came
			if l, err := s.reserveBytes(gone, PieceMost); err == nil {
				l.release()
			}
		}
		if s.used != 0 || len(s.waiting) != 0 {
			t.Fatalf("%d bytes count, and %d wait, when all have given up", s.used, len(s.waiting))
		}
		if _, err := s.reserveBytes(t.Context(), shareBytes-1); err != nil {
			t.Fatal(err)
		}
		impatient, giveUp := context.WithCancel(t.Context())
		go func() {
			if _, err := s.reserveBytes(impatient, PieceMost); err == nil {
				t.Error("what does not fit was served")
			}
		}()
		synctest.Wait()
		began, served := time.Now(), make(chan struct{})
		go func() {
			defer close(served)
			if _, err := s.reserveBytes(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		giveUp()
		if <-served; !time.Now().Equal(began) {
			t.Errorf("a tunnel behind one that gave up waits %s more", time.Since(began))
		}
	})
}

// TestNobodyWaitsForLong: not for what the other end never takes, however often that is so, nor
// for room that there never is at once.
func TestNobodyWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s SendBudget
		for round := range 4 {
			began := time.Now()
			for range shareBytes/PieceMost + 1 {
				if _, err := s.reserveBytes(t.Context(), PieceMost); err != nil { // never done
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > loanMost {
				t.Errorf("round %d: one waits %s", round, took)
			}
			time.Sleep(2 * loanMost)
		}
		l, err := s.reserveBytes(t.Context(), 2*shareBytes)
		if err != nil {
			t.Fatal(err)
		}
		l.release()
	})
}

// sending is a stream that takes what is sent as gRPC does, or does not take it at all.
type sending struct {
	ClientStream
	ctx   context.Context
	turn  *budgetedStream
	taken mem.BufferSlice
	fails error
}

func (s *sending) Context() context.Context { return s.ctx }

func (s *sending) Send(p *wrapperspb.BytesValue) (err error) {
	if s.fails == nil {
		s.taken, err = s.turn.Marshal(p)
	}
	return errors.Join(s.fails, err)
}

// TestAPieceCountsUntilItIsWritten: not only until gRPC has taken it; and not at all if it has not.
func TestAPieceCountsUntilItIsWritten(t *testing.T) {
	share := &SendBudget{}
	stream := &sending{ctx: t.Context()}
	opened, err := share.OpenStream(func(...grpc.CallOption) (ClientStream, error) { return stream, nil })
	if err != nil {
		t.Fatal(err)
	}
	stream.turn = opened.(*budgetedStream)
	if err := opened.Send(wrapperspb.Bytes(make([]byte, PieceMost))); err != nil || share.used != PieceMost {
		t.Errorf("%d bytes count of %d that are not written: %v", share.used, PieceMost, err)
	}
	if stream.taken.Free(); share.used != 0 {
		t.Errorf("%d bytes count, and all is written", share.used)
	}
	stream.fails = errors.New("the connection is gone")
	if err := opened.Send(wrapperspb.Bytes(make([]byte, PieceMost))); err == nil || share.used != 0 {
		t.Errorf("%d bytes count that were not taken: %v", share.used, err)
	}
}
