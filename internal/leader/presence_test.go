package leader

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// fakeStore that a hub looks at.
type fakeStore struct {
	mu sync.Mutex
	storeAnswer
}

// storeAnswer is what the store answers, and how long that takes.
type storeAnswer struct {
	revision int64
	known    bool
	err      error
	delay    time.Duration
}

func (s *fakeStore) set(v storeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeAnswer = v
}

func (s *fakeStore) readStore(ctx context.Context) (int64, bool, error) {
	s.mu.Lock()
	v := s.storeAnswer
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return 0, false, ctx.Err()
	case <-time.After(v.delay):
	}
	return v.revision, v.known, v.err
}

func TestAPresenceEndsWithTheLooksAndBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{storeAnswer: storeAnswer{revision: 7, known: true}}
		p := NewStoreContact(s.readStore, slog.New(slog.DiscardHandler))
		if p.IsInTouch() || p.ConfirmedRevision() != 0 {
			t.Fatal("it holds before the hub has looked")
		}
		ctx, stop := context.WithCancel(t.Context())
		var turns []bool
		done := make(chan error)
		go func() { done <- p.Run(ctx, func(holds bool) { turns = append(turns, holds) }) }()
		at := func(what string, after time.Duration, holds bool, vouched int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if p.IsInTouch() != holds || p.ConfirmedRevision() != vouched {
				t.Errorf("%s: holds=%t, vouches for %d", what, p.IsInTouch(), p.ConfirmedRevision())
			}
		}
		at("in touch", time.Second, true, 7)
		s.set(storeAnswer{revision: 9})
		at("another start is in the store, which the tables do not show", time.Second, true, 7)
		at("for long", OutOfTouchAfter, false, 0)
		s.set(storeAnswer{revision: 9, known: true})
		at("they show it", time.Second, true, 9)
		s.set(storeAnswer{err: errors.New("no store")})
		at("cut off", OutOfTouchAfter+renewInterval, false, 0)
		s.set(storeAnswer{revision: 9, known: true, delay: renewDeadline - time.Second})
		at("a slow answer counts from when it was asked for", renewDeadline, true, 9)
		s.set(storeAnswer{revision: 9, known: true, delay: time.Hour})
		at("no answer", OutOfTouchAfter, false, 0)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []bool{true, false, true, false, true, false}
		if len(turns) != len(want) {
			t.Fatalf("reported %v, want %v", turns, want)
		}
		for i := range want {
			if turns[i] != want[i] {
				t.Fatalf("reported %v, want %v", turns, want)
			}
		}
	})
}

func TestFollowersWriteReportsAndNothingElse(t *testing.T) {
	tn := newTenure(time.Minute)
	s := &fakeStore{}
	p := NewStoreContact(s.readStore, slog.New(slog.DiscardHandler))
	cfg := ConfigFencedByRequestPath(&rest.Config{}, tn, p)
	f := cfg.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil }))
	const status = "/apis/engine.atoll.dev/v1alpha1/targetslices/b-0/status"
	writes := map[string]error{
		status: ErrOutOfTouch,
		"/apis/engine.atoll.dev/v1alpha1/targetslices/b-0": ErrNotLeading,
		"/apis/atoll.dev/v1alpha1/clusters/c/status":       ErrNotLeading,
	}
	check := func(when string, want map[string]error) {
		t.Helper()
		for path, why := range want {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://hub"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.RoundTrip(r); !errors.Is(err, why) {
				t.Errorf("%s, PUT %s: %v, want %v", when, path, err, why)
			}
		}
	}
	check("out of touch", writes)
	p.lookedAt = time.Now()
	writes[status] = nil
	check("following", writes)
	tn.extendFrom(time.Now())
	for path := range writes {
		writes[path] = nil
	}
	check("leading", writes)
}
