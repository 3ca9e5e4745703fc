// Package wakeup wakes goroutines.
//
// Contract: a channel has a capacity of 1, or its reader misses what is sent while it does not read.
// All functions may be called concurrently.
package wakeup

// WakeReader wakes the reader of a channel. It does not block: a reader that was not awake since the last
// call wakes once for both.
func WakeReader(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
