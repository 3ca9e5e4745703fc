// Package scenario holds the scale scenarios and their targets.
//
// Contract: a scenario runs a hub and simulated agents as processes of the built binaries,
// in a directory of its own, and always ends them. Its findings are in its report. An error
// means that the scenario did not finish; the report then holds the findings so far. A
// process that ends by itself ends the scenario. Scale reduces the number of clusters and
// applications, never the targets. One scenario runs at a time, because they measure the
// machine.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"atoll.dev/atoll/lab/bench/report"
)

// Scenario is one scenario.
type Scenario struct {
	Name string
	// About describes the scenario in one line.
	About string
	run   func(context.Context, *testbed) error
	// resumes is true if the scenario can continue from the state of pairs-100k in the
	// directory.
	resumes bool
}

// Options are the options of a run.
type Options struct {
	// Dir holds hub and simulator. It stays at the end, so that "restart" can continue
	// from "pairs-100k". Empty means a temporary directory, removed at the end.
	Dir string
	// Seed is the seed of all draws.
	Seed int64
	// Scale scales clusters and applications; 1 is the size in the name.
	Scale float64
	// CountsOnly skips checks that depend on the machine, and shortens measurements of
	// time.
	CountsOnly bool
	// ProfileDir receives profiles of hub and simulator; empty means none.
	ProfileDir string
	// Progress receives the progress. Required.
	Progress Progress
}

// Progress shows the progress of a scenario.
type Progress interface {
	// BeginStep begins another step; total is the final value of SetDone, 0 if it is
	// unknown.
	BeginStep(what string, total int)
	// SetDone sets the finished part of the step.
	SetDone(done int)
}

// AllScenarios returns all scenarios, in the order of the list.
func AllScenarios() []Scenario {
	return []Scenario{
		{Name: "place-100", About: "one application onto 100 of 1,000 clusters, beside 1,000 others: time and writes until all report healthy", run: runPlaceOneApp},
		{Name: "schedule-rate", About: "a policy selects 10,000 unplaced applications, among 1,000 clusters: until every slice is stored", run: runScheduleRate},
		{Name: "pairs-100k", About: "1,000 applications onto 100 of 1,000 clusters each: store, memory, time", run: runAppClusterPairs},
		{Name: "restart", About: "the hub is killed where pairs-100k ended, and started: what it takes to serve, to deliver and to compare", run: runRestart, resumes: true},
		{Name: "idle-10k", About: "10,000 agents hold streams and nothing changes: no write, no CPU, little memory", run: runIdle},
		{Name: "touch-10", About: "a change to 10 clusters costs the same among 100, 1,000 and 10,000", run: runChangesAcrossFleetSizes},
		{Name: "register", About: "100,000 clusters join through the handshake: how fast, and whether that stays so", run: runRegistration},
		{Name: "storm", About: "10,000 agents lose the hub and return together, links cut first, then the hub killed", run: runReconnectStorm},
		{Name: "flap", About: "5 % of 10,000 agents drop every minute while applications change", run: runFlappingAgents},
		{Name: "edge-100k", About: "100,000 clusters that check in, 10 applications each: memory, store, a change for all, a restart", run: runCheckInFleet},
		{Name: "status-storm", About: "health of 100,000 rows flips twice a minute: bounded writes, right summaries", run: runStatusStorm},
		{Name: "big", About: "a template of 1 MB, an application of 5,000 objects, a placement onto 50,000 clusters", run: runLargeObjects},
		{Name: "hub-loss", About: "three hubs on one etcd, 21,000 agents spread over them: the leader is killed, then another", run: runHubLoss},
	}
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, bool) {
	all := AllScenarios()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// JoinedScenarioNames returns the names of all scenarios, for messages.
func JoinedScenarioNames() string {
	var names []string
	for _, s := range AllScenarios() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// Run runs the scenario.
func (s Scenario) Run(ctx context.Context, o Options) (*report.BenchReport, error) {
	r := report.NewReport(s.Name, s.About, o.Seed, o.Scale)
	r.CountsOnly = o.CountsOnly
	st, err := newTestbed(o, r, s.resumes)
	if err != nil {
		return r, err
	}
	defer st.stopSampling()
	guarded, release := st.guardProcesses(ctx)
	err = s.run(guarded, st)
	if why := context.Cause(guarded); err != nil && why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w (in the meantime: %s)", why, err)
	}
	release()
	st.stopSampling()
	return r, st.tearDown(ctx, err)
}
