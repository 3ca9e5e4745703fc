// Package bundlecontent decides what the next Revision of a Bundle holds: items, override rules and
// tombstones.
//
// Contract: a pure core. It takes values and returns values, without client, clock, logger,
// goroutine or lock. It changes no argument; results share memory with arguments and are read-only.
// All functions may run concurrently. The binder and preview call the same functions.
//
// An item leaves a content only by a tombstone that goes back to a user's act. An item whose template
// is merely missing stays, with a mark.
package bundlecontent
