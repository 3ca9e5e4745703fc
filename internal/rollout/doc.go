// Package rollout turns a decision about a Bundle into the next specs of its rows: what
// moves to the target revision now, comes, grows, shrinks, leaves or waits.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine. Arguments are never changed. AdvanceRows is called again whenever its input
// changes and at Output.RequeueAt. Once its output is written, calling it again changes
// nothing. One case differs: a row that BlockingClusters names began to be removed, or came back, so that
// a rollout counts other rows. Then further rows take their turn.
//
// Every Output guarantees:
//   - All rows move to the target revision at once, one wave. A row's generation rises
//     exactly when revision, variant, assigned, ordinals, phase, orphan or excludedPending
//     change. A new row's generation is above every one that an agent may have seen before.
//   - Make before break. A row that is to leave keeps all that it has until its replacements
//     are Ready and reachable. Shares grow first and shrink afterwards. A row stores the smaller
//     share of a division from scratch (ShrinkTo).
//   - After ReadinessTimeout, which is longer for clusters with long check-in intervals, a
//     waiting row requests a confirmation (PendingRemoval) and goes on waiting. Passing time
//     removes nothing.
//   - A removal over the budget is Held until ConfirmedPlan is exactly its hash. Items that
//     override rules exclude wait alone (ExcludedPending). A removal that was confirmed, or
//     that changed, does not have that hash again.
//   - A row that is Removing stays until the caller deletes it: the agent has confirmed, or
//     the Cluster is gone. It comes back only by a new generation, when the placement selects the
//     cluster again.
//   - No removal that a user did not state, and no change of a healthy row, brings the available copies below
//     the disruption budget (Budget). Rows wait for it, however long that takes.
//   - Rows of a deleted Cluster are deleted and listed as abandoned.
package rollout
