// Package rewind decides what a hub makes of a store that was set back to an older
// state: how starts are chained so that it is found out, and which removals that
// members remember count against what the store says.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine; arguments are never changed. What members remember only ever holds
// something back: no function here says that anything is to be deleted, or makes a
// template or a row that the store does not have.
package rewind
