// Command testrun runs the tests of a level, phase by phase, and reports what failed. `make test`,
// `make test-all` and `make test-short` call it.
//
// Contract: every phase runs, also after another one failed. gotestsum runs a failed test once more,
// alone; at most maxReruns tests in all phases. The last line is "N passed, N failed, N skipped". The
// exit code is 0 when no test failed, else 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxReruns is the number of tests that may run again in all phases together.
const maxReruns = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := flag.String("root", ".", "the root of the tree")
	flag.Parse()
	l, ok := levelNames[flag.Arg(0)]
	if !ok || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: testrun [-root DIR] short|test|all")
		os.Exit(2)
	}
	abs, err := filepath.Abs(*root)
	if err == nil {
		err = runLevel(ctx, abs, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// runLevel runs all phases of the level and prints the report.
func runLevel(ctx context.Context, root string, l level) error {
	warnOfLeftovers(ctx)
	records, err := os.MkdirTemp("", "atoll-testrun-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(records)
	total := newRecord()
	var failed []string
	for i, p := range phasesOf(l) {
		begin := time.Now()
		file := filepath.Join(records, fmt.Sprint(i))
		err := runPhase(ctx, root, p, file, maxReruns-total.flakyTests())
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in phase %q of %s", p.name, p.dir)
		}
		if err := total.readFile(file); err != nil {
			return err
		}
		outcome := "passed"
		if err != nil {
			outcome = fmt.Sprintf("failed (%v)", err)
			failed = append(failed, fmt.Sprintf("%q of %s", p.name, p.dir))
		}
		fmt.Printf("phase %q of %s %s after %s\n\n", p.name, p.dir, outcome, time.Since(begin).Round(time.Second))
	}
	if n := total.printReport(os.Stdout); n > 0 || len(failed) > 0 {
		return fmt.Errorf("%d tests failed, in the phases %s", n, strings.Join(failed, ", "))
	}
	return nil
}

// runPhase runs gotestsum, which writes its record to the file. A phase without packages does nothing.
func runPhase(ctx context.Context, root string, p phase, file string, reruns int) error {
	dir := filepath.Join(root, p.dir)
	packages := p.packages
	if len(p.kinds) > 0 {
		list := exec.CommandContext(ctx, filepath.Join(root, "test", "packages.sh"), p.kinds...)
		list.Dir, list.Stderr = dir, os.Stderr
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("list the packages of %s: %w", p.dir, err)
		}
		packages = strings.Fields(string(out))
	}
	if len(packages) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "gotestsum"), p.gotestsumArgs(packages, file, reruns)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// readFile reads the record of a phase. A phase that ran no test has none.
func (r *record) readFile(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

// warnOfLeftovers prints the hubs and members of an earlier run that still run: they take the
// machine from this run.
func warnOfLeftovers(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "pgrep", "-a", "-f", "atoll-(hub|lab) |kube-apiserver").Output()
	if err == nil && len(out) > 0 {
		fmt.Printf("These processes of an earlier run or of a lab still run and slow the tests down:\n%s\n", out)
	}
}
