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

// ErrOutOfTouch is the error of writes of a hub that may have an old state of the store.
var ErrOutOfTouch = errors.New("this hub is out of touch with the store, or was until a moment ago, so that nothing is written")

// ProbeFunc reads the store, not a cache: its revision then, and whether this hub's tables
// show its starts as they were then.
type ProbeFunc func(ctx context.Context) (revision int64, known bool, err error)

// StoreContact is for how long this hub surely is in touch with the store, by its own
// clock, counted from before each look at it. Unlike a Tenure it begins again once the
// hub is back in touch. It is safe for concurrent use; a nil Presence holds always, as
// for the only hub on an embedded etcd.
type StoreContact struct {
	probe ProbeFunc
	log   *slog.Logger

	mu       sync.Mutex
	lookedAt time.Time // of the last look that counts; zero before the first
	revision int64
}

// NewStoreContact returns a StoreContact that does not hold before Run has read the store.
func NewStoreContact(look ProbeFunc, log *slog.Logger) *StoreContact {
	return &StoreContact{probe: look, log: log}
}

// IsInTouch reports whether the hub is surely in touch.
func (p *StoreContact) IsInTouch() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isInTouchAt(time.Now())
}

// isInTouchAt reports contact by either clock, since a machine may have slept. The caller holds mu.
func (p *StoreContact) isInTouchAt(now time.Time) bool {
	return !p.lookedAt.IsZero() && now.Sub(p.lookedAt) <= tenureLength && now.Round(0).Sub(p.lookedAt.Round(0)) <= tenureLength
}

// OutOfTouchAfter is after how long without a look at the store a Presence ends.
const OutOfTouchAfter = tenureLength

// ConfirmedRevision is a revision up to which the last start that this hub's tables show was
// the last one in the store; 0 while the hub is out of touch.
func (p *StoreContact) ConfirmedRevision() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isInTouchAt(time.Now()) {
		return 0
	}
	return p.revision
}

// Run reads until ctx ends. turned is called at every beginning and end.
func (p *StoreContact) Run(ctx context.Context, turned func(holds bool)) error {
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		p.runProbes(ctx)
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

func (p *StoreContact) runProbes(ctx context.Context) {
	complained := false
	for ctx.Err() == nil {
		asked, bounded, cancel := p.newProbeContext(ctx)
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

func (p *StoreContact) newProbeContext(ctx context.Context) (time.Time, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	return time.Now(), ctx, cancel
}

// FencedConfig returns the configuration with which clients write only while the hub is in
// touch. Without a Presence it is cfg itself.
func (p *StoreContact) FencedConfig(cfg *rest.Config) *rest.Config {
	if p == nil {
		return cfg
	}
	return fenceConfig(cfg, func(*http.Request) error { return p.CheckMayWrite() })
}

// CheckMayWrite is nil while the hub is in touch, and otherwise why it may not write.
func (p *StoreContact) CheckMayWrite() error { return errorUnless(p.IsInTouch(), ErrOutOfTouch) }
