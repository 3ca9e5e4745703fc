package script

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPUTime returns the CPU time of this thread; other processes do not add to it.
func processCPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
