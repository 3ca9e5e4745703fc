package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/lab/fleet"
	"atoll.dev/atoll/internal/lab/process"
)

// joinPatience is how long the agents of one simulator may take to join.
const joinPatience = 30 * time.Minute

// agents of one simulator.
type agents struct {
	process process.Spec
	control *fleet.Control
	count   int
	groups  int
}

// crowd says which agents to simulate.
type crowd struct {
	count  int
	groups int
	// prefix of their names; empty is the simulator's own.
	prefix string
	// checkIn is how often they call; 0: they hold streams.
	checkIn time.Duration
}

// open starts the hub, the agents and the sampler, and returns when the agents are
// there.
func (s *stage) open(ctx context.Context, c crowd) error {
	if _, err := s.startHub(ctx); err != nil {
		return err
	}
	a, err := s.launchAgents(c)
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	begin := time.Now()
	if err := s.awaitAgents(ctx, a, fmt.Sprintf("%d agents join", a.count), joinPatience, joined); err != nil {
		return err
	}
	stats, err := s.stats(ctx)
	if err != nil {
		return err
	}
	if stats.Joins == 0 {
		s.report.Note("the clusters were registered by an earlier run in this directory; what their members held then is lost")
		return nil // each comes when it is its turn
	}
	s.report.Time("all_joined", time.Since(begin))
	return s.awaitJoined(ctx, a)
}

// joined counts agents that have a certificate.
func joined(t fleet.Stats) int { return t.Joined }

// launchAgents starts a simulator and waits for nothing.
func (s *stage) launchAgents(c crowd) (*agents, error) {
	path, err := lab.Program("atoll-lab")
	if err != nil {
		return nil, err
	}
	prefix := c.prefix
	if prefix == "" {
		prefix = fleet.DefaultPrefix
	}
	command := []string{
		path, "fleet", "--dir", s.Dir, "--agents", strconv.Itoa(c.count), "--groups", strconv.Itoa(c.groups),
		"--prefix", prefix, "--seed", strconv.FormatInt(s.Seed, 10),
	}
	if c.checkIn > 0 {
		command = append(command, "--checkin", c.checkIn.String())
	} else {
		command = append(command, "--stream")
	}
	name := "simulator-" + prefix
	a := &agents{
		process: s.process(name, append(command, s.profiles(name)...)...),
		control: fleet.Dial(s.Dir, prefix), count: c.count, groups: c.groups,
	}
	if err := s.launch(a.process); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleets = append(s.fleets, a)
	return a, nil
}

// awaitJoined waits until all agents are clusters that are served.
func (s *stage) awaitJoined(ctx context.Context, a *agents) error {
	return s.awaitAgents(ctx, a, fmt.Sprintf("%d agents come", a.count), joinPatience, connected)
}

// connected counts agents that have joined and been served.
func connected(t fleet.Stats) int {
	// An agent that checks in is connected only now and then, but each was once.
	return min(t.Joined, max(t.Connected, int(min(t.Connects, int64(t.Joined)))))
}

// awaitAgents waits until as many agents as there are count.
func (s *stage) awaitAgents(ctx context.Context, a *agents, what string, patience time.Duration, count func(fleet.Stats) int) error {
	s.Progress.Step(what, a.count)
	var last fleet.Stats
	var looks looks
	notYet := errors.New("nothing is known of the agents yet")
	err := a.process.WaitReady(ctx, patience, func(ctx context.Context) error {
		if !looks.due(time.Now()) {
			return notYet
		}
		stats, err := a.control.Stats(ctx)
		looks.looked(time.Now())
		if err != nil {
			return err
		}
		last = stats
		n := count(stats)
		s.Progress.Reach(n)
		if n < a.count {
			notYet = fmt.Errorf("%d of %d agents", n, a.count)
			return notYet
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w; last refusal: %q, last failure: %q", what, err, last.LastRefusal, last.LastFailure)
	}
	return nil
}

// looks at a fleet cost the simulator time, the more the larger the fleet is: they take a
// part of it only.
type looks struct{ began, next time.Time }

const (
	// looksApart is the pause after a look, in times of what it took.
	looksApart = 20
	// looksApartMost bounds it, so that moments are known well enough.
	looksApartMost = time.Second
)

// due tells whether to look now; then looked is to be called.
func (l *looks) due(now time.Time) bool {
	if now.Before(l.next) {
		return false
	}
	l.began = now
	return true
}

func (l *looks) looked(now time.Time) {
	l.next = now.Add(min(looksApart*now.Sub(l.began), looksApartMost))
}

// simulators that were started so far.
func (s *stage) simulators() []*agents {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fleets[:len(s.fleets):len(s.fleets)]
}

// stats of all simulators together; times are those of the first.
func (s *stage) stats(ctx context.Context) (fleet.Stats, error) {
	var sum fleet.Stats
	for i, a := range s.simulators() {
		t, err := a.control.Stats(ctx)
		if err != nil {
			return sum, err
		}
		if i == 0 {
			sum = t
			continue
		}
		sum.Agents += t.Agents
		sum.Joined += t.Joined
		sum.Connected += t.Connected
		sum.Rows += t.Rows
		sum.RowsHealthy += t.RowsHealthy
		sum.Unacknowledged += t.Unacknowledged
		sum.Reports += t.Reports
		sum.Upserts += t.Upserts
		sum.Connects += t.Connects
		sum.CheckIns += t.CheckIns
		sum.Outages += t.Outages
		sum.PIDs = append(sum.PIDs, t.PIDs...)
	}
	return sum, nil
}

// rates of all simulators.
func (s *stage) rates(ctx context.Context, r fleet.Rates) error {
	for _, a := range s.simulators() {
		if err := a.control.Rates(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// until polls done with the time between, and fails after patience.
func until(ctx context.Context, what string, every, patience time.Duration, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, every, patience, true, done); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		return fmt.Errorf("%s: it did not come true within %s: %w", what, patience, err)
	}
	return nil
}

// pause for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
