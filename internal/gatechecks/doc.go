// Package gatechecks measures for the gates of rollouts: by queries to Prometheus servers, and by requests to webhooks.
//
// Contract: one Checker per hub measures, while its hub leads. It measures a gate at jittered intervals, while the stored
// verdict of the gate waits for it. It stops when the verdict is decided, dropped or about another revision. A change of a Bundle
// begins and ends this, so that a gate for which nothing waits costs nothing. Tallies are in memory alone, and bounded in
// number, also for each namespace: after a restart, and from when a rollout is halted, a gate counts from zero. Nothing is written
// here. The placer decides by a tally once its verdict or its text changed. Addresses of the hub's machine and its clouds are
// refused, and an answer is bounded before it is parsed. A Secret goes to the server of its gate alone, and no text of an error is
// taken from a server.
// All methods may be called concurrently; Run is called once, when the tables are synced.
package gatechecks
