// Package rollout turns a decision about a Bundle into the next specs of its rows:
// what moves to the target revision now, what comes, what grows and shrinks, what
// leaves and what has to wait first.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine. Arguments are never changed. Advance is to be called again whenever
// its input changes and at Output.RequeueAt; calling it again with what it said
// written changes nothing.
//
// What holds of every Output:
//   - All rows move to the target revision at once, one wave. A row's generation
//     rises exactly when revision, variant, assigned, phase, orphan or notYet change,
//     and a new row's is above every one that an agent may have seen before.
//   - Make before break. A row that is to leave keeps all that it has until what
//     replaces it is Ready and reachable; shares grow first and shrink afterwards. What
//     a share that was divided from scratch is to shrink to, its row remembers (Due).
//     After Patience, which is longer with clusters that check in seldom, it asks
//     (Plan) and goes on waiting. Nothing is taken away
//     because time has passed.
//   - A removal over the budget is Held until Confirm is exactly the plan's hash. Where
//     override rules take single items out, these alone wait (NotYet).
//     A plan that was released, or that changed, does not have that hash again.
//   - A row that is Removing stays until somebody else takes it away: the agent
//     has confirmed, or the Cluster is gone. It comes back to life only by a new
//     generation, when the placement wants the cluster again.
//   - Rows of a Cluster that is deleted are given up: taken away and listed.
package rollout
