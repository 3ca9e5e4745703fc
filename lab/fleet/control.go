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

// DefaultPrefix is the default prefix of the names of simulated agents.
const DefaultPrefix = "sim"

// Stats are the figures of a simulator over all of its processes. Counters start at zero
// with the simulator.
type Stats struct {
	// Agents are simulated. Joined agents have a certificate, Connected ones a session
	// that the hub has answered.
	Agents, Joined, Connected int
	// Rows are all rows of the agents, RowsHealthy the rows last reported Ready. The hub
	// has not stored Unacknowledged reports yet.
	Rows, RowsHealthy, Unacknowledged int

	// Joins and Connects count successes. CheckIns count sessions that ended by themselves
	// with every report delivered. Refusals count joins and sessions that the hub refused,
	// Failures attempts that did not reach it.
	Joins, Connects, CheckIns, Refusals, Failures int64
	FramesUp, FramesDown                          int64
	// BytesUp and BytesDown count the payload of TLS.
	BytesUp, BytesDown int64
	// Upserts are received, Reports are sent.
	Upserts, Reports int64
	// Restarts and Outages count drawn and ordered ones.
	Restarts, Outages int64

	// PID is the simulator's process; PIDs are all of its processes, PID first.
	PID  int
	PIDs []int
	// JoinTime is the duration of a whole join, ConnectTime the time from the dial to the
	// hub's Welcome.
	JoinTime, ConnectTime Durations
	// LastRefusal and LastFailure are messages for people.
	LastRefusal, LastFailure string `json:",omitempty"`
}

// AgentState is the state of one agent.
type AgentState struct {
	Name string
	// UID is the UID of its Cluster; empty before the agent joined.
	UID string
	// Connected is true while the agent has a session.
	Connected bool
	// Bundles are keyed by UID. Removed Bundles are absent.
	Bundles map[string]BundleState
}

// BundleState is an agent's state of one Bundle.
type BundleState struct {
	Generation int64
	// Content is the content hash of the manifest.
	Content string
	// Items is the number of items in the manifest.
	Items int
	// State is the last reported state; empty before the first report.
	State atoll.RowState
	// Mark is the mark (ObjectsChecksum) of the objects that the agent received, independent of the
	// hub's hashes.
	Mark uint32
}

// DropOrder drops the links of agents. The agents dial again after For.
type DropOrder struct {
	// Share is the share of all agents to drop, 0 to 1, drawn for each order. It adds to
	// Names.
	Share float64
	Names []string
	For   time.Duration
	// Silent keeps the connection open without any read or write (half-open). Otherwise
	// the connection is reset.
	Silent bool
}

// FaultRates are the rates of faults and changes in simulated members: of the whole fleet or, as
// the name says, of each row or agent.
type FaultRates struct {
	// FlipsPerMinute is how often the health of each row changes between Degraded and
	// Ready.
	FlipsPerMinute float64
	// FailuresPerHour is how often each row becomes Degraded. It becomes Ready again after
	// HealthDelay.
	FailuresPerHour float64
	// RestartsPerHour is how often each agent's process restarts. The memory of the
	// process is lost, the state of its member remains.
	RestartsPerHour float64
	// OfflinePerMinute is the share of agents, 0 to 1, that lose their link each minute,
	// for OfflineFor.
	OfflinePerMinute float64
	OfflineFor       time.Duration
	// HealthDelay is the mean of the lognormal delay from an order to Ready; 0 means at
	// once.
	HealthDelay time.Duration
}

// SimulatorClient is a client of a running simulator.
type SimulatorClient struct {
	httpClient *http.Client
	socketPath string
}

// NewSimulatorClient returns the client of the simulator with that prefix in a lab's directory; ""
// means DefaultPrefix. The first call shows whether the simulator runs.
func NewSimulatorClient(dir, prefix string) *SimulatorClient {
	path := ControlSocketPath(dir, prefix)
	return &SimulatorClient{socketPath: path, httpClient: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, path)
		},
	}}}
}

// ControlSocketPath returns the path of the socket on which the simulator listens.
func ControlSocketPath(dir, prefix string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return filepath.Join(dir, "fleet-"+prefix+".sock")
}

// ReadStats returns the present figures.
func (c *SimulatorClient) ReadStats(ctx context.Context) (Stats, error) {
	var s Stats
	err := c.callSimulator(ctx, http.MethodGet, "/stats", nil, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&s)
	})
	return s, err
}

// ForEachAgentState calls yield once for each agent, in the order of their names. An error of
// yield ends the iteration.
func (c *SimulatorClient) ForEachAgentState(ctx context.Context, yield func(AgentState) error) error {
	return c.callSimulator(ctx, http.MethodGet, "/holdings", nil, func(body io.Reader) error {
		d := json.NewDecoder(body)
		for {
			var h AgentState
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

// endOfHoldings is the name in the last line of Holdings: an answer without it was
// truncated. No cluster has this name.
const endOfHoldings = "."

// DropLinks drops links as ordered. It returns when the links are down, before they are
// back.
func (c *SimulatorClient) DropLinks(ctx context.Context, d DropOrder) error {
	return c.callSimulator(ctx, http.MethodPost, "/drop", d, nil)
}

// SetRates sets the rates of all agents.
func (c *SimulatorClient) SetRates(ctx context.Context, r FaultRates) error {
	return c.callSimulator(ctx, http.MethodPost, "/rates", r, nil)
}

// callSimulator sends a request to the simulator; read receives the body of the answer.
func (c *SimulatorClient) callSimulator(ctx context.Context, method, path string, order any, read func(io.Reader) error) error {
	body, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("order to the simulator: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://fleet"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("order to the simulator: %w", err)
	}
	answer, err := c.httpClient.Do(request)
	if err != nil {
		return fmt.Errorf("reach the simulator at %s (does `atoll-lab fleet` run?): %w", c.socketPath, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return fmt.Errorf("the simulator at %s answered: %s", c.socketPath, strings.TrimSpace(string(text)))
	}
	if read == nil {
		return nil
	}
	if err := read(answer.Body); err != nil {
		return fmt.Errorf("answer of the simulator at %s: %w", c.socketPath, err)
	}
	return nil
}

// dialSocket dials through an open directory, because the path of a socket is limited to
// about 100 bytes.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
