// Package bench holds scenarios at a small scale to their budgets of counts.
//
// Contract: it drives the built binaries of ATOLL_BIN_DIR, or of bin/, as a user
// does. Nothing that it compares depends on how fast the machine is or what else runs
// on it.
package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/budgets"
	"atoll.dev/atoll/lab/bench/scenario"
)

// benchResult is what `atoll-lab bench SCENARIO -o json` prints.
type benchResult struct {
	Checks []struct {
		Name, Detail string
		OK           bool
	}
	Metrics map[string]struct {
		Value float64
		Unit  string
	}
	progress string
	took     time.Duration
}

// binDir is where the built binaries are.
func binDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(lab.BinDirVariable)
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "atoll-lab")); err != nil {
		t.Skipf("no binaries: run make build: %v", err)
	}
	return dir
}

// atOnce is how many scenarios run side by side: they mostly wait for a hub that has
// nothing to do.
const atOnce = 6

// longestFirst begin first, so that none of them is left to run alone at the end.
var longestFirst = []string{"touch-10", "edge-100k", "big"}

// startOrder returns the scenario's place in the order of starts: others keep theirs.
func startOrder(b budgets.Budget) int {
	if i := slices.Index(longestFirst, b.Scenario); i >= 0 {
		return i
	}
	return len(longestFirst)
}

func TestScenariosKeepTheirBudgets(t *testing.T) {
	if testing.Short() {
		t.Skip("starts hubs and fleets")
	}
	dir := binDir(t)
	all, err := budgets.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range longestFirst {
		if !slices.ContainsFunc(all, func(b budgets.Budget) bool { return b.Scenario == name }) {
			t.Errorf("%q is to begin early, and has no budget", name)
		}
	}
	slices.SortStableFunc(all, func(a, b budgets.Budget) int { return cmp.Compare(startOrder(a), startOrder(b)) })
	var results sync.Map
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for _, b := range all {
		if _, ok := scenario.Find(b.Scenario); !ok {
			t.Errorf("there is a budget for %q, and no such scenario", b.Scenario)
			continue
		}
		group.Go(func() error {
			r, err := runScenario(ctx, dir, b)
			results.Store(b.Scenario, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		t.Run(b.Scenario, func(t *testing.T) {
			r, ok := results.Load(b.Scenario)
			if !ok {
				t.Skip("it did not run")
			}
			checkBudget(t, b, r.(benchResult))
		})
	}
}

// checkBudget compares the result of a scenario with its budget.
func checkBudget(t *testing.T, b budgets.Budget, r benchResult) {
	for _, c := range r.Checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	for name, most := range b.Most {
		m, ok := r.Metrics[name]
		switch {
		case !ok:
			t.Errorf("the scenario has no metric %q", name)
		case m.Value > most:
			t.Errorf("%s is %v %s, at most %v", name, m.Value, m.Unit, most)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metrics)) {
		t.Logf("%s %v %s", name, r.Metrics[name].Value, r.Metrics[name].Unit)
	}
	t.Logf("it took %s", r.took.Round(time.Second))
	if t.Failed() {
		t.Logf("%s", r.progress)
	}
}

// runScenario runs the scenario of the budget. Failed checks are in the result.
func runScenario(ctx context.Context, dir string, b budgets.Budget) (r benchResult, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "atoll-lab"), "bench", b.Scenario, "-o", "json", "--counts-only",
		"--scale", strconv.FormatFloat(b.Scale, 'g', -1, 64), "--seed", strconv.FormatInt(b.Seed, 10))
	cmd.Env = append(os.Environ(), lab.BinDirVariable+"="+dir)
	// It has to end what it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	begin := time.Now()
	err = cmd.Run()
	r.took = time.Since(begin)
	if decodeErr := json.Unmarshal(out.Bytes(), &r); decodeErr != nil {
		return r, fmt.Errorf("%s: %w, and it printed no result: %w\n%s\n%s", b.Scenario, err, decodeErr, out.String(), progress.String())
	}
	r.progress = progress.String()
	return r, nil
}
