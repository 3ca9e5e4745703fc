package explain

import (
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// Rebalance is the last time that somebody had a Bundle placed from scratch.
type Rebalance struct {
	// Asked is when.
	Asked time.Time `json:"asked"`
	// Left counts the rows that have yet to come, to shrink or to go; 0: it is done.
	Left int `json:"left"`
}

// rebalance of a Bundle; nil: never.
func rebalance(b Bundle) *Rebalance {
	if b.Rebalance.IsZero() {
		return nil
	}
	out := &Rebalance{Asked: b.Rebalance}
	for _, row := range b.Rows {
		if unsettled(row, b.Rebalance) {
			out.Left++
		}
	}
	return out
}

// unsettled tells whether a row has yet to do its part in the rebalance.
func unsettled(row rollout.Row, asked time.Time) bool {
	spec := row.Spec
	switch spec.Phase {
	case atoll.RowActive:
		came := !time.Unix(spec.Came(), 0).Before(asked.Truncate(time.Second))
		return len(spec.Due) > 0 || spec.Rebalanced().Before(asked) || came && rollout.WaitOf(row).For != ""
	case atoll.RowLeaving, atoll.RowHeld:
		return spec.Rebalanced().Before(asked)
	case atoll.RowRemoving:
		return strings.HasPrefix(spec.Reason, atoll.RowRebalanced)
	}
	return false
}

// text about a rebalance.
func (e Explanation) rebalance(b *strings.Builder, r *Rebalance) {
	switch {
	case r == nil:
	case r.Left > 0:
		fmt.Fprintf(b, "  A rebalance that was asked for %s ago is under way: %s yet to come, to shrink or to go.\n", e.age(r.Asked), atoll.Count(r.Left, "row"))
	default:
		fmt.Fprintf(b, "  Last placed from scratch %s ago, by `atoll rebalance`.\n", e.age(r.Asked))
	}
}
