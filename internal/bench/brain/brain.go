// Package brain measures what decides: a placement decision, a division, a rendering, on
// inputs of the size that they have in a large fleet.
//
// Contract: cases call the cores as the hub's shells do, with what those keep between
// calls at hand. Allocations and bytes are exact but for a few of the runtime's own; time
// is the least of several rounds in one goroutine, that of the machine at the moment.
// Budgets hold what a case may allocate, as data. Not for concurrent use: allocations are
// counted for the whole process.
package brain

import (
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"time"

	"sigs.k8s.io/yaml"
)

// Case is one piece of work.
type Case struct {
	// Name in the budgets.
	Name string
	// What it is, and How it is had, for people; Goal is what was asked.
	What, Goal, How string
	// Prepare the input and give the work. An error of the work means that it did not do
	// what is to be measured.
	Prepare func() (work func() error, err error)
}

// Cost of doing the work once.
type Cost struct {
	Time               time.Duration
	Allocations, Bytes float64
}

const (
	rounds   = 5
	roundFor = 100 * time.Millisecond
)

// Measure the case.
func (c Case) Measure() (Cost, error) { return c.measure(rounds, roundFor) }

// Count what the case allocates, without the time for a good measure of time.
func (c Case) Count() (Cost, error) { return c.measure(2, 0) }

// measure the least of so many rounds, each of which lasts so long or is one run.
func (c Case) measure(rounds int, length time.Duration) (Cost, error) {
	least := Cost{Time: math.MaxInt64, Allocations: math.MaxFloat64, Bytes: math.MaxFloat64}
	work, err := c.Prepare()
	if err == nil {
		err = work() // what is kept between calls is there from now on
	}
	for range rounds {
		var before, after runtime.MemStats
		runs, begin := 0, time.Now()
		runtime.ReadMemStats(&before)
		for runs == 0 || err == nil && time.Since(begin) < length {
			if err == nil {
				err = work()
			}
			runs++
		}
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		if err != nil {
			return Cost{}, fmt.Errorf("%s: %w", c.Name, err)
		}
		least.Time = min(least.Time, took/time.Duration(runs))
		least.Allocations = min(least.Allocations, float64(after.Mallocs-before.Mallocs)/float64(runs))
		least.Bytes = min(least.Bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(runs))
	}
	return least, nil
}

// Budget of a case: the most that it may allocate.
type Budget struct {
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
}

//go:embed budgets.yaml
var budgets []byte

// Budgets by the names of cases.
func Budgets() (map[string]Budget, error) {
	var out map[string]Budget
	if err := yaml.UnmarshalStrict(budgets, &out); err != nil {
		return nil, fmt.Errorf("budgets of the cores: %w", err)
	}
	return out, nil
}
