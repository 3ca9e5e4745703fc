package view

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
	// heldMost is what members' answers may take of the hub at a time, in bytes, from when
	// they are read until the request that they are for is over: twice the largest there may
	// be, since nobody may have more than half of what others leave.
	heldMost = 2 * (answerMost + decodedMost)
	// heldPatience is how long a request waits for others to give some back.
	heldPatience = 2 * time.Second
	// firstRead is what is held for an answer before it is known to be larger, in bytes.
	firstRead = 16 << 10
)

// budget of bytes for what members answer. One user may have half of what the others leave,
// so that there is some for whoever comes next, however much somebody lists. Make it with
// newBudget.
type budget struct {
	most int64

	mu    sync.Mutex
	held  map[string]int64 // by user
	all   int64
	freed chan struct{} // closed when some was given back; nil: nobody waits
}

func newBudget(most int64) *budget { return &budget{most: most, held: map[string]int64{}} }

// take bytes for a user; where that is not to be had, what is closed when it may be.
func (b *budget) take(user string, n int64) (freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.held[user]
	if mine+n <= (b.most-(b.all-mine))/2 {
		b.held[user] += n
		b.all += n
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// give bytes back.
func (b *budget) give(user string, n int64) {
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

// holding is what a request holds of a budget, until it is over.
type holding struct {
	of   *budget
	user string
	// lacked: the request has waited in vain. It waits no more: most of what it would wait
	// for may be its own.
	lacked atomic.Bool

	mu   sync.Mutex
	n    int64
	over bool
}

type holdingKey struct{}

// holding gives a context by which all that is read is held together, until it ends.
func (f *Fleet) holding(ctx context.Context) (context.Context, *holding) {
	if h, ok := ctx.Value(holdingKey{}).(*holding); ok {
		return ctx, h
	}
	h := &holding{of: f.budget}
	if u, ok := request.UserFrom(ctx); ok {
		h.user = u.GetName()
	}
	context.AfterFunc(ctx, h.end)
	return context.WithValue(ctx, holdingKey{}, h), h
}

var errFull = errors.New("its answer is left out: the hub holds as many bytes of members' answers as it may for you now; ask for less at a time, by a namespace or a selector, or try again later")

// take bytes, as soon as they are to be had.
func (h *holding) take(ctx context.Context, n int64) error {
	if n > h.of.most/2 {
		return errFull
	}
	var late <-chan time.Time
	for {
		freed := h.of.take(h.user, n)
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
	if h.over {
		h.of.give(h.user, n)
		return context.Canceled
	}
	h.n += n
	return nil
}

// give some back.
func (h *holding) give(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.n -= n
		h.of.give(h.user, n)
	}
}

// end gives all back.
func (h *holding) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over = true
		h.of.give(h.user, h.n)
	}
}

// readAll of an answer, whose bytes are taken before there is room for them; they are the
// caller's to give back, by the slice's capacity.
func (h *holding) readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	if err := h.take(ctx, firstRead); err != nil {
		return nil, err
	}
	b := make([]byte, 0, firstRead)
	for {
		if len(b) == cap(b) {
			if cap(b) >= answerMost {
				return b, fmt.Errorf("it is larger than %d MiB", answerMost>>20)
			}
			if err := h.take(ctx, 2*int64(cap(b))); err != nil {
				return b, err
			}
			old := b
			b = append(make([]byte, 0, 2*cap(old)), old...)
			h.give(int64(cap(old)))
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

// full says so of a member whose answer there is no room for.
func full(m *member) error {
	return crowdedError{apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: %v", m.Name, errFull), int(heldPatience/time.Second))}
}
