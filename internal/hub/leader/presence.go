package leader

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ErrOutOfTouch is what writes of a hub end with that may not know the store's
// present state.
var ErrOutOfTouch = errors.New("this hub is out of touch with the store, or was until a moment ago, so that nothing is written")

// Look reads the store, not a cache: its revision then, and whether this hub's tables
// show its starts as they were then.
type Look func(ctx context.Context) (revision int64, known bool, err error)

// Presence is for how long this hub surely is in touch with the store, by its own
// clock, counted from before each look at it. Unlike a Tenure it begins again once the
// hub is back in touch. It is safe for concurrent use; a nil Presence holds always, as
// for the only hub on an embedded etcd.
type Presence struct {
	look Look
	log  *slog.Logger

	mu       sync.Mutex
	asked    time.Time // of the last look that counts; zero before the first
	revision int64
}

// NewPresence that does not hold before Run has looked.
func NewPresence(look Look, log *slog.Logger) *Presence { return &Presence{look: look, log: log} }

// Holds tells whether the hub is surely in touch.
func (p *Presence) Holds() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds(time.Now())
}

// holds by either clock, since a machine may have slept. The caller holds mu.
func (p *Presence) holds(now time.Time) bool {
	return !p.asked.IsZero() && now.Sub(p.asked) <= tenureLength && now.Round(0).Sub(p.asked.Round(0)) <= tenureLength
}

// OutOfTouch is after how long without a look at the store a Presence ends.
const OutOfTouch = tenureLength

// Vouched is a revision up to which the last start that this hub's tables show was
// the last one in the store; 0 while the hub is out of touch.
func (p *Presence) Vouched() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.holds(time.Now()) {
		return 0
	}
	return p.revision
}

// Run looks until ctx ends. turned is told of every beginning and end.
func (p *Presence) Run(ctx context.Context, turned func(holds bool)) error {
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		p.lookOn(ctx)
	}()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	held := false
	for {
		if now := p.Holds(); now != held {
			held = now
			turned(now)
		}
		select {
		case <-looking:
			return nil
		case <-watch.C:
		}
	}
}

func (p *Presence) lookOn(ctx context.Context) {
	complained := false
	for ctx.Err() == nil {
		asked, bounded, cancel := p.begin(ctx)
		revision, known, err := p.look(bounded)
		cancel()
		if err != nil && ctx.Err() == nil && !complained {
			p.log.Warn("cannot look at the store; without it this hub soon serves no agent", "err", err)
		}
		complained = err != nil
		after := renewEvery
		switch {
		case err == nil && known:
			p.mu.Lock()
			p.asked, p.revision = asked, revision
			p.mu.Unlock()
		case err == nil: // the tables are a moment behind
			after = watchEvery / 5
		}
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
	}
}

func (p *Presence) begin(ctx context.Context) (time.Time, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	return time.Now(), ctx, cancel
}

// Fenced gives the configuration with which clients write only while the hub is in
// touch. Without a Presence it is cfg itself.
func (p *Presence) Fenced(cfg *rest.Config) *rest.Config {
	if p == nil {
		return cfg
	}
	return fenced(cfg, func(*http.Request) error { return p.May() })
}

// May is nil while the hub is in touch, and otherwise why it may not write.
func (p *Presence) May() error { return refusal(p.Holds(), ErrOutOfTouch) }
