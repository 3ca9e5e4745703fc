package main

import (
	"fmt"
	"slices"
	"strings"
)

// phase is one call of gotestsum.
type phase struct {
	name string
	// level is the lowest level that runs the phase.
	level level
	// dir is the module, relative to the root.
	dir string
	// kinds are those of test/packages.sh. Without kinds, packages are the patterns to test.
	kinds, packages []string
	// flags are for go test.
	flags []string
	// env is added to the environment.
	env []string
}

// level is a set of phases: each of the first three runs those of the levels before it.
type level int

const (
	levelShort level = iota // no cluster, no server
	levelTest               // decides whether a change is right
	levelAll                // everything
	levelLong               // what levelAll has and levelTest has not
)

// levelNames are the words of the command line.
var levelNames = map[string]level{"short": levelShort, "test": levelTest, "all": levelAll, "long": levelLong}

// modules are those whose packages test/packages.sh sorts.
var modules = []string{".", "lab"}

// Test binaries are linked without tables for debuggers, in two thirds of the time.
var (
	quick    = []string{"-ldflags", "-s -w"}
	withRace = []string{"CGO_ENABLED=1"}
	plain    = []string{"CGO_ENABLED=0"}
)

// phasesOf returns the phases of a level in their order.
func phasesOf(l level) []phase {
	switch l {
	case levelShort:
		return shortTestPhases()
	case levelLong:
		return slices.DeleteFunc(allPhases(), func(p phase) bool { return p.level < levelAll })
	}
	return slices.DeleteFunc(allPhases(), func(p phase) bool { return p.level > l })
}

// shortTestPhases run what needs no cluster and no server.
func shortTestPhases() []phase {
	short := slices.Concat(quick, []string{"-short", "-timeout", "3m"})
	phases := phasePerModule(phase{name: "short", kinds: []string{"race", "pure", "decides"}, flags: short, env: plain})
	for _, dir := range []string{"api", "tools", "test/monitoring"} {
		phases = append(phases, phase{name: "short", dir: dir, packages: []string{"./..."}, flags: short, env: plain})
	}
	return phases
}

// allPhases lists every phase, those of levelTest first, and short ones of the others before long ones. Packages that link Kubernetes or bring up
// clusters run at most two at once, because each has servers that take memory.
func allPhases() []phase {
	promises := append(slices.Clone(plain), "ATOLL_E2E_PROMISES=1")
	return slices.Concat(
		phasePerModule(phase{name: "race", level: levelTest, kinds: []string{"race"}, flags: withUncachedTestFlags("-race", "-timeout", "15m"), env: withRace}),
		phasePerModule(phase{name: "plain", level: levelTest, kinds: []string{"pure", "plain", "decides"}, flags: withUncachedTestFlags("-p", "2", "-timeout", "25m"), env: plain}),
		[]phase{
			{name: "promises", level: levelTest, dir: "lab", packages: []string{"./test/e2e"}, flags: withUncachedTestFlags("-timeout", "25m"), env: promises},
			{name: "promise of tenancy", level: levelTest, dir: "lab", packages: []string{"./test/e2e/tenancy"}, flags: withUncachedTestFlags("-timeout", "25m", "-run", "^TestTenantFromBeginToEnd$"), env: plain},
			{name: "api", level: levelTest, dir: "api", packages: []string{"./..."}, flags: withUncachedTestFlags(), env: plain},
			{name: "tools", level: levelTest, dir: "tools", packages: []string{"./mutants/...", "./testrun/..."}, flags: withUncachedTestFlags(), env: plain},
		},
		[]phase{{
			name: "stops and kills of etcd", level: levelAll, dir: ".", packages: []string{"./internal/apiserver/etcd"},
			flags: withUncachedTestFlags("-timeout", "15m", "-run", "^TestEveryAcknowledgedWriteSurvivesStopsAndKills$"),
			env:   append(slices.Clone(plain), "ATOLL_TEST_ETCD_ROUNDS=100"),
		}},
		[]phase{
			{name: "charts and images", level: levelAll, dir: "tools", packages: []string{"./charts/...", "./images/...", "./inventory/...", "./console/..."}, flags: withUncachedTestFlags("-timeout", "15m"), env: plain},
			{name: "monitoring", level: levelAll, dir: "test/monitoring", packages: []string{"./..."}, flags: withUncachedTestFlags(), env: plain},
		},
		phasePerModule(phase{name: "labs", level: levelAll, kinds: []string{"labs"}, flags: withUncachedTestFlags("-p", "2", "-timeout", "25m"), env: plain}),
		phasePerModule(phase{name: "alone", level: levelAll, kinds: []string{"alone"}, flags: withUncachedTestFlags("-p", "1", "-timeout", "70m"), env: plain}),
	)
}

func withUncachedTestFlags(flags ...string) []string {
	return slices.Concat(quick, []string{"-count=1"}, flags)
}

func phasePerModule(p phase) (out []phase) {
	for _, dir := range modules {
		p.dir = dir
		out = append(out, p)
	}
	return out
}

// gotestsumArgs are the arguments of gotestsum for the phase. reruns is the number of failed tests
// that may still be run again.
func (p phase) gotestsumArgs(packages []string, record string, reruns int) []string {
	args := []string{"--format", "pkgname", "--format-hide-empty-pkg", "--jsonfile", record}
	if reruns > 0 {
		args = append(args, "--rerun-fails=1", fmt.Sprintf("--rerun-fails-max-failures=%d", reruns), "--rerun-fails-run-root-test",
			"--rerun-fails-abort-on-data-race")
	}
	return slices.Concat(args, []string{"--packages", strings.Join(packages, " "), "--"}, p.flags)
}
