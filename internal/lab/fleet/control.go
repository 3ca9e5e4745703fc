package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// DefaultPrefix of the names of simulated agents.
const DefaultPrefix = "sim"

// Stats of a simulator, over all of its processes. Counters count since its start.
type Stats struct {
	// Agents that are simulated. Joined ones have a certificate, Connected ones a
	// session that the hub has answered.
	Agents, Joined, Connected int
	// Rows that the agents hold, and those of them that are Ready by what was
	// reported last. Unacknowledged reports are not stored by the hub yet.
	Rows, RowsHealthy, Unacknowledged int

	// Joins and Connects that succeeded. CheckIns are sessions that ended by
	// themselves with everything told. Refusals of joins and sessions by the hub;
	// Failures to reach it.
	Joins, Connects, CheckIns, Refusals, Failures int64
	FramesUp, FramesDown                          int64
	// BytesUp and BytesDown are payload of TLS.
	BytesUp, BytesDown int64
	// Upserts received, and Reports sent.
	Upserts, Reports int64
	// Restarts and Outages that were drawn or ordered.
	Restarts, Outages int64

	// PID of the simulator; PIDs of all its processes, PID first.
	PID  int
	PIDs []int
	// JoinTime of a whole join, ConnectTime from dialling to the hub's Welcome.
	JoinTime, ConnectTime Durations
	// LastRefusal and LastFailure, for people.
	LastRefusal, LastFailure string `json:",omitempty"`
}

// Holding is what one agent holds.
type Holding struct {
	Name string
	// UID of its Cluster; empty before it joined.
	UID string
	// Connected: it has a session now.
	Connected bool
	// Bundles by UID, without those that are removed.
	Bundles map[string]Held
}

// Held is what an agent holds of one Bundle.
type Held struct {
	Generation int64
	// Content hash of the manifest.
	Content string
	// Items of the manifest.
	Items int
	// State that was reported last; empty before the first report.
	State atoll.RowState
	// Mark of the objects that the agent was sent (MarkOf), whatever the hub calls them.
	Mark uint32
}

// Drop takes agents' links away. They dial again after For.
type Drop struct {
	// Share of all agents, drawn anew each time; beside Names.
	Share float64
	Names []string
	For   time.Duration
	// Silent: the connection stays open and nobody reads or writes it (half-open).
	// Otherwise it is reset.
	Silent bool
}

// Rates of what befalls the imagined members, of the whole fleet or, as the name
// says, of each row or agent.
type Rates struct {
	// FlipsPerMinute of each row: how often its health changes, Degraded to Ready
	// and back.
	FlipsPerMinute float64
	// FailuresPerHour of each row: it becomes Degraded, and Ready again after
	// HealthDelay.
	FailuresPerHour float64
	// RestartsPerHour of each agent's process: what it keeps in memory is lost, what
	// its member stores is not.
	RestartsPerHour float64
	// OfflinePerMinute is the share of agents, 0 to 1, that lose their link each
	// minute, for OfflineFor.
	OfflinePerMinute float64
	OfflineFor       time.Duration
	// HealthDelay is the mean of the lognormal delay from an order to Ready; 0: at
	// once.
	HealthDelay time.Duration
}

// Control talks to a running simulator.
type Control struct {
	http *http.Client
	path string
}

// Dial gives the Control of the simulator with that prefix ("" is DefaultPrefix) in
// a lab's directory. Whether it runs shows with the first call.
func Dial(dir, prefix string) *Control {
	path := SocketPath(dir, prefix)
	return &Control{path: path, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, path)
		},
	}}}
}

// SocketPath is where the simulator listens.
func SocketPath(dir, prefix string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return filepath.Join(dir, "fleet-"+prefix+".sock")
}

// Stats now.
func (c *Control) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := c.call(ctx, http.MethodGet, "/stats", nil, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&s)
	})
	return s, err
}

// Holdings of all agents, one call of yield each, in the order of their names; an
// error of yield ends it.
func (c *Control) Holdings(ctx context.Context, yield func(Holding) error) error {
	return c.call(ctx, http.MethodGet, "/holdings", nil, func(body io.Reader) error {
		d := json.NewDecoder(body)
		for {
			var h Holding
			if err := d.Decode(&h); err != nil {
				return fmt.Errorf("it ends too early: %w", err)
			}
			if h.Name == endOfHoldings {
				return nil
			}
			if err := yield(h); err != nil {
				return err
			}
		}
	})
}

// endOfHoldings is the name in the last line of Holdings: without it the answer was
// cut off. No cluster has such a name.
const endOfHoldings = "."

// Drop links as the order says. It returns when they are gone, not when they are
// back.
func (c *Control) Drop(ctx context.Context, d Drop) error {
	return c.call(ctx, http.MethodPost, "/drop", d, nil)
}

// Rates of all agents from now on.
func (c *Control) Rates(ctx context.Context, r Rates) error {
	return c.call(ctx, http.MethodPost, "/rates", r, nil)
}

// call the simulator; read gets the body of the answer.
func (c *Control) call(ctx context.Context, method, path string, order any, read func(io.Reader) error) error {
	body, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("order to the simulator: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://fleet"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("order to the simulator: %w", err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("reach the simulator at %s (does `atoll-lab fleet` run?): %w", c.path, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return fmt.Errorf("the simulator at %s says: %s", c.path, strings.TrimSpace(string(text)))
	}
	if read == nil {
		return nil
	}
	if err := read(answer.Body); err != nil {
		return fmt.Errorf("answer of the simulator at %s: %w", c.path, err)
	}
	return nil
}

// dialSocket goes through an open directory, since the path of a
// socket may be no longer than about 100 bytes.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
