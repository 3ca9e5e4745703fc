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

// Tenure is for how long this hub surely leads, by its own clock: it counts from
// before a renewal was asked for, never from its answer, so that a process that was
// stopped in between does not take an old answer for a new lease. Once lapsed it
// never begins again. It is safe for concurrent use; a nil Tenure leads always, as the
// only hub on an embedded etcd does.
type Tenure struct {
	length time.Duration
	over   chan struct{} // closed when it has lapsed, or was ended

	mu      sync.Mutex
	renewed time.Time // zero before the first renewal
	ended   bool
}

func newTenure(length time.Duration) *Tenure {
	return &Tenure{length: length, over: make(chan struct{})}
}

// Leads tells whether no other hub can lead now.
func (t *Tenure) Leads() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.renewed.IsZero() && t.current(time.Now())
}

// current ends the tenure when it has lapsed. A machine that slept may show that by
// either clock. The caller holds mu.
func (t *Tenure) current(now time.Time) bool {
	if !t.ended && !t.renewed.IsZero() && (now.Sub(t.renewed) > t.length || now.Round(0).Sub(t.renewed.Round(0)) > t.length) {
		t.ended = true
		close(t.over)
	}
	return !t.ended
}

// may tells whether a renewal, or the first acquisition, may be asked for.
func (t *Tenure) may() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current(time.Now())
}

// renew from the moment at which the renewal that succeeded was asked for.
func (t *Tenure) renew(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current(time.Now()) {
		t.renewed = asked
	}
}

// end the tenure; safe to call again.
func (t *Tenure) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.over)
	}
}

// Fenced gives the configuration with which clients write only while this hub leads.
// Without a Tenure it is cfg itself.
func (t *Tenure) Fenced(cfg *rest.Config) *rest.Config {
	if t == nil {
		return cfg
	}
	return fenced(cfg, func(*http.Request) error { return t.May() })
}

// May is nil while this hub leads, and otherwise why it may not write.
func (t *Tenure) May() error { return refusal(t.Leads(), ErrNotLeading) }

// Fenced gives the configuration with which clients write what agents report of rows
// while the hub is in touch with the store, and all else while it leads. Without a
// Tenure it is cfg itself.
func Fenced(cfg *rest.Config, t *Tenure, p *Presence) *rest.Config {
	if t == nil {
		return cfg
	}
	return fenced(cfg, func(r *http.Request) error {
		if reports(r.URL.Path) {
			return p.May()
		}
		return t.May()
	})
}

// reports tells whether what is written is the status of rows.
func reports(path string) bool {
	return strings.HasSuffix(path, "/status") && strings.Contains(path, "/"+enginev1.GroupVersion.String()+"/targetslices/")
}

func refusal(allowed bool, why error) error {
	if allowed {
		return nil
	}
	return why
}

func fenced(cfg *rest.Config, refused func(*http.Request) error) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence{next, refused} })
	return cfg
}

// fence lets reads pass always, and writes that are not refused. What was sent before
// is fenced by the resource versions that writes carry.
type fence struct {
	next    http.RoundTripper
	refused func(*http.Request) error
}

func (f fence) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return f.next.RoundTrip(r)
	}
	err := f.refused(r)
	if err == nil {
		return f.next.RoundTrip(r)
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return nil, err
}
