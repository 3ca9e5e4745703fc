// Package session is the protocol between agents and the hub as a pure core. The contents
// of both ends are compared by digests over hashed ranges, so that a reconnect costs what
// differs. The package decides for both ends what is sent, requested, acknowledged or
// refused.
//
// Contract: values in, values out. Hub and Agent are state machines of one stream and of
// one agent process. They have no clock, client, goroutine or logger, and are not safe for
// concurrent use: their shell calls them from one goroutine or under one lock. Returned
// frames belong to the caller; given frames are neither kept nor changed. No frame of a
// peer makes them panic. The memory that a peer can make them use is bounded by what the
// peer holds.
//
// Rules that both ends keep, whatever the order of frames and however often they arrive: a
// lower generation never replaces a higher; nothing is removed because it is missing from
// a message; a frame of an unknown kind changes nothing.
package session

import "time"

// ProtocolVersion is the version that Hello carries.
const ProtocolVersion = 1

// DialKey is the metadata key by which an agent that opens a tunnel names the Dial that it
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
	// MaxFrameBytes is the largest frame that an agent accepts. An agent holds about four copies of a frame while it
	// decodes it. A hub sends 1 MiB of objects in a frame, or one object, beside the items without objects.
	MaxFrameBytes = 8 << 20
	// MaxIncompleteBytes is the most memory that an agent's orders that wait for objects may take, together.
	MaxIncompleteBytes = 64 << 20
	// InlineBytes is how many bytes of objects one Upsert or Objects carries. A single larger
	// object is sent alone.
	InlineBytes = 1 << 20
)
