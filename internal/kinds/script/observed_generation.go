package script

import (
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/quantity"
)

// The status that a script joins states the generation of the template at its top, in its
// conditions, or in both: kubectl wait reads either. Members count generations on their own, so
// a number that a script copies is never the template's.
const observedGeneration = "observedGeneration"

// isStatusOlderThanApplied reports whether the cluster reports a state older than what it applied last: the
// controller has not observed it, or has reported nothing.
func isStatusOlderThanApplied(r *kinds.RowItem) bool {
	if len(r.Reflected) == 0 {
		return r.Health != atoll.Healthy && r.Health != atoll.Suspended
	}
	var w wholeStatus
	return utiljson.Unmarshal(r.Reflected, &w) == nil && w.Late
}

// setObservedGeneration writes the generation wherever status has one, and at its top also where
// own, the template's present status, has one.
func setObservedGeneration(own, status map[string]any, generation int64) {
	if status == nil {
		return
	}
	before, had := own[observedGeneration]
	now, has := status[observedGeneration]
	if !has {
		now = before
	}
	if had || has {
		if _, text := now.(string); text {
			status[observedGeneration] = strconv.FormatInt(generation, 10)
		} else {
			status[observedGeneration] = generation
		}
	}
	for _, c := range conditionMaps(status) {
		if _, tells := c[observedGeneration]; tells {
			c[observedGeneration] = generation
		}
	}
}

// observedGenerationIn returns the generation at the top of a status, or else the highest in its
// conditions.
func observedGenerationIn(status map[string]any) (n int64) {
	switch told := status[observedGeneration].(type) {
	case nil:
	case string:
		n, _ = strconv.ParseInt(told, 10, 64)
		return n
	default:
		return toInteger(told)
	}
	for _, c := range conditionMaps(status) {
		n = max(n, toInteger(c[observedGeneration]))
	}
	return n
}

func toInteger(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return quantity.RoundUpCapped(n)
	}
	return 0
}

func conditionMaps(status map[string]any) (out []map[string]any) {
	list, _ := status["conditions"].([]any)
	for _, e := range list {
		if c, ok := e.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}
