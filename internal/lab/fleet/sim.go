package fleet

import (
	"context"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// crew is what one process of a simulator is started with: the agents From to To of
// a fleet of Agents.
type crew struct {
	Dir, Prefix string
	Agents      int
	From, To    int
	Process     int
	Hubs        []string
	CAHash      string
	CA          []byte // PEM of the hub's CA
	Tokens      []string
	CheckIn     time.Duration // 0: hold the stream
	Seed        uint64
	Rates       Rates
	JoinRate    float64 // joins per second at most; 0: no limit
	Joiners     int     // joins at a time
	Dialers     int     // dials at a time
	Link        bool
	Socket      string
	// RefusedPause after a refusal for good.
	RefusedPause time.Duration
}

// sim is one process of a simulator.
type sim struct {
	crew
	agents   []*agent
	vault    *vault
	shapes   *shapes
	schedule *schedule
	joins    *line[*agent]
	dials    *line[*agent]
	limit    *rate.Limiter
	roots    *x509.CertPool
	apis     []string
	apisHash string
	rates    atomic.Pointer[Rates]
	strings  sync.Map // of chain ids and others that many agents have
	joining  sync.Map // keys of agents that have asked to join, by index, until they are let in
	options  []h2.Options
	start    int64

	counts counts
}

// counts of a process; see Stats.
type counts struct {
	joins, connects, checkIns, refusals, failures atomic.Int64
	framesUp, framesDown, upserts, reports        atomic.Int64
	restarts, outages                             atomic.Int64
	wire                                          h2.Counts
	mu                                            sync.Mutex
	joinTime, connectTime                         Durations
	lastRefusal, lastFailure                      string
}

// newSim gives a process with what its agents keep on disk.
func newSim(c crew) (*sim, error) {
	s := &sim{
		crew: c, shapes: newShapes(), schedule: newSchedule(), joins: newLine[*agent](), dials: newLine[*agent](),
		limit: rate.NewLimiter(rate.Inf, 1), apis: servedAPIs(), start: time.Now().UnixNano(),
	}
	if c.JoinRate > 0 {
		s.limit = rate.NewLimiter(rate.Limit(c.JoinRate), 1)
	}
	s.apisHash = session.APIsHash(s.apis)
	s.rates.Store(&c.Rates)
	var err error
	if s.roots, err = trust.PoolFromPEM(c.CA); err != nil {
		return nil, err
	}
	for _, hub := range c.Hubs {
		s.options = append(s.options, h2.Options{
			Authority: hub, Method: pb.Session_Connect_FullMethodName, MessageMost: session.MaxFrameBytes, Counts: &s.counts.wire,
		})
	}
	byName := make(map[string]*agent, c.To-c.From)
	for i := c.From; i < c.To; i++ {
		a := &agent{sim: s, index: i, hub: i % len(c.Hubs)}
		a.newInstance()
		s.agents = append(s.agents, a)
		byName[a.name()] = a
	}
	s.vault, err = openVault(c.home(), c.Process, func(id *identity, at place) {
		if a := byName[id.Name]; a != nil {
			a.identity, a.uid, a.renew, a.until = at, strings.Clone(id.UID), id.Renew.Unix(), id.Until.Unix()
		}
	})
	return s, err
}

// home of what a fleet keeps.
func (c *crew) home() string { return filepath.Join(c.Dir, "fleet-"+c.Prefix) }

// name of an agent: zero-padded, so that names sort as numbers do.
func (c *crew) name(index int) string {
	return fmt.Sprintf("%s-%0*d", c.Prefix, len(fmt.Sprint(c.Agents-1)), index)
}

func (s *sim) instance(index int, n uint32) string {
	return fmt.Sprintf("%x-%x-%x", s.start, index, n)
}

// intern gives one copy of a string.
func (s *sim) intern(text string) string {
	kept, _ := s.strings.LoadOrStore(text, text)
	return kept.(string)
}

// run until ctx ends.
func (s *sim) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { s.schedule.loop(ctx) })
	running.Go(func() { s.sweep(ctx) })
	running.Go(func() { s.befall(ctx) })
	for range s.Joiners {
		running.Go(func() { s.joinLoop(ctx) })
	}
	for range s.Dialers {
		running.Go(func() { s.dialLoop(ctx) })
	}
	for _, a := range s.agents {
		a.mu.Lock()
		if a.joined() {
			s.firstDial(a)
		} else {
			s.joins.put(a)
		}
		a.mu.Unlock()
	}
	err := s.serve(ctx)
	cancel()
	s.closeAll()
	return err
}

// closeAll sessions. Their ends are not waited for: the process ends.
func (s *sim) closeAll() {
	for _, a := range s.agents {
		a.mu.Lock()
		l := a.link
		a.link = nil
		a.mu.Unlock()
		if l != nil {
			l.wire.cut()
		}
	}
}

// joined tells whether the agent has a certificate. The caller holds mu.
func (a *agent) joined() bool { return a.identity.length > 0 }

// keep the identity on disk. The caller holds mu.
func (a *agent) keep(id *identity) {
	at, err := a.sim.vault.put(id)
	if err != nil {
		a.sim.failed(err)
		return
	}
	a.identity, a.uid, a.renew, a.until = at, id.UID, id.Renew.Unix(), id.Until.Unix()
	a.ticket.Drop()
}

func (s *sim) failed(err error) {
	s.counts.failures.Add(1)
	s.counts.mu.Lock()
	s.counts.lastFailure = err.Error()
	s.counts.mu.Unlock()
}

func (s *sim) refused(why string) {
	s.counts.refusals.Add(1)
	s.counts.mu.Lock()
	s.counts.lastRefusal = why
	s.counts.mu.Unlock()
}

// inventory of an imagined member; all serve the same. Its pods ask for more with each
// application that it holds. The caller holds the agent's mutex.
func (l *link) inventory(apis bool) *pb.FromAgent {
	s := l.agent.sim
	l.load = len(l.agent.holdings)
	inv := &pb.Inventory{
		KubernetesVersion: memberVersion, AgentVersion: atoll.Version, ApisHash: s.apisHash, NodesTotal: nodes, NodesReady: nodes,
		Allocatable: map[string]string{"cpu": "12", "memory": "48Gi", "pods": "330"},
		Requested: map[string]string{
			"cpu": fmt.Sprintf("%dm", 2000+100*l.load), "memory": fmt.Sprintf("%dMi", 4096+128*l.load), "pods": strconv.Itoa(20 + l.load),
		},
		Room: &pb.Room{Classes: []string{
			"2 cpu=3500m memory=14336Mi pods=100", fmt.Sprintf("1 cpu=%dm memory=%dMi pods=%d", max(100, 3000-100*l.load), max(128, 12288-128*l.load), max(1, 96-l.load)),
		}},
		MemberReady: true,
	}
	if apis {
		inv.Apis = s.apis
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: inv}}
}

// connected notes that the hub answered a session. The caller holds the agent's
// mutex.
func (s *sim) connected(l *link) {
	s.counts.connects.Add(1)
	s.counts.mu.Lock()
	s.counts.connectTime.add(time.Since(l.began))
	s.counts.mu.Unlock()
}

// sweepEvery is how often sessions are looked at.
const sweepEvery = time.Second

// idleCore is how long a session core is kept without use.
const idleCore = 3 * time.Second

// sweep does for all agents what each would need a timer for: half-open links are
// found, cores put to sleep, certificates renewed, check-ins ended.
func (s *sim) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var b burst
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if b.over(s.counts.joins.Load() + s.counts.connects.Load()) {
			debug.FreeOSMemory() // the runtime would keep what it may need for the next
		}
		now := time.Now()
		for _, a := range s.agents {
			a.sweep(now)
		}
	}
}

// calmSweeps in a row without one who comes end a burst.
const calmSweeps = 10

// burst of agents that come in.
type burst struct {
	came int64
	calm int
}

// over tells once that a burst is, by how many ever came.
func (b *burst) over(came int64) bool {
	if came != b.came {
		b.came, b.calm = came, 0
		return false
	}
	b.calm++
	return b.calm == calmSweeps && came > 0
}

func (a *agent) sweep(now time.Time) {
	a.mu.Lock()
	l := a.link
	if a.core != nil && now.Unix()-a.used > int64(idleCore/time.Second) {
		a.sleep()
	}
	if l != nil && l.welcomed && now.Unix() >= a.renew {
		l.renew()
	}
	if l != nil && l.welcomed && l.load != len(a.holdings) {
		l.send(l.inventory(false))
	}
	silent := time.Duration(0)
	if l != nil {
		silent = now.Sub(l.call.LastRead())
	}
	a.mu.Unlock()
	switch {
	case l == nil || l.wire.silent.Load():
	case silent > session.KeepaliveAgentTime+session.KeepaliveAgentTimeout:
		l.call.Close()
	case silent > session.KeepaliveAgentTime && !l.wire.pinged.Swap(true):
		go l.call.Ping()
	case silent < session.KeepaliveAgentTime:
		l.wire.pinged.Store(false)
	}
	l.flush()
}
