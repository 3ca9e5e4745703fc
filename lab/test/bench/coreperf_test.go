package bench

import (
	"maps"
	"slices"
	"testing"

	"atoll.dev/atoll/lab/bench/coreperf"
)

// TestAllocationsKeepTheirBudgets: the allocations of a decision, a division and a
// rendering do not depend on the machine. They depend on the race detector, which is off
// for these tests.
func TestAllocationsKeepTheirBudgets(t *testing.T) {
	budgets, err := coreperf.ReadAllocationBudgets()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range coreperf.AllCases() {
		t.Run(c.Name, func(t *testing.T) {
			budget, has := budgets[c.Name]
			if !has {
				t.Fatal("it has no budget")
			}
			delete(budgets, c.Name)
			cost, err := c.CountAllocations()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f allocations, %.0f bytes", cost.Allocations, cost.Bytes)
			if cost.Allocations > budget.Allocations || cost.Bytes > budget.Bytes {
				t.Errorf("%.0f allocations and %.0f bytes, %.0f and %.0f are allowed", cost.Allocations, cost.Bytes, budget.Allocations, budget.Bytes)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		t.Errorf("there is a budget for %q, and no such case", name)
	}
}
