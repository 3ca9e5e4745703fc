// Package push runs, in the hub, the agents of clusters whose mode is Push: the same
// agents that run in members otherwise.
//
// Contract: an agent runs while its Cluster is there, accepted and of mode Push, and
// credentials of the member lie in a Secret for it; never two of one Cluster at a time.
// It speaks to the hub like any agent, over TLS by a certificate of its own, and is
// handed nothing that another could not ask for. A change of its credentials, or of its
// Cluster's mode or acceptance, starts or ends that agent alone. Each has a goroutine
// and a backoff of its own, so that a member that is slow or dead delays no other one:
// what they share is the pace at which they are started, which nobody holds up. Nothing
// is asked of members but by their agents.
//
// When Run has returned, no agent runs. Callbacks are called from many goroutines and must
// not block. A panic in an agent ends the hub, as one anywhere else in it does.
package push
