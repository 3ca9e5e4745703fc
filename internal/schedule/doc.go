// Package schedule decides which clusters hold a Bundle, and how many replicas of
// its workloads each of them runs.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine. Arguments are never changed; what comes out shares memory with them
// and is read-only. The result depends on the set of clusters, not on the order in
// which they are listed, and not on what happened in a map. Everything may be
// called from many goroutines.
//
// What holds of every Decision:
//   - A cluster that runs the Bundle leaves only because a user edited the
//     placement, had the Bundle placed from scratch, tainted the cluster NoExecute, or
//     chose whenUnfit: Remove or rescheduling: WhenBetter; the last moves one at a
//     time. That a cluster drifted from its placement, is away or is not accepted any
//     more keeps what runs there.
//   - A row goes through one rebalance once, and remembers which: a decision that is
//     asked for again is the same as one that nobody asked for. It moves nothing to a
//     cluster that is away, and a tie moves nothing.
//   - Where nothing fits the placement, nothing leaves, unless the placement says
//     so on purpose (atoll.Nowhere).
//   - Divided shares are exact sums, and equal weights differ by at most one where no
//     bound holds one back. Bounds are never exceeded; what has no place is listed.
//     Growing a total, or losing a cluster, takes from nobody; adding a cluster,
//     or lowering a total, gives to nobody else. By room and aggregated, what runs
//     stays: only what comes on top is divided.
//   - Nothing new comes, and no share grows, beyond what a cluster's stated capacity has
//     left beside what others use, as Input.Used tells; what runs is never taken for it.
package schedule
