package payloads

import (
	"log/slog"
	"runtime"
	"time"
)

// threadClock returns the CPU time of the calling thread, or false where the system does not report
// it: outside of Linux, and where a seccomp filter refuses the call.
type threadClock func() (spent time.Duration, isKnown bool)

// measureCPUTime calls fn and returns the CPU time that fn took in its goroutine. Time in which a
// busy or throttled hub does not run the goroutine does not count. Without the CPU time of threads
// it returns the wall time.
func measureCPUTime(fn func()) time.Duration { return measureByClock(readThreadTime, fn) }

// measureByClock is measureCPUTime by a clock.
func measureByClock(clock threadClock, fn func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := time.Now()
	from, isKnown := clock()
	fn()
	if to, isKnownStill := clock(); isKnown && isKnownStill {
		return to - from
	}
	return time.Since(begin)
}

// warnOfWallTime logs that renderings cost wall time, where the clock has no CPU time.
func warnOfWallTime(clock threadClock, log *slog.Logger) {
	if _, isKnown := clock(); !isKnown {
		log.Warn("the system does not report the CPU time of a thread; renderings of Bundles cost wall time instead, and a busy hub may quarantine a Bundle earlier")
	}
}
