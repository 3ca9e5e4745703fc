// Package scenario holds what Atoll is put through at scale, and what each has to
// reach.
//
// Contract: a scenario runs a hub and simulated agents as processes of the built
// binaries, in a directory of its own, and ends them whatever happens. What it finds
// is in its report; an error means that it could not be run to its end, and the
// report then holds what there is until there. A process that ends by itself ends the
// scenario. Scale makes clusters and applications
// fewer, never what is asked of them less. One scenario at a time: they measure the
// machine.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/bench/report"
)

// Scenario is one of them.
type Scenario struct {
	Name string
	// About says in one line what it does.
	About string
	run   func(context.Context, *stage) error
	// resumes: it can go on from what pairs-100k left in the directory.
	resumes bool
}

// Options of a run.
type Options struct {
	// Dir holds hub and simulator and is left as it is at the end, so that "restart"
	// can go on from where "pairs-100k" ended. Empty: a temporary directory, removed
	// at the end.
	Dir string
	// Seed of all draws.
	Seed int64
	// Scale of clusters and applications; 1 is the size that the name says.
	Scale float64
	// CountsOnly checks nothing that depends on the machine, and measures times less
	// long.
	CountsOnly bool
	// ProfileDir takes profiles of hub and simulator; empty: none.
	ProfileDir string
	// Progress is told how far it is. Required.
	Progress Progress
}

// Progress shows people how far a scenario is.
type Progress interface {
	// Step begins another step; total is what Reach is going to count up to, 0 if
	// nobody knows.
	Step(what string, total int)
	// Reach tells how much of the step is done.
	Reach(done int)
}

// All scenarios, as they are listed.
func All() []Scenario {
	return []Scenario{
		{Name: "place-100", About: "one application onto 100 of 1,000 clusters, beside 1,000 others: time and writes until all report healthy", run: place},
		{Name: "schedule-rate", About: "a policy lands on 10,000 applications that nobody places, among 1,000 clusters: until every slice is stored", run: scheduleRate},
		{Name: "pairs-100k", About: "1,000 applications onto 100 of 1,000 clusters each: store, memory, time", run: pairs},
		{Name: "restart", About: "the hub is killed where pairs-100k ended, and started: what it takes to serve, to deliver and to compare", run: restart, resumes: true},
		{Name: "idle-10k", About: "10,000 agents hold streams and nothing changes: no write, no CPU, little memory", run: idle},
		{Name: "touch-10", About: "a change to 10 clusters costs the same among 100, 1,000 and 10,000", run: touch},
		{Name: "register", About: "100,000 clusters join through the handshake: how fast, and whether that stays so", run: register},
		{Name: "storm", About: "10,000 agents lose the hub and return together, links cut first, then the hub killed", run: storm},
		{Name: "flap", About: "5 % of 10,000 agents drop every minute while applications change", run: flap},
		{Name: "edge-100k", About: "100,000 clusters that check in, 10 applications each: memory, store, a change for all, a restart", run: edge},
		{Name: "status-storm", About: "health of 100,000 rows flips twice a minute: bounded writes, right summaries", run: statusStorm},
		{Name: "big", About: "a template of 1 MB, an application of 5,000 objects, a placement onto 50,000 clusters", run: big},
		{Name: "hub-loss", About: "three hubs on one etcd, 21,000 agents spread over them: the leader is killed, then another", run: hubLoss},
	}
}

// Find a scenario by its name.
func Find(name string) (Scenario, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// Names of all scenarios, for messages.
func Names() string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// Run a scenario.
func (s Scenario) Run(ctx context.Context, o Options) (*report.Report, error) {
	r := report.New(s.Name, s.About, o.Seed, o.Scale)
	r.CountsOnly = o.CountsOnly
	st, err := newStage(o, r, s.resumes)
	if err != nil {
		return r, err
	}
	defer st.stopSampling()
	guarded, release := st.guard(ctx)
	err = s.run(guarded, st)
	if why := context.Cause(guarded); err != nil && why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w (meanwhile: %s)", why, err)
	}
	release()
	st.stopSampling()
	return r, st.end(ctx, err)
}
