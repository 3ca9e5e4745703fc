package rollout

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
)

// ReadinessTimeout is how long a row waits for its replacements before it requests a
// confirmation. For a cluster that checks in it is ReadinessCheckIns of its intervals where
// this is longer.
const (
	ReadinessTimeout  = 10 * time.Minute
	ReadinessCheckIns = 3
)

// Row is a row as it is stored, and whether its cluster can be reached.
type Row struct {
	Spec atoll.RowSpec
	// Status as last reported; nil: never reported.
	Status *atoll.RowStatus
	// Online: the cluster holds a stream, or checks in on time.
	Online bool
	// UncertainUntil is when the hub can decide that a cluster without a stream is disconnected: it
	// has just started, or lost most clusters at once. In the past or zero: it can.
	UncertainUntil time.Time
	// LostAt is when the cluster was lost, if it is not Online; zero: it never was.
	LostAt time.Time
	// ConnectedAt is when the cluster connected, in Unix seconds, if it is Online.
	ConnectedAt int64
	// Stage is the index of the cluster's stage in Input.Terms, and Windows are the change windows that concern it.
	Stage   int
	Windows changewindow.Mask
	// CheckIn is how often the cluster checks in; 0: it holds a stream.
	CheckIn time.Duration
	// Suspended: nothing is dispatched to the cluster, by its name.
	Suspended bool
	// lateAt is when progressDeadline ended, in Unix seconds, before the row was healthy; 0: it did not.
	lateAt int64
}

// readinessTimeout is how long other rows wait for this one.
func (r Row) readinessTimeout() time.Duration {
	return max(ReadinessTimeout, ReadinessCheckIns*r.CheckIn)
}

// isReady reports whether the cluster can be reached, and reports that the content of this
// spec is there and healthy.
func (r Row) isReady() bool { return r.Online && r.reportsReady() }

// reportsReady reports whether the content of this spec is there and healthy by the last report.
func (r Row) reportsReady() bool {
	return r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowReady
}
