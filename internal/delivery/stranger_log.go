package delivery

import (
	"sync/atomic"
	"time"

	"atoll.dev/atoll/internal/pace"
)

// uncertifiedCallerLog bounds the lines of the log that callers without a certificate cause. It is safe
// for concurrent use.
type uncertifiedCallerLog struct {
	limiter *pace.Limiter
	dropped atomic.Int64
}

func newUncertifiedCallerLog() *uncertifiedCallerLog {
	return &uncertifiedCallerLog{limiter: pace.StrangerLines.NewLimiter()}
}

// admitLine reports whether a line may be logged, and how many were not since the last one that
// was.
func (l *uncertifiedCallerLog) admitLine(now time.Time) (admitted bool, dropped int64) {
	if !l.limiter.TakeToken(now) {
		l.dropped.Add(1)
		return false, 0
	}
	return true, l.dropped.Swap(0)
}
