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

// processConfig configures one process of a simulator: the agents From to To of a fleet of
// Agents.
type processConfig struct {
	Dir, Prefix string
	Agents      int
	From, To    int
	Process     int
	Hubs        []string
	CAHash      string
	CA          []byte // PEM of the hub's CA
	Tokens      []string
	CheckIn     time.Duration // 0 holds the stream
	Seed        uint64
	Rates       FaultRates
	JoinRate    float64 // most joins per second; 0 means no limit
	Joiners     int     // concurrent joins
	Dialers     int     // concurrent dials
	ShapeLinks  bool
	Socket      string
	// RefusedPause is the pause after a permanent refusal.
	RefusedPause time.Duration
}

// simulator is one process of a simulated fleet.
type simulator struct {
	processConfig
	agents          []*simulatedAgent
	vault           *identityStore
	shapes          *keptManifestTable
	schedule        *timerQueue
	joinQueue       *unboundedQueue[*simulatedAgent]
	dialQueue       *unboundedQueue[*simulatedAgent]
	handshakeLimit  *rate.Limiter
	roots           *x509.CertPool
	apis            []string
	apisHash        string
	rates           atomic.Pointer[FaultRates]
	internedStrings sync.Map // chain ids and other strings that many agents share
	pendingJoinKeys sync.Map // keys of pending join requests, by agent index
	h2Options       []h2.CallOptions
	start           int64

	counts processCounts
}

// processCounts are the counters of a process; see Stats.
type processCounts struct {
	joins, connects, checkIns, refusals, failures atomic.Int64
	framesUp, framesDown, upserts, reports        atomic.Int64
	restarts, outages                             atomic.Int64
	wire                                          h2.Counts
	mu                                            sync.Mutex
	joinTime, connectTime                         Durations
	lastRefusal, lastFailure                      string
}

// newSimulator returns a process with the stored identities of its agents.
func newSimulator(c processConfig) (*simulator, error) {
	s := &simulator{
		processConfig: c, shapes: newKeptManifestTable(), schedule: newTimerQueue(), joinQueue: newUnboundedQueue[*simulatedAgent](), dialQueue: newUnboundedQueue[*simulatedAgent](),
		handshakeLimit: rate.NewLimiter(rate.Inf, 1), apis: servedAPIs(), start: time.Now().UnixNano(),
	}
	if c.JoinRate > 0 {
		s.handshakeLimit = rate.NewLimiter(rate.Limit(c.JoinRate), 1)
	}
	s.apisHash = session.APIsHash(s.apis)
	s.rates.Store(&c.Rates)
	var err error
	if s.roots, err = trust.PoolFromPEM(c.CA); err != nil {
		return nil, err
	}
	for _, hub := range c.Hubs {
		s.h2Options = append(s.h2Options, h2.CallOptions{
			Authority: hub, Method: pb.Session_Connect_FullMethodName, MessageMost: session.MaxFrameBytes, Counts: &s.counts.wire,
		})
	}
	byName := make(map[string]*simulatedAgent, c.To-c.From)
	for i := c.From; i < c.To; i++ {
		a := &simulatedAgent{sim: s, index: i, nextHub: i % len(c.Hubs)}
		a.becomeNewInstance()
		s.agents = append(s.agents, a)
		byName[a.clusterName()] = a
	}
	s.vault, err = openIdentityStore(c.fleetDir(), c.Process, func(id *identity, at identityLocation) {
		if a := byName[id.Name]; a != nil {
			a.identity, a.uid, a.renewAt, a.certNotAfter = at, strings.Clone(id.UID), id.Renew.Unix(), id.Until.Unix()
		}
	})
	return s, err
}

// fleetDir returns the directory of the fleet's files.
func (c *processConfig) fleetDir() string { return filepath.Join(c.Dir, "fleet-"+c.Prefix) }

// agentName returns the name of an agent. It is zero-padded, so that names sort as numbers
// do.
func (c *processConfig) agentName(index int) string {
	return fmt.Sprintf("%s-%0*d", c.Prefix, len(fmt.Sprint(c.Agents-1)), index)
}

func (s *simulator) instanceID(index int, n uint32) string {
	return fmt.Sprintf("%x-%x-%x", s.start, index, n)
}

// internString returns one shared copy of a string.
func (s *simulator) internString(text string) string {
	kept, _ := s.internedStrings.LoadOrStore(text, text)
	return kept.(string)
}

// run runs the process until ctx ends.
func (s *simulator) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { s.schedule.runDueEvents(ctx) })
	running.Go(func() { s.maintainAgents(ctx) })
	running.Go(func() { s.injectFaults(ctx) })
	for range s.Joiners {
		running.Go(func() { s.joinLoop(ctx) })
	}
	for range s.Dialers {
		running.Go(func() { s.dialLoop(ctx) })
	}
	for _, a := range s.agents {
		a.mu.Lock()
		if a.hasJoined() {
			s.scheduleFirstDial(a)
		} else {
			s.joinQueue.put(a)
		}
		a.mu.Unlock()
	}
	err := s.serveControlSocket(ctx)
	cancel()
	s.closeAllSessions()
	return err
}

// closeAllSessions closes all sessions without waiting for their ends: the process ends.
func (s *simulator) closeAllSessions() {
	for _, a := range s.agents {
		a.mu.Lock()
		l := a.session
		a.session = nil
		a.mu.Unlock()
		if l != nil {
			l.wire.cutWithReset()
		}
	}
}

// hasJoined reports whether the agent has a certificate. The caller holds mu.
func (a *simulatedAgent) hasJoined() bool { return a.identity.length > 0 }

// storeIdentity stores the identity on disk. The caller holds mu.
func (a *simulatedAgent) storeIdentity(id *identity) {
	at, err := a.sim.vault.put(id)
	if err != nil {
		a.sim.countFailure(err)
		return
	}
	a.identity, a.uid, a.renewAt, a.certNotAfter = at, id.UID, id.Renew.Unix(), id.Until.Unix()
	a.ticket.DropTicket()
}

func (s *simulator) countFailure(err error) {
	s.counts.failures.Add(1)
	s.counts.mu.Lock()
	s.counts.lastFailure = err.Error()
	s.counts.mu.Unlock()
}

func (s *simulator) countRefusal(why string) {
	s.counts.refusals.Add(1)
	s.counts.mu.Lock()
	s.counts.lastRefusal = why
	s.counts.mu.Unlock()
}

// inventoryFrame returns the inventory of a simulated member. All members serve the same
// APIs. The requests of its pods grow with the number of its applications. The caller holds
// the agent's mutex.
func (l *simulatedSession) inventoryFrame(apis bool) *pb.FromAgent {
	s := l.agent.sim
	l.applicationCount = len(l.agent.holdings)
	inv := &pb.Inventory{
		KubernetesVersion: memberVersion, AgentVersion: atoll.Version, ApisHash: s.apisHash, NodesTotal: daemonNodes, NodesReady: daemonNodes,
		Allocatable: map[string]string{"cpu": "12", "memory": "48Gi", "pods": "330"},
		Requested: map[string]string{
			"cpu": fmt.Sprintf("%dm", 2000+100*l.applicationCount), "memory": fmt.Sprintf("%dMi", 4096+128*l.applicationCount), "pods": strconv.Itoa(20 + l.applicationCount),
		},
		Room: &pb.Room{Classes: []string{
			"2 cpu=3500m memory=14336Mi pods=100", fmt.Sprintf("1 cpu=%dm memory=%dMi pods=%d", max(100, 3000-100*l.applicationCount), max(128, 12288-128*l.applicationCount), max(1, 96-l.applicationCount)),
		}},
		MemberReady: true,
	}
	if apis {
		inv.Apis = s.apis
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: inv}}
}

// countConnected counts a session that the hub answered. The caller holds the agent's
// mutex.
func (s *simulator) countConnected(l *simulatedSession) {
	s.counts.connects.Add(1)
	s.counts.mu.Lock()
	s.counts.connectTime.add(time.Since(l.began))
	s.counts.mu.Unlock()
}

// sweepEvery is the time between two sweeps over the sessions.
const sweepEvery = time.Second

// idleCore is how long an unused session core is kept.
const idleCore = 3 * time.Second

// maintainAgents does the periodic work of all agents without a timer for each: it finds
// half-open links, drops idle cores, renews certificates and ends check-ins.
func (s *simulator) maintainAgents(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var b joinBurst
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if b.hasEnded(s.counts.joins.Load() + s.counts.connects.Load()) {
			debug.FreeOSMemory() // the runtime would keep the memory for the next burst
		}
		now := time.Now()
		for _, a := range s.agents {
			a.runPeriodicUpkeep(now)
		}
	}
}

// calmSweeps is the number of sweeps without a join that ends a burst.
const calmSweeps = 10

// joinBurst is a burst of joining agents.
type joinBurst struct {
	lastTotal  int64
	calmSweeps int
}

// hasEnded reports once that a burst has ended, from the total of joins.
func (b *joinBurst) hasEnded(came int64) bool {
	if came != b.lastTotal {
		b.lastTotal, b.calmSweeps = came, 0
		return false
	}
	b.calmSweeps++
	return b.calmSweeps == calmSweeps && came > 0
}

func (a *simulatedAgent) runPeriodicUpkeep(now time.Time) {
	a.mu.Lock()
	l := a.session
	if a.core != nil && now.Unix()-a.lastUsed > int64(idleCore/time.Second) {
		a.dropIdleCore()
	}
	if l != nil && l.welcomed && now.Unix() >= a.renewAt {
		l.renewCertificateIfDue()
	}
	if l != nil && l.welcomed && l.applicationCount != len(a.holdings) {
		l.send(l.inventoryFrame(false))
	}
	silent := time.Duration(0)
	if l != nil {
		silent = now.Sub(l.h2Call.LastRead())
	}
	a.mu.Unlock()
	l.checkSilence(silent)
	l.flushFrames()
}

// checkSilence pings a hub that is silent, and closes the stream of one that does not answer.
func (l *simulatedSession) checkSilence(silent time.Duration) {
	switch {
	case l == nil || l.wire.isSilent.Load():
	case silent > session.KeepaliveAgentTime+session.KeepaliveAgentTimeout:
		l.h2Call.Close()
	case silent > session.KeepaliveAgentTime && !l.wire.pingSent.Swap(true):
		go l.h2Call.SendPing()
	case silent < session.KeepaliveAgentTime:
		l.wire.pingSent.Store(false)
	}
}
