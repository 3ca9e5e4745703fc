// Package peer joins the gateways of the hubs on one store: each sends the others the list of its
// clusters' streams, so that each has those of all.
//
// Contract: the state of a cluster's stream goes from process to process and is never written. The
// store has one Lease for each hub, by which hubs find each other. Both ends of a call show a
// certificate for hubs of the shared key set, and no other is accepted. A hub whose call breaks
// still counts for Grace. Then, or when its Lease expires or is deleted, none of its streams
// counts. IsComplete is false while a living hub has not sent its list, so that a judgement of
// absences can wait. The newer one of two sessions of a cluster at two hubs wins. Sessions are
// ordered by a clock that a hub sets past every session in other hubs' lists. Different clocks do
// harm only where two sessions began without contact of the hubs.
//
// Peers is safe for concurrent use. Its callbacks are called one after the other, in the order of
// events, and must not block or call Peers.
package peer
