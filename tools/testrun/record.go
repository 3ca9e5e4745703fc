package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxEvent is the longest line of a record in bytes.
const maxEvent = 16 << 20

// event is a line that `go test -json` prints.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
	Elapsed                       float64
}

// testName names a test that is not a subtest, in one phase: a level may run a test in two phases, and
// each run counts. An empty test stands for the package itself.
type testName struct{ phase, pkg, test string }

// testRun is one execution of a test, with the output of its subtests.
type testRun struct {
	verdict string // pass, fail or skip; empty when it did not end
	begun   time.Time
	took    time.Duration
	output  strings.Builder
}

// testRecord holds every run of every test, in the order of their first runs.
type testRecord struct {
	names []testName
	runs  map[testName][]*testRun
}

func newTestRecord() *testRecord { return &testRecord{runs: map[testName][]*testRun{}} }

// readEvents adds the events of gotestsum in a phase.
func (r *testRecord) readEvents(phase string, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read a test event %.80q: %w", lines.Text(), err)
		}
		r.addEvent(phase, e)
	}
	return lines.Err()
}

// addEvent assigns an event to the current run of its test. A test that begins after its end has
// another run.
func (r *testRecord) addEvent(phase string, e event) {
	root, _, _ := strings.Cut(e.Test, "/")
	name := testName{phase, e.Package, root}
	own := e.Test == root
	runs := r.runs[name]
	if len(runs) == 0 || runs[len(runs)-1].verdict != "" && own && (e.Action == "run" || e.Action == "start") {
		if len(runs) == 0 {
			r.names = append(r.names, name)
		}
		runs = append(runs, &testRun{})
		r.runs[name] = runs
	}
	run := runs[len(runs)-1]
	switch e.Action {
	case "output":
		run.output.WriteString(e.Output)
	case "run", "cont":
		if own {
			run.begun = e.Time
		}
	case "pass", "fail", "skip":
		if own {
			// go test leaves the time of parallel subtests out.
			run.verdict, run.took = e.Action, max(time.Duration(e.Elapsed*float64(time.Second)), e.Time.Sub(run.begun))
		}
	}
}

// verdictOf returns the outcome of a test: passed, skipped, flaky or failed. A test is flaky when it failed and passed at
// its rerun. A rerun that is skipped leaves it failed.
func verdictOf(runs []*testRun) string {
	first, last := runs[0].verdict, runs[len(runs)-1].verdict
	switch {
	case first == "pass":
		return "passed"
	case first == "skip":
		return "skipped"
	case first == "fail" && last == "pass":
		return "flaky"
	}
	return "failed"
}

// testVerdicts returns the verdicts of all tests. A package counts as a test of its own only where it
// failed and none of its tests did.
func (r *testRecord) testVerdicts() map[testName]string {
	verdicts, failing := map[testName]string{}, map[testName]bool{}
	for name, runs := range r.runs {
		if name.test == "" {
			continue
		}
		v := verdictOf(runs)
		verdicts[name] = v
		pkg := testName{phase: name.phase, pkg: name.pkg}
		failing[pkg] = failing[pkg] || v == "failed" || v == "flaky"
	}
	for name, runs := range r.runs {
		if name.test == "" && !failing[name] && verdictOf(runs) == "failed" {
			verdicts[name] = "failed"
		}
	}
	return verdicts
}
