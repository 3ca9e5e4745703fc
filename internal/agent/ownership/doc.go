// Package ownership decides, for each object of a member, which Bundle holds it and what to do:
// apply, replace, delete, release, or nothing.
//
// Contract:
//
//   - A pure core: values in, values out. No client, clock, goroutine or logger.
//     A Book is not safe for concurrent use; its owner locks.
//   - A Book is folded from Holdings (the hub's last manifest of each Bundle) and
//     from facts of the shell (an object exists with this UID, is gone, was
//     adopted). The same Holdings in any order, any number of times, lead to the
//     same set of objects.
//   - An object is removed only by a tombstone of every Bundle that claims it. An
//     item that is missing without one is kept (State Kept). An empty manifest
//     removes nothing.
//   - A removal keeps its hooks in its Holding until all have run, and their claims, so that no record
//     of a run goes before.
//   - Records list every object that may exist in the member. The shell stores
//     them before it creates an object, and after it has its UID.
package ownership
