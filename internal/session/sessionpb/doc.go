// Package sessionpb is the wire form of the protocol between agents and the hub:
// the code that session.proto generates and nothing else.
//
// Contract: messages are plain values; a message that was handed to gRPC is not
// changed afterwards. session.proto says what each frame means and when it is
// sent.
package sessionpb

//go:generate go run ./generate session.proto
