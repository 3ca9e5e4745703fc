package atoll

import (
	"strconv"
	"strings"
	"time"
)

// RebalanceSeparator stands, in a row's record of its placement, before the rebalance
// that it went through last.
const RebalanceSeparator = "#"

// rebalanceTimeLayout is RFC 3339 with milliseconds: rows store no more of a time.
const rebalanceTimeLayout = "2006-01-02T15:04:05.000Z07:00"

// FormatRebalanceTime returns the value of AnnotationRebalance for a time.
func FormatRebalanceTime(at time.Time) string { return at.UTC().Format(rebalanceTimeLayout) }

// ParseRebalanceTime reads a value of AnnotationRebalance.
func ParseRebalanceTime(value string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}, err
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

// RebalanceRequestedAt returns the time in the annotations of an object; zero: never, or by what is no time,
// which admission keeps out.
func RebalanceRequestedAt(annotations map[string]string) time.Time {
	value, asked := annotations[AnnotationRebalance]
	if !asked {
		return time.Time{}
	}
	at, err := ParseRebalanceTime(value)
	if err != nil {
		return time.Time{}
	}
	return at
}

// AppendRebalance adds to a row's record of its placement the rebalance that it went through; zero:
// none.
func AppendRebalance(remembered string, at time.Time) string {
	if at.IsZero() {
		return remembered
	}
	return remembered + RebalanceSeparator + strconv.FormatInt(at.UnixMilli(), 36)
}

// TrimRebalance returns the text without the rebalance that AppendRebalance added.
func TrimRebalance(remembered string) string {
	rest, _, _ := strings.Cut(remembered, RebalanceSeparator)
	return rest
}

// LastRebalance returns the time of the row's last rebalance; zero: none.
func (r RowSpec) LastRebalance() time.Time {
	_, text, marked := strings.Cut(r.PlacementFingerprint, RebalanceSeparator)
	if !marked {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(text, 36, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
