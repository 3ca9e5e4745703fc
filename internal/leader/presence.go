package leader

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/pause"
)

// ErrOutOfTouch is what writes of a hub end with that may not know the store's
// present state.
var ErrOutOfTouch = errors.New("this hub is out of touch with the store, or was until a moment ago, so that nothing is written")

// LookFunc reads the store, not a cache: its revision then, and whether this hub's tables
// show its starts as they were then.
type LookFunc func(ctx context.Context) (revision int64, known bool, err error)

// Presence is for how long this hub surely is in touch with the store, by its own
// clock, counted from before each look at it. Unlike a Tenure it begins again once the
// hub is back in touch. It is safe for concurrent use; a nil Presence holds always, as
// for the only hub on an embedded etcd.
type Presence struct {
	probe LookFunc
	log   *slog.Logger

	mu       sync.Mutex
	lookedAt time.Time // of the last look that counts; zero before the first
	revision int64
}

// NewPresence returns a Presence that does not hold before Run has looked.
func NewPresence(look LookFunc, log *slog.Logger) *Presence { return &Presence{probe: look, log: log} }

// IsInTouch reports whether the hub is surely in touch.
func (p *Presence) IsInTouch() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isInTouchAt(time.Now())
}

// isInTouchAt reports contact by either clock, since a machine may have slept. The caller holds mu.
func (p *Presence) isInTouchAt(now time.Time) bool {
	return !p.lookedAt.IsZero() && now.Sub(p.lookedAt) <= tenureLength && now.Round(0).Sub(p.lookedAt.Round(0)) <= tenureLength
}

// OutOfTouchAfter is after how long without a look at the store a Presence ends.
const OutOfTouchAfter = tenureLength

// VouchedRevision is a revision up to which the last start that this hub's tables show was
// the last one in the store; 0 while the hub is out of touch.
func (p *Presence) VouchedRevision() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isInTouchAt(time.Now()) {
		return 0
	}
	return p.revision
}

// Run reads until ctx ends. turned is called at every beginning and end.
func (p *Presence) Run(ctx context.Context, turned func(holds bool)) error {
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		p.runLooks(ctx)
	}()
	watch := time.NewTicker(checkInterval)
	defer watch.Stop()
	held := false
	for {
		if now := p.IsInTouch(); now != held {
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

func (p *Presence) runLooks(ctx context.Context) {
	complained := false
	for ctx.Err() == nil {
		asked, bounded, cancel := p.startLook(ctx)
		revision, known, err := p.probe(bounded)
		cancel()
		if err != nil && ctx.Err() == nil && !complained {
			p.log.Warn("cannot look at the store; without it this hub soon serves no agent", "err", err)
		}
		complained = err != nil
		after := renewInterval
		switch {
		case err == nil && known:
			p.mu.Lock()
			p.lookedAt, p.revision = asked, revision
			p.mu.Unlock()
		case err == nil: // the tables are a moment behind
			after = checkInterval / 5
		}
		pause.WaitFor(ctx, after)
	}
}

func (p *Presence) startLook(ctx context.Context) (time.Time, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	return time.Now(), ctx, cancel
}

// FencedConfig returns the configuration with which clients write only while the hub is in
// touch. Without a Presence it is cfg itself.
func (p *Presence) FencedConfig(cfg *rest.Config) *rest.Config {
	if p == nil {
		return cfg
	}
	return fenceConfig(cfg, func(*http.Request) error { return p.CheckMayWrite() })
}

// CheckMayWrite is nil while the hub is in touch, and otherwise why it may not write.
func (p *Presence) CheckMayWrite() error { return errorUnless(p.IsInTouch(), ErrOutOfTouch) }
