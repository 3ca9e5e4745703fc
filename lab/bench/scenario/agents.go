package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/fleet"
	"atoll.dev/atoll/lab/process"
)

// joinPatience is how long the agents of one simulator may take to join.
const joinPatience = 30 * time.Minute

// agentFleet is the agents of one simulator.
type agentFleet struct {
	process process.ProcessSpec
	control *fleet.SimulatorClient
	count   int
	groups  int
}

// fleetSize is the size of a simulated fleet.
type fleetSize struct {
	count  int
	groups int
	// prefix is the prefix of the agents' names; empty means the simulator's own.
	prefix string
	// checkIn is the interval of check-ins; 0 means that agents hold streams.
	checkIn time.Duration
}

// startHubAndFleet starts the hub, the agents and the sampler. It returns when the agents have
// joined.
func (s *testbed) startHubAndFleet(ctx context.Context, c fleetSize) error {
	if _, err := s.startFirstHub(ctx); err != nil {
		return err
	}
	a, err := s.launchAgents(c)
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	begin := time.Now()
	if err := s.awaitAgents(ctx, a, fmt.Sprintf("%d agents join", a.count), joinPatience, joinedCount); err != nil {
		return err
	}
	stats, err := s.fleetStats(ctx)
	if err != nil {
		return err
	}
	if stats.Joins == 0 {
		s.report.AddNote("the clusters were registered by an earlier run in this directory; what their members held then is lost")
		return nil // each joins at its turn
	}
	s.report.AddTime("all_joined", time.Since(begin))
	return s.awaitJoined(ctx, a)
}

// joinedCount counts agents with a certificate.
func joinedCount(t fleet.Stats) int { return t.Joined }

// launchAgents starts a simulator without waiting for it.
func (s *testbed) launchAgents(c fleetSize) (*agentFleet, error) {
	path, err := lab.ProgramPath("atoll-lab")
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
	a := &agentFleet{
		process: s.processSpec(name, append(command, s.profileArgs(name)...)...),
		control: fleet.NewSimulatorClient(s.Dir, prefix), count: c.count, groups: c.groups,
	}
	if err := s.launchRequired(a.process); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleets = append(s.fleets, a)
	return a, nil
}

// awaitJoined waits until the hub serves all agents.
func (s *testbed) awaitJoined(ctx context.Context, a *agentFleet) error {
	return s.awaitAgents(ctx, a, fmt.Sprintf("%d agents come", a.count), joinPatience, onceServedCount)
}

// onceServedCount counts agents that have joined and been served.
func onceServedCount(t fleet.Stats) int {
	// An agent that checks in is connected now and then, but each was connected once.
	return min(t.Joined, max(t.Connected, int(min(t.Connects, int64(t.Joined)))))
}

// awaitAgents waits until all agents count.
func (s *testbed) awaitAgents(ctx context.Context, a *agentFleet, what string, patience time.Duration, count func(fleet.Stats) int) error {
	s.Progress.BeginStep(what, a.count)
	var last fleet.Stats
	var looks pollLimiter
	notYet := errors.New("nothing is known of the agents yet")
	err := a.process.WaitReady(ctx, patience, func(ctx context.Context) error {
		if !looks.isDue(time.Now()) {
			return notYet
		}
		stats, err := a.control.ReadStats(ctx)
		looks.recordPoll(time.Now())
		if err != nil {
			return err
		}
		last = stats
		n := count(stats)
		s.Progress.SetDone(n)
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

// pollLimiter limits the share of time that polls of the fleet take. Polls cost the
// simulator more the larger the fleet is.
type pollLimiter struct{ pollBegan, nextPoll time.Time }

const (
	// pollPauseFactor is the pause after a poll, as a multiple of its duration.
	pollPauseFactor = 20
	// maxPollPause bounds the pause, so that times are precise enough.
	maxPollPause = time.Second
)

// isDue reports whether to poll now. The caller then calls recordPoll.
func (l *pollLimiter) isDue(now time.Time) bool {
	if now.Before(l.nextPoll) {
		return false
	}
	l.pollBegan = now
	return true
}

func (l *pollLimiter) recordPoll(now time.Time) {
	l.nextPoll = now.Add(min(pollPauseFactor*now.Sub(l.pollBegan), maxPollPause))
}

// agentFleets returns the simulators that have started.
func (s *testbed) agentFleets() []*agentFleet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fleets[:len(s.fleets):len(s.fleets)]
}

// fleetStats returns the sums of all simulators; times are those of the first.
func (s *testbed) fleetStats(ctx context.Context) (fleet.Stats, error) {
	var sum fleet.Stats
	for i, a := range s.agentFleets() {
		t, err := a.control.ReadStats(ctx)
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

// setRates sets the rates of all simulators.
func (s *testbed) setRates(ctx context.Context, r fleet.FaultRates) error {
	for _, a := range s.agentFleets() {
		if err := a.control.SetRates(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// pollUntil polls done at the interval, and fails after patience.
func pollUntil(ctx context.Context, what string, every, patience time.Duration, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, every, patience, true, done); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		return fmt.Errorf("%s: it did not come true within %s: %w", what, patience, err)
	}
	return nil
}
