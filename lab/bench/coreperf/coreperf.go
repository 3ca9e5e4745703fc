// Package coreperf measures the deciding cores: a placement decision, a division and a
// rendering, on inputs of the size of a large fleet.
//
// Contract: cases call the cores as the hub's shells do, with the state that the shells
// keep between calls. Allocations and bytes are exact except for a few of the runtime. Time
// is the least of several rounds in one goroutine on this machine. Budgets bound the
// allocations of a case, as data. The package is not safe for concurrent use: allocations
// are counted for the whole process.
package coreperf

import (
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"time"

	"sigs.k8s.io/yaml"
)

// Case is one measured piece of work.
type Case struct {
	// Name is its name in the budgets.
	Name string
	// The work, its measurement and its target, for people.
	What, Goal, How string
	// Prepare builds the input and returns the work. An error of the work means that it
	// did not do its task.
	Prepare func() (work func() error, err error)
}

// Cost is the cost of one run of the work.
type Cost struct {
	Time               time.Duration
	Allocations, Bytes float64
}

const (
	measureRounds = 5
	roundFor      = 100 * time.Millisecond
)

// MeasureCost measures the case.
func (c Case) MeasureCost() (Cost, error) { return c.measureBest(measureRounds, roundFor) }

// CountAllocations counts the allocations of the case, without a precise time.
func (c Case) CountAllocations() (Cost, error) { return c.measureBest(2, 0) }

// measureBest returns the least cost of several rounds. Each round lasts for length, or for
// one run.
func (c Case) measureBest(rounds int, length time.Duration) (Cost, error) {
	least := Cost{Time: math.MaxInt64, Allocations: math.MaxFloat64, Bytes: math.MaxFloat64}
	work, err := c.Prepare()
	if err == nil {
		err = work() // fills the state that is kept between calls
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

// AllocationBudget is the most that a case may allocate.
type AllocationBudget struct {
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
}

//go:embed budgets.yaml
var budgetsYAML []byte

// ReadAllocationBudgets returns the budgets by the names of cases.
func ReadAllocationBudgets() (map[string]AllocationBudget, error) {
	var out map[string]AllocationBudget
	if err := yaml.UnmarshalStrict(budgetsYAML, &out); err != nil {
		return nil, fmt.Errorf("budgets of the cores: %w", err)
	}
	return out, nil
}
