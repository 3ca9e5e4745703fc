//go:build !linux

package payloads

import "time"

// readThreadTime returns false: the CPU time of a thread is not known here.
func readThreadTime() (spent time.Duration, isKnown bool) { return 0, false }
