// Package peerpb is the wire form of what hubs of one store send each other: the
// code that peer.proto generates and nothing else.
//
// Contract: messages are plain values; a message that was handed to gRPC is not
// changed afterwards. peer.proto defines what each means.
package peerpb

//go:generate go run atoll.dev/atoll/internal/session/sessionpb/generate peer.proto
