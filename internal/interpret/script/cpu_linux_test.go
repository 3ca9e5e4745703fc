package script

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime that this thread has taken, which other processes do not add to.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
