package atoll

import (
	"strconv"
	"strings"
	"time"
)

// RebalanceMark stands, in what a row remembers of its placement, before the rebalance
// that it went through last.
const RebalanceMark = "#"

// rebalanceFormat is RFC 3339 with milliseconds: rows remember no more of a time.
const rebalanceFormat = "2006-01-02T15:04:05.000Z07:00"

// FormatRebalance gives the value of AnnotationRebalance for a time.
func FormatRebalance(at time.Time) string { return at.UTC().Format(rebalanceFormat) }

// ParseRebalance reads a value of AnnotationRebalance.
func ParseRebalance(value string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}, err
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

// RebalanceAsked for by the annotations of an object; zero: never, or by what is no time,
// which admission keeps out.
func RebalanceAsked(annotations map[string]string) time.Time {
	value, asked := annotations[AnnotationRebalance]
	if !asked {
		return time.Time{}
	}
	at, err := ParseRebalance(value)
	if err != nil {
		return time.Time{}
	}
	return at
}

// WithRebalance adds to what a row remembers of its placement which rebalance it went
// through; zero: none.
func WithRebalance(remembered string, at time.Time) string {
	if at.IsZero() {
		return remembered
	}
	return remembered + RebalanceMark + strconv.FormatInt(at.UnixMilli(), 36)
}

// WithoutRebalance takes that off again.
func WithoutRebalance(remembered string) string {
	rest, _, _ := strings.Cut(remembered, RebalanceMark)
	return rest
}

// Rebalanced tells which rebalance the row went through last; zero: none.
func (r RowSpec) Rebalanced() time.Time {
	_, text, marked := strings.Cut(r.Placement, RebalanceMark)
	if !marked {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(text, 36, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
