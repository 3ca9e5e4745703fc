// Package push runs, in the hub, the agents of clusters whose mode is Push: the same
// agents that run in members otherwise.
//
// Contract: an agent runs while its Cluster is there, accepted and of mode Push, and
// credentials of the member lie in a Secret for it; never two of one Cluster at a time in
// one hub. Of several hubs each runs a share of them, and who works is for the Lease in the
// member to say where they differ for a moment in which is whose.
// It speaks to the hub like any agent, over TLS by a certificate of its own, and is
// handed nothing that another could not ask for. A change of its credentials, or of its
// Cluster's mode or acceptance, starts or ends that agent alone. Each has a goroutine
// and a backoff of its own, so that a member that is slow or dead delays no other one:
// what they share is the pace at which they are started, which nobody holds up. Nothing
// is asked of members but by their agents.
//
// A panic in a goroutine of an agent ends that agent, which is started again later, and no
// other; the hub's log has the stack. One in a library's goroutine ends the hub, as one
// anywhere else in it does.
//
// When Run has returned, no agent runs, but for what may be left of one that panicked, which
// does nothing to its member. Callbacks are called from many goroutines and must not block.
package push
