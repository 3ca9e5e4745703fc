package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// teller answers the orders of Control.
type teller interface {
	stats(ctx context.Context) (Stats, error)
	holdings(ctx context.Context, yield func(Holding) error) error
	healthy(ctx context.Context) (map[string]int, error)
	drop(ctx context.Context, d Drop) error
	setRates(ctx context.Context, r Rates) error
}

// listen for Control at a path until ctx ends.
func listen(ctx context.Context, path string, t teller) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	// What a killed simulator left behind; one that lives answers.
	if c, err := dialSocket(ctx, path); err == nil {
		c.Close()
		return fmt.Errorf("control socket %s: another simulator runs there; end it, or take another --prefix", path)
	}
	if err := os.Remove(short); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("control socket %s: %w", path, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", short)
	if err != nil {
		return fmt.Errorf("control socket %s: %w", path, err)
	}
	web := &http.Server{Handler: endpoint(t), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket %s: %w", path, err)
	}
	return nil
}

func endpoint(t teller) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		s, err := t.stats(r.Context())
		if failed(w, err) {
			return
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /holdings", func(w http.ResponseWriter, r *http.Request) {
		out := bufio.NewWriterSize(w, 64<<10)
		e := json.NewEncoder(out)
		if err := t.holdings(r.Context(), func(h Holding) error { return e.Encode(h) }); err != nil {
			return // the missing end tells
		}
		_ = errors.Join(e.Encode(Holding{Name: endOfHoldings}), out.Flush()) // who asked has gone
	})
	mux.HandleFunc("GET /healthy", func(w http.ResponseWriter, r *http.Request) {
		rows, err := t.healthy(r.Context())
		if !failed(w, err) {
			_ = json.NewEncoder(w).Encode(rows)
		}
	})
	mux.HandleFunc("POST /drop", func(w http.ResponseWriter, r *http.Request) {
		var d Drop
		if !failed(w, json.NewDecoder(r.Body).Decode(&d)) {
			failed(w, t.drop(r.Context(), d))
		}
	})
	mux.HandleFunc("POST /rates", func(w http.ResponseWriter, r *http.Request) {
		var rates Rates
		if !failed(w, json.NewDecoder(r.Body).Decode(&rates)) {
			failed(w, t.setRates(r.Context(), rates))
		}
	})
	return mux
}

func failed(w http.ResponseWriter, err error) bool {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return err != nil
}

// serve Control until ctx ends.
func (s *sim) serve(ctx context.Context) error { return listen(ctx, s.Socket, s) }

func (s *sim) stats(context.Context) (Stats, error) {
	c := &s.counts
	out := Stats{
		Agents: len(s.agents), Joins: c.joins.Load(), Connects: c.connects.Load(), CheckIns: c.checkIns.Load(),
		Refusals: c.refusals.Load(), Failures: c.failures.Load(), FramesUp: c.framesUp.Load(), FramesDown: c.framesDown.Load(),
		BytesUp: c.wire.BytesUp.Load(), BytesDown: c.wire.BytesDown.Load(), Upserts: c.upserts.Load(), Reports: c.reports.Load(),
		Restarts: c.restarts.Load(), Outages: c.outages.Load(), PID: os.Getpid(), PIDs: []int{os.Getpid()},
	}
	for _, a := range s.agents {
		a.mu.Lock()
		if a.joined() {
			out.Joined++
		}
		if a.link != nil && a.link.welcomed {
			out.Connected++
		}
		for i := range a.holdings {
			h := &a.holdings[i]
			if !h.acked {
				out.Unacknowledged++
			}
			if !h.shape.remove {
				out.Rows++
				if h.mood == moodReady && h.acked {
					out.RowsHealthy++
				}
			}
		}
		a.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.JoinTime, out.ConnectTime = c.joinTime.summed(), c.connectTime.summed()
	out.LastRefusal, out.LastFailure = c.lastRefusal, c.lastFailure
	return out, nil
}

func (s *sim) holdings(_ context.Context, yield func(Holding) error) error {
	for _, a := range s.agents {
		a.mu.Lock()
		h := Holding{Name: a.name(), UID: a.uid, Connected: a.link != nil && a.link.welcomed, Bundles: make(map[string]Held, len(a.holdings))}
		for i := range a.holdings {
			held := &a.holdings[i]
			if held.shape.remove {
				continue
			}
			h.Bundles[held.shape.bundle] = Held{
				Generation: held.generation, Content: held.shape.content, Items: len(held.shape.items), State: states[held.state], Mark: held.mark,
			}
		}
		a.mu.Unlock()
		if err := yield(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) drop(_ context.Context, d Drop) error {
	drawn := s.counts.outages.Load()
	for _, a := range s.agents {
		named := len(d.Names) > 0 && slices.Contains(d.Names, a.name())
		if named || d.Share > 0 && unit(s.Seed^uint64(drawn), uint64(a.index), uint64(time.Now().UnixNano()>>30)) < d.Share {
			a.drop(d.For, d.Silent)
		}
	}
	return nil
}

func (s *sim) setRates(_ context.Context, r Rates) error {
	s.rates.Store(&r)
	return nil
}
