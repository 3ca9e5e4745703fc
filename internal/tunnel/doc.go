// Package tunnel makes a net.Conn of a gRPC stream of pieces, so that any protocol over a
// connection can use the agent's connection: the hub's HTTP client at one end, the agent's HTTP
// server at the other.
//
// Contract of a Conn:
//
//   - It holds at most one piece of unread data. Without a reader nothing more is taken
//     from the stream, whose windows then stop the sender: the windows bound the cost
//     of a slow reader, and nothing is dropped.
//   - Write returns when the stream has taken the bytes. It may wait for the peer
//     without a limit; Close frees it.
//   - Close may be called from anywhere, more than once, and frees reads and writes.
//     Data that was written before arrives: a client's end sends its end, and is cut off
//     when the peer has ended the stream, or after a minute; at once where a write is stuck.
//     The reader gets io.EOF at the stream's end, or the reason of its failure.
//   - A read deadline ends one read and may be moved on. A write deadline that passes
//     closes the connection: a message that was half sent cannot be taken back.
//
// A Listener hands connections, of whatever kind, to a server.
//
// A Share bounds the unwritten data of one connection's tunnels in gRPC's client together, so that
// other messages of the connection do not wait for all of them. Streams that it opens are used
// like others.
//
// LimitUnsent keeps written data of a connection out of the kernel until it is to be sent, so that
// more important data may still pass it.
//
// IgnoreUpgradeWriteErrors lets a reverse proxy deliver all that the server of an upgraded connection wrote
// before it closed.
//
// PumpMessages must run until the Conn is over; it is the receiver.
package tunnel
