package leader

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// ErrNotLeading is what writes of a hub end with that may have lost its lease.
var ErrNotLeading = errors.New("this hub does not lead, or not surely: another one may, so that nothing is written")

// Tenure is for how long this hub surely leads, by its own clock: it counts from before a renewal
// was requested, never from its answer, so that a process that was
// stopped in between does not take an old answer for a new lease. Once lapsed it
// never begins again. It is safe for concurrent use; a nil Tenure leads always, as the
// only hub on an embedded etcd does.
type Tenure struct {
	length time.Duration
	done   chan struct{} // closed when it has lapsed, or was ended

	mu      sync.Mutex
	renewed time.Time // zero before the first renewal
	ended   bool
}

func newTenure(length time.Duration) *Tenure {
	return &Tenure{length: length, done: make(chan struct{})}
}

// IsLeading reports whether no other hub can lead now.
func (t *Tenure) IsLeading() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.renewed.IsZero() && t.isCurrent(time.Now())
}

// isCurrent ends the tenure when it has lapsed. A machine that slept may show that by
// either clock. The caller holds mu.
func (t *Tenure) isCurrent(now time.Time) bool {
	if !t.ended && !t.renewed.IsZero() && (now.Sub(t.renewed) > t.length || now.Round(0).Sub(t.renewed.Round(0)) > t.length) {
		t.ended = true
		close(t.done)
	}
	return !t.ended
}

// mayRenew reports whether a renewal, or the first acquisition, may be requested.
func (t *Tenure) mayRenew() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isCurrent(time.Now())
}

// extendFrom extends the tenure from the moment at which the renewal that succeeded was requested.
func (t *Tenure) extendFrom(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isCurrent(time.Now()) {
		t.renewed = asked
	}
}

// endTenure ends the tenure; safe to call again.
func (t *Tenure) endTenure() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.done)
	}
}

// FencedConfig returns the configuration with which clients write only while this hub leads.
// Without a Tenure it is cfg itself.
func (t *Tenure) FencedConfig(cfg *rest.Config) *rest.Config {
	if t == nil {
		return cfg
	}
	return fenceConfig(cfg, func(*http.Request) error { return t.CheckMayWrite() })
}

// CheckMayWrite is nil while this hub leads, and otherwise why it may not write.
func (t *Tenure) CheckMayWrite() error { return errorUnless(t.IsLeading(), ErrNotLeading) }

// ConfigFencedByRequestPath returns the configuration with which clients write what agents report of rows
// while the hub is in touch with the store, and all else while it leads. Without a
// Tenure it is cfg itself.
func ConfigFencedByRequestPath(cfg *rest.Config, t *Tenure, p *StoreContact) *rest.Config {
	if t == nil {
		return cfg
	}
	return fenceConfig(cfg, func(r *http.Request) error {
		if isRowStatusPath(r.URL.Path) {
			return p.CheckMayWrite()
		}
		return t.CheckMayWrite()
	})
}

// isRowStatusPath reports whether what is written is the status of rows.
func isRowStatusPath(path string) bool {
	return strings.HasSuffix(path, "/status") && strings.Contains(path, "/"+enginev1.GroupVersion.String()+"/targetslices/")
}

func errorUnless(allowed bool, why error) error {
	if allowed {
		return nil
	}
	return why
}

func fenceConfig(cfg *rest.Config, refused func(*http.Request) error) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return writeFence{next, refused} })
	return cfg
}

// writeFence lets reads pass always, and writes that are not refused. Earlier writes are fenced by
// the resource versions that they carry.
type writeFence struct {
	next       http.RoundTripper
	checkWrite func(*http.Request) error
}

func (f writeFence) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return f.next.RoundTrip(r)
	}
	err := f.checkWrite(r)
	if err == nil {
		return f.next.RoundTrip(r)
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return nil, err
}
