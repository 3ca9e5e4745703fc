// Package peer joins the gateways of the hubs on one store: each tells the others
// which clusters' streams it holds, so that each knows those of all.
//
// Contract: what a cluster's stream does is told from process to process and never
// written; the store has one Lease per hub, by which hubs find each other. Both ends
// of a call show a certificate for hubs of the shared key set, and nobody else's is
// taken. A hub whose call breaks counts on for Grace; then, or when its Lease lapses
// or goes, none of its streams counts. Complete is false while some hub that lives
// has not told what it holds, so that who judges absences can wait. Of two sessions
// of one cluster at two hubs the newer one wins: sessions are ordered by a clock that
// a hub sets past every session that it was told of, so that clocks that differ do
// harm only where two sessions began without the hubs having heard of each other.
//
// Peers is safe for concurrent use. Its callbacks are called one after the other, in
// the order of what happened, and must not block or call Peers.
package peer
