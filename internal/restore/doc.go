// Package restore decides how a hub treats a store that was set back to an older state: how starts
// are chained so that it is detected, and which recorded removals of members count against the
// store.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no goroutine;
// arguments are never changed. A member's memory only ever holds something back: no function here
// deletes anything, or makes a template or a row that the store does not have.
package restore
