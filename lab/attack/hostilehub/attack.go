package hostilehub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/lab"
)

const (
	// MemoryLimit of the agent's cgroup, as in the agent's chart.
	MemoryLimit = 256 << 20
	// namespace in the member of everything that the hub orders.
	namespace = "attacked"
	// kept is the bundle that the hub orders honestly before the attack.
	kept = "kept"
	// after is the bundle that the hub orders honestly after the attack.
	after = "after"
	// honestLimit ends the wait for an agent that hangs. The agent stores what it has queued in the attack first, and the
	// honest hub removes all bundles of the attack, about 50 a second.
	honestLimit = 15 * time.Minute
	// maxLeaseAge is how old the last renewal of the member's Lease may become. Another agent takes a Lease after 15 s.
	maxLeaseAge = 15 * time.Second
)

// Attack is one way to harm an agent.
type Attack struct {
	Name    string
	Summary string
	// deaf attacks need a hub that reads nothing.
	deaf bool
	// endsSession attacks make the agent end the session at once, and others with it.
	endsSession bool
	// act attacks in one session, until the session or ctx ends.
	act func(ctx context.Context, s *agentSession) error
}

// Attacks lists every attack.
var Attacks = slices.Concat(orderAttacks, unreadAttacks, tunnelAttacks)

// TogetherAttacks returns the attacks that can share a session.
func TogetherAttacks() []Attack {
	return slices.DeleteFunc(slices.Clone(Attacks), func(a Attack) bool { return a.endsSession })
}

// Result is what was observed of the agent.
type Result struct {
	// Name of the attack.
	Name string
	// Sessions that the agent began in the attack, and Restarts of its process.
	Sessions, Restarts int
	// Before and Peak are the anonymous memory of the agent before the attack, and the most since, in bytes.
	Before, Peak float64
	// LeaseAge is the longest time without a renewal of the member's Lease.
	LeaseAge time.Duration
	// Recovery is the time from the end of the attack until the honest orders were done.
	Recovery time.Duration
	// Broken is why the agent did not hold; nil if it did.
	Broken error
}

// RunAttack attacks the agent of a member by some attacks at once, for the given time.
func RunAttack(ctx context.Context, m *Member, name string, attacks []Attack, lasts time.Duration) Result {
	r := Result{Name: name}
	h, err := startHub(ctx)
	if err == nil {
		err = waitUntil(ctx, honestLimit, "the member keeps the state of an earlier agent", m.resetState)
	}
	if err != nil {
		r.Broken = err
		return r
	}
	defer h.server.Stop()
	p, err := startAgent(ctx, m, h)
	if err != nil {
		r.Broken = err
		return r
	}
	defer p.stopAgent()
	r.Broken = r.attackAgent(ctx, m, h, p, attacks, lasts)
	if r.Broken != nil {
		r.Broken = fmt.Errorf("%w; the log is %s", r.Broken, p.log)
	}
	return r
}

// attackAgent returns why the agent did not hold, or nil.
func (r *Result) attackAgent(ctx context.Context, m *Member, h *hub, p *agentProcess, attacks []Attack, lasts time.Duration) error {
	if err := h.deliverConfigMap(ctx, kept, "before"); err != nil {
		return fmt.Errorf("before the attack: %w", err)
	}
	uid, err := m.readConfigMapUID(ctx, kept)
	if err != nil {
		return fmt.Errorf("before the attack: %w", err)
	}
	o := startObserver(ctx, m, p)
	defer o.stopObserving()
	r.Before = o.memoryNow()
	begun := h.countSessions()
	h.switchAttacks(attacks)
	_ = lab.PauseFor(ctx, lasts)
	r.Sessions = h.countSessions() - begun
	end := time.Now()
	h.switchAttacks(nil)
	err = h.deliverConfigMap(ctx, kept, "after")
	if err == nil {
		err = h.deliverConfigMap(ctx, after, "after")
	}
	r.Recovery = time.Since(end)
	o.stopObserving()
	r.Peak, r.LeaseAge, r.Restarts = o.peak, o.leaseAge, p.countRestarts()
	switch now, failed := m.readConfigMapUID(ctx, kept); {
	case r.Restarts > 0:
		return fmt.Errorf("the agent's process ended %d times, the last time by: %s", r.Restarts, p.lastEnd())
	case r.Sessions == 0:
		return fmt.Errorf("the agent began no session in the attack")
	case err != nil:
		return fmt.Errorf("after the attack: %w", err)
	case failed != nil:
		return fmt.Errorf("after the attack: %w", failed)
	case now != uid:
		return fmt.Errorf("the ConfigMap %s was deleted and created again", kept)
	case r.LeaseAge > maxLeaseAge:
		return fmt.Errorf("the member's Lease was not renewed for %s", r.LeaseAge.Round(time.Second))
	}
	return nil
}

// String returns one line about the result.
func (r Result) String() string {
	verdict := "held  "
	if r.Broken != nil {
		verdict = "BROKEN"
	}
	line := fmt.Sprintf("%s %-18s memory %3.0f -> %3.0f MiB, %d sessions, lease at most %.0f s old, honest again after %.1f s",
		verdict, r.Name, r.Before/(1<<20), r.Peak/(1<<20), r.Sessions, r.LeaseAge.Seconds(), r.Recovery.Seconds())
	if r.Broken != nil {
		line += "\n       " + r.Broken.Error()
	}
	return line
}
