package rollout

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// stayReason returns why a row stays in a cluster that does not fit, is drained, or has the application unhealthy; empty for others.
func stayReason(v *schedule.Verdict) string {
	switch n := v.Notes(); {
	case n.DrainReason != "":
		return atoll.RowReason{Reason: n.DrainReason, Text: n.DrainText}.String()
	case n.FailureReason != "":
		return atoll.RowReason{Reason: n.FailureReason, Text: n.FailureText}.String()
	case v.Outcome == schedule.OutcomeKept:
		return atoll.RowReason{Reason: v.RowReason, Text: v.Reason}.String()
	}
	return ""
}

// capacityReason returns why a row stays at its revision. In a drained cluster, the text begins with the reason by which
// the drain counts the row.
func capacityReason(v *schedule.Verdict) string {
	text := v.Notes().CapacityReason
	if v.Notes().DrainReason != "" {
		text = stayReason(v) + "; " + text
	}
	return atoll.RowReason{Reason: atoll.ReasonNoCapacity, Text: text}.String()
}
