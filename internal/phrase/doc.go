// Package phrase formats counts, durations and times for people.
//
// Contract: pure functions, which may be called concurrently.
package phrase
