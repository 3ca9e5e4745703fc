package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// heldMost is the hub's memory for what users make it hold at a time, in bytes: members' answers,
	// from their read until the end of their request, events of watches, and plans. It is twice the
	// largest answer, because one user may have half of the free part.
	heldMost = 2 * (answerMost + decodedMost)
	// heldPatience is how long a request waits for others to give some back.
	heldPatience = 2 * time.Second
	// firstRead is what is held for an answer before it is known to be larger, in bytes.
	firstRead = 16 << 10
)

// memoryBudget is a budget of bytes for what users make the hub hold: members' answers, events of watches, plans. One
// user may have half of the free part, so that something is left for the next user, however much
// one lists. Make it with newMemoryBudget.
type memoryBudget struct {
	maxBytes int64

	mu    sync.Mutex
	held  map[string]int64 // by user
	all   int64
	freed chan struct{} // closed when bytes are returned; nil: no request waits
}

func newMemoryBudget(most int64) *memoryBudget {
	return &memoryBudget{maxBytes: most, held: map[string]int64{}}
}

// tryReserveBytes reserves bytes for a user and reports whether they were available.
func (b *memoryBudget) tryReserveBytes(user string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserveLocked(user, n)
}

// reserveLocked reserves bytes for a user and reports whether they were available. The caller holds
// the lock. The caller holds the lock.
func (b *memoryBudget) reserveLocked(user string, n int64) bool {
	mine := b.held[user]
	if mine+n > (b.maxBytes-(b.all-mine))/2 {
		return false
	}
	b.held[user] += n
	b.all += n
	return true
}

// reserveBytes reserves n bytes for the user and returns nil; without enough memory it returns a
// channel that is closed when memory is released.
func (b *memoryBudget) reserveBytes(user string, n int64) (freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserveLocked(user, n) {
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// releaseBytes gives bytes of a user back.
func (b *memoryBudget) releaseBytes(user string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.held[user] -= n; b.held[user] == 0 {
		delete(b.held, user)
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// memoryReservation is what a request holds of a budget, until it is over.
type memoryReservation struct {
	of   *memoryBudget
	user string
	// lacked: the request has waited in vain. It waits no more: most of what it would wait
	// for may be its own.
	lacked atomic.Bool

	mu    sync.Mutex
	n     int64
	ended bool
}

type memoryReservationKey struct{}

// withMemoryReservation returns a context with one memory reservation for all that is read with the
// context; the reservation ends with the context.
func (f *Fleet) withMemoryReservation(ctx context.Context) (context.Context, *memoryReservation) {
	if h, ok := ctx.Value(memoryReservationKey{}).(*memoryReservation); ok {
		return ctx, h
	}
	h := f.newMemoryReservation(ctx)
	return context.WithValue(ctx, memoryReservationKey{}, h), h
}

// newMemoryReservation returns what the user of a context holds from now on, until the context ends.
func (f *Fleet) newMemoryReservation(ctx context.Context) *memoryReservation {
	h := &memoryReservation{of: f.budget}
	if u, ok := request.UserFrom(ctx); ok {
		h.user = u.GetName()
	}
	context.AfterFunc(ctx, h.releaseAll)
	return h
}

// ReserveMemory counts what a request of a user is about to take, in bytes. It is refused while the
// user holds too much; else release returns it, once.
func (f *Fleet) ReserveMemory(user, what string, n int64) (release func(), err error) {
	h := &memoryReservation{of: f.budget, user: user}
	if !h.tryReserveBytes(n, f.budget.maxBytes) {
		return nil, memoryRefusal(what + " is refused: the hub holds as many bytes as it may for you now; request less at a time, or try again later")
	}
	return h.releaseAll, nil
}

// tryReserveBytes reserves bytes if they are available without a wait and the reservation then has
// at most most bytes.
func (h *memoryReservation) tryReserveBytes(n, most int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.n+n > most || !h.of.tryReserveBytes(h.user, n) {
		return false
	}
	h.n += n
	return true
}

var errFull = errors.New("its answer is left out: the hub holds as many bytes of members' answers as it may for you now; request less at a time, by a namespace or a selector, or try again later")

// reserveBytes reserves n bytes, and waits until they are available.
func (h *memoryReservation) reserveBytes(ctx context.Context, n int64) error {
	if n > h.of.maxBytes/2 {
		return errFull
	}
	var late <-chan time.Time
	for {
		freed := h.of.reserveBytes(h.user, n)
		if freed == nil {
			break
		}
		if h.lacked.Load() {
			return errFull
		}
		if late == nil {
			patience := time.NewTimer(heldPatience)
			defer patience.Stop()
			late = patience.C
		}
		select {
		case <-freed:
		case <-late:
			h.lacked.Store(true)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		h.of.releaseBytes(h.user, n)
		return context.Canceled
	}
	h.n += n
	return nil
}

// releaseBytes returns bytes to the budget.
func (h *memoryReservation) releaseBytes(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.n -= n
		h.of.releaseBytes(h.user, n)
	}
}

// releaseAll returns all bytes to the budget.
func (h *memoryReservation) releaseAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ended = true
		h.of.releaseBytes(h.user, h.n)
	}
}

// readAll reads all of an answer, whose bytes are taken before there is room for them; they are the
// caller's to give back, by the slice's capacity.
func (h *memoryReservation) readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	if err := h.reserveBytes(ctx, firstRead); err != nil {
		return nil, err
	}
	b := make([]byte, 0, firstRead)
	for {
		if len(b) == cap(b) {
			if cap(b) >= answerMost {
				return b, fmt.Errorf("it is larger than %d MiB", answerMost>>20)
			}
			if err := h.reserveBytes(ctx, 2*int64(cap(b))); err != nil {
				return b, err
			}
			old := b
			b = append(make([]byte, 0, 2*cap(old)), old...)
			h.releaseBytes(int64(cap(old)))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// memoryFullError returns the error for a member's answer for which there is no memory.
func memoryFullError(m *member) error {
	return crowdedError{memoryRefusal(fmt.Sprintf("cluster %s: %v", m.Name, errFull))}
}

// memoryRefusal is the refusal of a request for which there is no memory.
func memoryRefusal(message string) *apierrors.StatusError {
	err := apierrors.NewTooManyRequests(message, 0)
	err.ErrStatus.Details = newMemoryFullDetails()
	return err
}
