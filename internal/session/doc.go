// Package session is the protocol between agents and the hub as a pure core: what
// the two ends hold is compared by digests in hashed ranges, so that a reconnect
// costs what differs; what is to be sent, asked, acknowledged or refused is decided
// here for both ends.
//
// Contract: values in, values out. Hub and Agent are state machines of one stream
// and of one agent process; they have no clock, client, goroutine or logger, and
// are not safe for concurrent use: their shell calls them from one goroutine or
// under one lock. Frames that they return belong to the caller; frames that they
// are given are not kept or changed. Nothing that a peer sends makes them panic,
// and what a peer can make them remember is bounded by what it holds.
//
// Rules that both ends keep, whatever order frames arrive in and however often:
// a lower generation never replaces a higher; nothing is removed because it is
// missing from a message; a frame of an unknown kind changes nothing.
package session

import "time"

// ProtocolVersion that Hello carries.
const ProtocolVersion = 1

// DialKey is the metadata by which an agent that opens a tunnel says which Dial it
// answers.
const DialKey = "atoll-dial"

// Keepalive of the connection, by HTTP/2 pings: a half-open link is found within 21 s
// by the hub and within 30 s by the agent, which dials again. The hub pings first, so
// that an idle link costs one ping in 16 s.
const (
	KeepaliveHubTime      = 16 * time.Second
	KeepaliveHubTimeout   = 5 * time.Second
	KeepaliveAgentTime    = 20 * time.Second
	KeepaliveAgentTimeout = 10 * time.Second
	// KeepaliveMinTime is how often the hub lets agents ping.
	KeepaliveMinTime = 5 * time.Second
)

const (
	// MaxFrameBytes is the largest frame that either end accepts.
	MaxFrameBytes = 32 << 20
	// InlineBytes is how many bytes of objects one Upsert or Objects carries;
	// a single larger object travels alone.
	InlineBytes = 1 << 20
)
