//go:build !linux

package script

import "time"

var started = time.Now()

// processCPUTime returns the elapsed time, since CPU time is not available.
func processCPUTime() time.Duration { return time.Since(started) }
