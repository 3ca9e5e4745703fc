package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// burnArgument makes this program a process that only computes.
const burnArgument = "burn"

// doneFile marks the records of a run that reached its end.
const doneFile = "done"

// computeForever computes until the process is killed.
func computeForever() {
	for n := uint(1); ; n = n*3 | 1 {
	}
}

// findFlakes runs the phases o.runs times beside o.load processes that compute, and prints how often
// each test failed. Its records are in bin/flakes: an interrupted call goes on at the run that was
// interrupted.
func (o testrunOptions) findFlakes(ctx context.Context, phases []phase) error {
	stop, err := startLoad(o.load)
	if err != nil {
		return err
	}
	defer stop()
	dir := filepath.Join(o.root, "bin", "flakes", o.recordDirName())
	var runs []*testRecord
	for i := range o.runs {
		records := filepath.Join(dir, fmt.Sprint(i+1))
		r, err := readRun(records)
		if errors.Is(err, os.ErrNotExist) {
			fmt.Printf("run %d of %d\n", i+1, o.runs)
			r, err = o.recordRun(ctx, phases, records)
		}
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	fmt.Printf("%d runs beside %d processes that compute; delete %s to begin again\n", len(runs), o.load, dir)
	return printTestFailures(os.Stdout, runs)
}

// recordDirName names the directory of these runs.
func (o testrunOptions) recordDirName() string {
	name := o.level
	if o.pkg != "" {
		name = strings.Trim(o.pkg+" "+o.run, "./ ")
	}
	safe := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	return fmt.Sprintf("%s-load-%d", strings.Map(safe, name), o.load)
}

// recordRun runs the phases once. Failures are in the record.
func (o testrunOptions) recordRun(ctx context.Context, phases []phase, records string) (*testRecord, error) {
	if err := os.RemoveAll(records); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(records, 0o755); err != nil {
		return nil, err
	}
	r, _, err := runPhases(ctx, o.root, phases, records)
	if err != nil {
		return nil, err
	}
	return r, os.WriteFile(filepath.Join(records, doneFile), nil, 0o644)
}

// readRun reads the records of a run, or returns os.ErrNotExist when it did not reach its end.
func readRun(records string) (*testRecord, error) {
	if _, err := os.Stat(filepath.Join(records, doneFile)); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(records)
	if err != nil {
		return nil, err
	}
	r := newTestRecord()
	for _, f := range files {
		if f.Name() == doneFile {
			continue
		}
		if err := r.readFile(filepath.Join(records, f.Name())); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// startLoad starts processes that only compute. They end with this one.
func startLoad(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var running []*exec.Cmd
	stop = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill() // it may have been killed before
			_ = cmd.Wait()
		}
	}
	for range n {
		cmd := exec.Command(self, burnArgument)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		running = append(running, cmd)
	}
	return stop, nil
}

// flake counts the runs of one test.
type flake struct {
	name             testName
	runs, red, flaky int
	slowest          time.Duration
}

// countTestFailures returns the tests that failed in a run at least once, the most frequent failures first.
func countTestFailures(runs []*testRecord) []flake {
	counts := map[testName]*flake{}
	for _, r := range runs {
		for name, v := range r.testVerdicts() {
			c := counts[name]
			if c == nil {
				c = &flake{name: name}
				counts[name] = c
			}
			c.runs++
			switch v {
			case "failed":
				c.red++
			case "flaky":
				c.flaky++
			}
			c.slowest = max(c.slowest, r.runs[name][0].took)
		}
	}
	var out []flake
	for _, c := range counts {
		if c.red+c.flaky > 0 {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b flake) int {
		if d := b.red + b.flaky - a.red - a.flaky; d != 0 {
			return d
		}
		return strings.Compare(a.name.String(), b.name.String())
	})
	return out
}

// printTestFailures prints the table of the tests that failed.
func printTestFailures(out io.Writer, runs []*testRecord) error {
	flakes := countTestFailures(runs)
	if len(flakes) == 0 {
		fmt.Fprintln(out, "no test failed")
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "TEST\tRUNS\tFAILED\tPASSED AT ITS RERUN\tSLOWEST")
	for _, f := range flakes {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", f.name, f.runs, f.red, f.flaky, f.slowest.Round(100*time.Millisecond))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return fmt.Errorf("%d tests failed at least once", len(flakes))
}
