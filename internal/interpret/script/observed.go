package script

import (
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// A status that a script joins says of which generation of the template it is, at its top, in
// its conditions, or in both: kubectl wait goes by either. Members count generations on their
// own, so that a number that a script passed on is never the template's.

const observedGeneration = "observedGeneration"

// behind tells that what the cluster reports is not of what it applied last: its controller has
// not seen that, or has not said anything yet.
func behind(r *interpret.RowItem) bool {
	if len(r.Reflected) == 0 {
		return r.Health != atoll.Healthy && r.Health != atoll.Suspended
	}
	var w whole
	return utiljson.Unmarshal(r.Reflected, &w) == nil && w.Late
}

// observe writes the generation wherever a status tells one, and at its top also where own, the
// template's status so far, has one.
func observe(own, status map[string]any, generation int64) {
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
	for _, c := range conditions(status) {
		if _, tells := c[observedGeneration]; tells {
			c[observedGeneration] = generation
		}
	}
}

// observed is the generation that a status tells of: at its top, or else in its conditions.
func observed(status map[string]any) (n int64) {
	switch told := status[observedGeneration].(type) {
	case nil:
	case string:
		n, _ = strconv.ParseInt(told, 10, 64)
		return n
	default:
		return integer(told)
	}
	for _, c := range conditions(status) {
		n = max(n, integer(c[observedGeneration]))
	}
	return n
}

func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return atoll.Whole(n)
	}
	return 0
}

func conditions(status map[string]any) (out []map[string]any) {
	list, _ := status["conditions"].([]any)
	for _, e := range list {
		if c, ok := e.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}
