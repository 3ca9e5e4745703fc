// Command testrun runs the tests of a level, phase by phase, and reports what failed. `make test`,
// `make test-all`, `make test-long` and `make test-short` call it. With -runs it runs them again and again beside a load,
// and prints how often each test failed; `make flakes` calls that.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxReruns is the number of tests that may run again in all phases together.
const maxReruns = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == burnArgument {
		computeForever()
	}
	o, err := parseOptions(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	phases, err := o.choosePhases(ctx)
	if err == nil && o.runs > 0 {
		err = o.findFlakes(ctx, phases)
	} else if err == nil {
		err = runAndReport(ctx, o.root, phases)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// testrunOptions are the command line.
type testrunOptions struct {
	root string
	// level is the name of the level; with a package, the package's tests run instead.
	level string
	// pkg is a package pattern relative to root, and run the expression of go test's -run.
	pkg, run string
	// runs is the number of runs for a table of flaky tests, and load the number of processes that
	// only compute beside them. Without runs, the tests run once and are reported.
	runs, load int
}

func parseOptions(args []string) (o testrunOptions, err error) {
	f := flag.NewFlagSet("testrun", flag.ContinueOnError)
	f.StringVar(&o.root, "root", ".", "the root of the tree")
	f.StringVar(&o.pkg, "package", "", "test this package, such as ./internal/placer, in place of a level")
	f.StringVar(&o.run, "run", "", "run only these tests of the package, as go test does")
	f.IntVar(&o.runs, "runs", 0, "run this often and print how often each test failed")
	f.IntVar(&o.load, "load", 0, "compute in this many processes beside the runs")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.level = f.Arg(0)
	if _, ok := levelNames[o.level]; f.NArg() > 1 || ok == (o.pkg != "") || o.run != "" && o.pkg == "" {
		return o, errors.New("name one level of short, test, long and all, or a package by -package")
	}
	o.root, err = filepath.Abs(o.root)
	return o, err
}

// choosePhases returns the phases of the level, or one for the package.
func (o testrunOptions) choosePhases(ctx context.Context) ([]phase, error) {
	if o.pkg == "" {
		return phasesOf(levelNames[o.level]), nil
	}
	dir, pattern := ".", o.pkg
	for _, module := range []string{"lab", "tools", "api", "test/monitoring"} {
		if rest, ok := strings.CutPrefix(filepath.Clean(o.pkg), module+"/"); ok {
			dir, pattern = module, "./"+rest
		}
	}
	p := phase{name: o.pkg, dir: dir, packages: []string{pattern}, flags: withUncachedTestFlags("-timeout", "40m"), env: plain}
	if o.run != "" {
		p.flags = append(p.flags, "-run", o.run)
	}
	raced, err := packagesOf(ctx, o.root, phase{dir: dir, kinds: []string{"race"}})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(raced, func(path string) bool { return strings.HasSuffix(path, strings.TrimPrefix(pattern, ".")) }) {
		p.flags, p.env = append(p.flags, "-race"), withRace
	}
	return []phase{p}, nil
}

// runAndReport runs the phases and prints the report.
func runAndReport(ctx context.Context, root string, phases []phase) error {
	warnOfLeftoverProcesses(ctx)
	records, err := os.MkdirTemp("", "atoll-testrun-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(records)
	total, failed, err := runPhases(ctx, root, phases, records)
	if err != nil {
		return err
	}
	if n := total.printReport(os.Stdout); n > 0 || len(failed) > 0 {
		return fmt.Errorf("%d tests failed, in the phases %s", n, strings.Join(failed, ", "))
	}
	return nil
}

// runPhases runs all phases, also after one that failed, with one file of records for each. It returns
// the record of all tests and the names of failed phases.
func runPhases(ctx context.Context, root string, phases []phase, records string) (total *testRecord, failed []string, err error) {
	total = newTestRecord()
	for i, p := range phases {
		begin := time.Now()
		file := filepath.Join(records, fmt.Sprint(i))
		err := runPhase(ctx, root, p, file, maxReruns-total.countFlakyTests())
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("interrupted in phase %q of %s", p.name, p.dir)
		}
		if err := total.readFile(file); err != nil {
			return nil, nil, err
		}
		outcome := "passed"
		if err != nil {
			outcome = fmt.Sprintf("failed (%v)", err)
			failed = append(failed, fmt.Sprintf("%q of %s", p.name, p.dir))
		}
		fmt.Printf("phase %q of %s %s after %s\n\n", p.name, p.dir, outcome, time.Since(begin).Round(time.Second))
	}
	return total, failed, nil
}

// packagesOf lists the packages that the phase tests.
func packagesOf(ctx context.Context, root string, p phase) ([]string, error) {
	if len(p.kinds) == 0 {
		return p.packages, nil
	}
	list := exec.CommandContext(ctx, filepath.Join(root, "test", "packages.sh"), p.kinds...)
	list.Dir, list.Stderr = filepath.Join(root, p.dir), os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", p.dir, err)
	}
	return strings.Fields(string(out)), nil
}

// runPhase runs gotestsum, which writes its record to the file. A phase without packages does nothing.
func runPhase(ctx context.Context, root string, p phase, file string, reruns int) error {
	packages, err := packagesOf(ctx, root, p)
	if err != nil || len(packages) == 0 {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "gotestsum"), p.gotestsumArgs(packages, file, reruns)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(root, p.dir), os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// readFile reads the record of a phase, by whose number the file is named. A phase that ran no test has
// none.
func (r *testRecord) readFile(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return r.readEvents(filepath.Base(name), f)
}

// warnOfLeftoverProcesses prints the hubs and members of an earlier run that still run: they take the
// machine from this run.
func warnOfLeftoverProcesses(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "pgrep", "-a", "-f", "atoll-(hub|lab) |kube-apiserver").Output()
	if err == nil && len(out) > 0 {
		fmt.Printf("These processes of an earlier run or of a lab still run and slow the tests down:\n%s\n", out)
	}
}
