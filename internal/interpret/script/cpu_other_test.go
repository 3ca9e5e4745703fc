//go:build !linux

package script

import "time"

var started = time.Now()

// cpuTime is the time of day here.
func cpuTime() time.Duration { return time.Since(started) }
