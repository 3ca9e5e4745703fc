// Package checkin computes when an agent checks in, from the interval and the UID of its Cluster.
//
// Contract: pure functions of values, which may be called concurrently. The hub and the agent
// compute the same times, as far as their clocks agree.
package checkin
