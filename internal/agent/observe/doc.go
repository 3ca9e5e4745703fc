// Package observe watches Atoll's applied objects in the member, and nothing else: one watch for
// each kind, restricted to objects with a Bundle's label.
//
// Contract:
//
//   - Objects are not kept. Each event is reduced at once to a View: identity,
//     health, the small status that a template reflects, and a hash over Atoll's
//     fields. Kinds without a status are watched by metadata only.
//   - The sink gets every object at least once for each start of a watch, and then
//     each change. An object that left a watch may still exist without its label:
//     the sink reads it.
//   - A kind that the member stops serving ends nothing: its watch is retried with
//     backoff, and no object of it is reported as deleted for that.
package observe
