// Package push runs, in the hub, the agents of clusters whose mode is Push: the same agents that
// otherwise run in members.
//
// Contract: an agent runs while its Cluster exists, is accepted and of mode Push, and credentials
// of the member are in a Secret for it; never two of one Cluster at a time in one hub. Several
// hubs run a share each. The Lease in the member decides which agent works, because hubs may
// differ for a moment about the shares. An agent speaks to the hub like any agent, over TLS by a
// certificate of its own, and has no other rights. A change of its credentials, or of its
// Cluster's mode or acceptance, starts or ends that agent alone. Each has a goroutine and a
// backoff of its own, so that a slow or dead member delays no other one. All share the rate limit
// of starts, in which a start never waits for another member. Only agents send requests to
// members.
//
// A panic in a goroutine of an agent ends that agent alone, which is started again later; the
// hub's log has the stack. One in a library's goroutine ends the hub, as anywhere else in it.
//
// When Run has returned, no agent runs, except the rest of one that panicked, which does nothing
// to its member. Callbacks are called from many goroutines and must not block.
package push
