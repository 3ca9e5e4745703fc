// Package tunnel makes a net.Conn of a gRPC stream of pieces, so that whatever speaks
// over a connection speaks through the one that an agent has dialled: the hub's HTTP
// client at one end, the agent's HTTP server at the other.
//
// Contract of a Conn:
//
//   - It holds at most one piece of what came and was not read. While nobody reads,
//     nothing more is taken from the stream, whose windows then stop the sender: what a
//     slow reader costs is bounded by them, and nothing is dropped.
//   - Write returns when the stream has taken the bytes. It may wait for the peer as
//     long as the peer likes; Close frees it.
//   - Close may be called from anywhere, more than once, and frees reads and writes. What
//     was written before arrives: a client's end says that it sends no more, and is cut off
//     when the peer has ended the stream, or after a minute; at once where a write is stuck.
//     The stream's end gives io.EOF to who reads, its failure the reason.
//   - A read deadline ends one read and may be moved on. A write deadline that passes
//     closes the connection: of a message that was half sent nothing can be taken back.
//
// A Listener hands connections, of whatever kind, to a server.
//
// A Share bounds what the tunnels of one connection have handed to gRPC's client together and
// is not written yet, so that what else is said on the connection does not wait for all of them.
// Streams that it opens are used like others.
//
// Prompt keeps what is written to a connection out of the kernel until it is to be sent, so
// that what matters more may still pass it.
//
// Pump must run until the Conn is over; it is what receives.
package tunnel
