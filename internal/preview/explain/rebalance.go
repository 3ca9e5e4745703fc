package explain

import (
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// Rebalance is the last request to place a Bundle from scratch.
type Rebalance struct {
	// Asked is the time of the request.
	Asked time.Time `json:"asked"`
	// RowsLeft counts the rows that have yet to come, to shrink or to go; 0: it is done.
	RowsLeft int `json:"left"`
}

// explainRebalance returns the last rebalance of a Bundle; nil: never.
func explainRebalance(b Bundle) *Rebalance {
	if b.Rebalance.IsZero() {
		return nil
	}
	out := &Rebalance{Asked: b.Rebalance}
	for _, row := range b.Rows {
		if isRebalancing(row, b.Rebalance) {
			out.RowsLeft++
		}
	}
	return out
}

// isRebalancing reports whether a row has yet to do its part in the rebalance.
func isRebalancing(row rollout.Row, asked time.Time) bool {
	spec := row.Spec
	switch spec.Phase {
	case atoll.RowActive:
		came := !time.Unix(spec.JoinedOrGrownAt(), 0).Before(asked.Truncate(time.Second))
		return len(spec.ShrinkTo) > 0 || spec.LastRebalance().Before(asked) || came && rollout.WaitOfActiveRow(row).For != ""
	case atoll.RowLeaving, atoll.RowHeld:
		return spec.LastRebalance().Before(asked)
	case atoll.RowRemoving:
		return strings.HasPrefix(spec.Reason, string(atoll.ReasonRebalanced))
	}
	return false
}

// writeRebalance writes a text about the rebalance.
func (e Explanation) writeRebalance(b *strings.Builder, r *Rebalance) {
	switch {
	case r == nil:
	case r.RowsLeft > 0:
		fmt.Fprintf(b, "  A rebalance that was requested %s ago is under way: %s yet to come, to shrink or to go.\n", e.formatAge(r.Asked), phrase.CountNoun(r.RowsLeft, "row"))
	default:
		fmt.Fprintf(b, "  Last placed from scratch %s ago, by `atoll rebalance`.\n", e.formatAge(r.Asked))
	}
}
