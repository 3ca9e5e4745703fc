package payloads

import (
	"time"

	"golang.org/x/sys/unix"
)

// readThreadTime returns the CPU time of the calling thread.
func readThreadTime() (spent time.Duration, isKnown bool) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
