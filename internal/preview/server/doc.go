// Package server answers over HTTP what would change if objects were written, why an object is
// where it is, and what a rebalance would move. It also makes the warnings of dry runs.
//
// Contract: nothing is written. The answers come from the functions that act, over the
// tables of the hub, or over copies of them in which the writes are made. No answer holds
// what its user may not get. A Server is safe for concurrent use; each request has its own
// query.
package server
