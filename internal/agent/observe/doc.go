// Package observe watches in the member what Atoll applied there, and nothing
// else: per kind one watch, restricted to objects that carry a Bundle's label.
//
// Contract:
//
//   - Objects are not kept. Each event is reduced at once to a View: identity,
//     health, the small status that a template reflects, and a hash over the
//     fields that are ours. Kinds without a status are watched by metadata only.
//   - The sink hears of every object at least once per start of a watch, and then
//     of each change. That an object left a watch does not mean that it is gone
//     (somebody may have taken the label off): the sink asks.
//   - A kind that the member stops serving ends nothing: its watch is retried with
//     backoff, and no object of it is reported gone by that.
package observe
