package kinds

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/quantity"
)

// maxQuotaResources is the number of resources that a cluster reports of a ResourceQuota.
const maxQuotaResources = 32

// quotaParts of the status are maps from a resource to a quantity.
var quotaParts = []string{"hard", "used"}

// reflectQuota returns name, hard and used amount of each limited resource, one after the other.
func reflectQuota(obj *unstructured.Unstructured) (r reflectedStatus, ok bool) {
	st := statusOf(obj)
	names := slices.Sorted(maps.Keys(nestedMap(st, "hard")))
	for _, name := range names[:min(len(names), maxQuotaResources)] {
		entry := []string{name}
		for _, part := range quotaParts {
			entry = append(entry, stringField(nestedMap(st, part), name))
		}
		if _, ok := parseAmounts(entry[1:]); ok && len(name) <= maxObjectName {
			r.L = append(r.L, entry...)
		}
	}
	return r, len(r.L) > 0
}

// aggregateQuota sums what the connected clusters grant and use, of the resources that the template
// limits. Each cluster has a quota of its own.
func aggregateQuota(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	limited := nestedMap(specOf(a.template), "hard")
	sums := map[string][]resource.Quantity{}
	for _, r := range a.rows {
		for entry := range slices.Chunk(r.L, 1+len(quotaParts)) {
			amounts, ok := parseAmounts(entry[1:])
			if _, wanted := limited[entry[0]]; !ok || !wanted {
				continue
			}
			sum := sums[entry[0]]
			if sum == nil {
				sum = make([]resource.Quantity, len(quotaParts))
			}
			for i, q := range amounts {
				q.Mul(int64(r.EqualClusters) + 1)
				sum[i].Add(q)
			}
			sums[entry[0]] = sum
		}
	}
	st := map[string]any{}
	for i, part := range quotaParts {
		amounts := map[string]any{}
		for name, sum := range sums {
			amounts[name] = sum[i].String()
		}
		st[part] = amounts
	}
	return st, true
}

// parseAmounts reads one quantity for each of quotaParts. It refuses negative ones.
func parseAmounts(texts []string) (amounts []resource.Quantity, ok bool) {
	for _, text := range texts {
		q, err := quantity.Parse(text)
		if err != nil || q.Sign() < 0 {
			return nil, false
		}
		amounts = append(amounts, q)
	}
	return amounts, len(amounts) == len(quotaParts)
}
