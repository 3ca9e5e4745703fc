// Package schedule decides which clusters hold a Bundle, and how many replicas of
// its workloads each of them runs.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no
// goroutine. Arguments are never changed. Results share memory with the arguments and are
// read-only. They depend on the set of clusters, and not on the order of a list or a map.
// Everything is safe for concurrent use, except the tables whose comments state otherwise.
//
// Every Decision guarantees:
//   - A cluster that runs the Bundle leaves only because a user edited the placement,
//     requested a rebalance, tainted the cluster NoExecute, or chose whenUnfit: Remove or
//     rescheduling: WhenBetter. The last moves one row at a time. A cluster that drifted
//     from its placement, is disconnected or is not accepted any more keeps its rows.
//   - A row goes through one rebalance once, and stores it, so that the same decision
//     can be repeated. A rebalance moves nothing to a disconnected cluster, and a tie moves
//     nothing.
//   - A placement that fits no cluster removes nothing, unless it states so on purpose
//     (atoll.NowherePlacement).
//   - Divided shares are exact sums, and equal weights differ by at most one where no bound
//     holds one back. Bounds are never exceeded; replicas without a place are listed.
//   - Growing a total, or losing a cluster, takes from no cluster. Adding a cluster, or
//     lowering a total, gives to no other cluster. By free capacity and aggregated, running
//     replicas stay: only the rest is divided.
//   - Nothing new comes, and no share grows, beyond the stated capacity that others leave
//     (FleetFacts). Stated capacity never removes what runs.
package schedule
