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

// controlHandlers serves the requests of Control.
type controlHandlers interface {
	readStats(ctx context.Context) (Stats, error)
	forEachAgentState(ctx context.Context, yield func(AgentState) error) error
	countHealthyByBundle(ctx context.Context) (map[string]int, error)
	dropLinks(ctx context.Context, d DropOrder) error
	setRates(ctx context.Context, r FaultRates) error
}

// serveControl serves Control on the socket until ctx ends.
func serveControl(ctx context.Context, path string, t controlHandlers) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	// The socket may remain from a killed simulator. A running one answers.
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
	web := &http.Server{Handler: controlMux(t), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket %s: %w", path, err)
	}
	return nil
}

func controlMux(t controlHandlers) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		s, err := t.readStats(r.Context())
		if writeIfError(w, err) {
			return
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /holdings", func(w http.ResponseWriter, r *http.Request) {
		out := bufio.NewWriterSize(w, 64<<10)
		e := json.NewEncoder(out)
		if err := t.forEachAgentState(r.Context(), func(h AgentState) error { return e.Encode(h) }); err != nil {
			return // the missing end line reports the error
		}
		_ = errors.Join(e.Encode(AgentState{Name: endOfHoldings}), out.Flush()) // the client has gone
	})
	mux.HandleFunc("GET /healthy", func(w http.ResponseWriter, r *http.Request) {
		rows, err := t.countHealthyByBundle(r.Context())
		if !writeIfError(w, err) {
			_ = json.NewEncoder(w).Encode(rows)
		}
	})
	mux.HandleFunc("POST /drop", func(w http.ResponseWriter, r *http.Request) {
		var d DropOrder
		if !writeIfError(w, json.NewDecoder(r.Body).Decode(&d)) {
			writeIfError(w, t.dropLinks(r.Context(), d))
		}
	})
	mux.HandleFunc("POST /rates", func(w http.ResponseWriter, r *http.Request) {
		var rates FaultRates
		if !writeIfError(w, json.NewDecoder(r.Body).Decode(&rates)) {
			writeIfError(w, t.setRates(r.Context(), rates))
		}
	})
	return mux
}

func writeIfError(w http.ResponseWriter, err error) bool {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return err != nil
}

// serveControlSocket serves Control until ctx ends.
func (s *simulator) serveControlSocket(ctx context.Context) error {
	return serveControl(ctx, s.Socket, s)
}

func (s *simulator) readStats(context.Context) (Stats, error) {
	c := &s.counts
	out := Stats{
		Agents: len(s.agents), Joins: c.joins.Load(), Connects: c.connects.Load(), CheckIns: c.checkIns.Load(),
		Refusals: c.refusals.Load(), Failures: c.failures.Load(), FramesUp: c.framesUp.Load(), FramesDown: c.framesDown.Load(),
		BytesUp: c.wire.BytesUp.Load(), BytesDown: c.wire.BytesDown.Load(), Upserts: c.upserts.Load(), Reports: c.reports.Load(),
		Restarts: c.restarts.Load(), Outages: c.outages.Load(), PID: os.Getpid(), PIDs: []int{os.Getpid()},
	}
	for _, a := range s.agents {
		a.mu.Lock()
		if a.hasJoined() {
			out.Joined++
		}
		if a.session != nil && a.session.welcomed {
			out.Connected++
		}
		for i := range a.holdings {
			h := &a.holdings[i]
			if !h.acked {
				out.Unacknowledged++
			}
			if !h.shape.isRemoval {
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
	out.JoinTime, out.ConnectTime = c.joinTime.withPercentiles(), c.connectTime.withPercentiles()
	out.LastRefusal, out.LastFailure = c.lastRefusal, c.lastFailure
	return out, nil
}

func (s *simulator) forEachAgentState(_ context.Context, yield func(AgentState) error) error {
	for _, a := range s.agents {
		a.mu.Lock()
		h := AgentState{Name: a.clusterName(), UID: a.uid, Connected: a.session != nil && a.session.welcomed, Bundles: make(map[string]BundleState, len(a.holdings))}
		for i := range a.holdings {
			held := &a.holdings[i]
			if held.shape.isRemoval {
				continue
			}
			h.Bundles[held.shape.bundle] = BundleState{
				Generation: held.generation, Content: held.shape.content, Items: len(held.shape.parts), State: rowStates[held.reportedState], Mark: held.objectsMark,
			}
		}
		a.mu.Unlock()
		if err := yield(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulator) dropLinks(_ context.Context, d DropOrder) error {
	drawn := s.counts.outages.Load()
	for _, a := range s.agents {
		named := len(d.Names) > 0 && slices.Contains(d.Names, a.clusterName())
		if named || d.Share > 0 && hashToUnit(s.Seed^uint64(drawn), uint64(a.index), uint64(time.Now().UnixNano()>>30)) < d.Share {
			a.dropLink(d.For, d.Silent)
		}
	}
	return nil
}

func (s *simulator) setRates(_ context.Context, r FaultRates) error {
	s.rates.Store(&r)
	return nil
}
