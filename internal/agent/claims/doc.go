// Package claims decides, per object of a member, who holds it and what is to
// become of it: apply, replace, delete, let go, or nothing.
//
// Contract:
//
//   - A pure core: values in, values out. No client, clock, goroutine or logger.
//     A Book is not safe for concurrent use; its owner locks.
//   - A Book is folded from Holdings (what the hub last said of each Bundle) and
//     from facts that the shell tells it (an object exists with this UID, is
//     gone, was taken over). The same Holdings in any order, any number of times,
//     lead to the same set of objects.
//   - Nothing leaves but by a tombstone of every Bundle that claims it: an item
//     that is missing without one is kept (State Kept), an empty manifest
//     removes nothing.
//   - Records are the truth about what may exist in the member. The shell stores
//     them before it creates an object, and after it learnt its UID.
package claims
