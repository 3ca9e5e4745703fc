// Package sessionpb is the wire form of the protocol between agents and the hub:
// the code that session.proto generates and nothing else.
//
// Contract: messages are plain values; a message that was passed to gRPC is not
// changed afterwards. session.proto defines the meaning of each frame and when it is
// sent.
package sessionpb

//go:generate go run ./generate session.proto
