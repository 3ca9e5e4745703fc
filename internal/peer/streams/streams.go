// Package streams connects the gateway of a hub with the other hubs on its store: it informs them
// about this hub's streams and certificates, and moves surplus agents to them.
//
// Contract: the gateway's tables stay the only record of streams. A Balancer moves at most one
// batch of agents each second, and none while this hub does not serve. Its Run belongs to one goroutine.
package streams

import (
	"time"

	"atoll.dev/atoll/internal/delivery"
)

// Peers are informed about this hub's streams.
type Peers interface {
	StreamOpened(uid string)
	StreamClosed(uid string, heard time.Time)
	CertificateRenewed(uid string)
}

// StreamOpenBroadcaster is the gateway's table of members beside other hubs. The union of all hubs' streams
// sets which clusters are online, so that SetOnline only informs the other hubs.
type StreamOpenBroadcaster struct {
	delivery.Clusters
	Peers Peers
}

// SetOnline informs the other hubs about a stream that opened here. Tracker.StreamDown informs
// them about its end.
func (c StreamOpenBroadcaster) SetOnline(uid string, on bool) {
	if on {
		c.Peers.StreamOpened(uid)
	}
}

// BroadcastingTracker tracks the gateway's streams beside other hubs.
type BroadcastingTracker struct {
	delivery.StreamTracker
	Peers Peers
}

// StreamDown informs the other hubs about the end of a stream.
func (t BroadcastingTracker) StreamDown(uid string, heard time.Time) {
	t.Peers.StreamClosed(uid, heard)
	t.StreamTracker.StreamDown(uid, heard)
}

// RecordCertificate informs the other hubs that an agent has another certificate. They get the
// certificate from the tracker, which therefore has it first.
func (t BroadcastingTracker) RecordCertificate(uid string, ends time.Time, generation int, overdue bool) {
	t.StreamTracker.RecordCertificate(uid, ends, generation, overdue)
	t.Peers.CertificateRenewed(uid)
}
