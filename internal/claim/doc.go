// Package claim decides what belongs together: which policy or annotation places an
// object, which Bundle the object therefore goes into, and what that Bundle's next
// Revision contains.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine, no lock. Arguments are never changed, but for the Index that Set and its
// like are called on; what comes out shares memory with them and is read-only. The same
// functions bind, answer admission and explain, and say what a plan would come to.
//
// What holds of every Plan: nothing is ever taken out of a Bundle's content but by a
// tombstone that goes back to a user's act; what is merely missing is kept and marked.
package claim
