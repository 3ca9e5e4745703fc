// Package h2 carries gRPC over HTTP/2 for connections that are many and quiet: a client
// for one call on one connection, and a server, both of which cost next to nothing while
// nothing happens.
//
// Contract of a Call, the client:
//
//   - A Call holds a few hundred bytes beside its net.Conn: frames, header tables and
//     message buffers come from pools for as long as a frame is handled. It starts no
//     goroutine of its own.
//   - Serve runs in the caller's goroutine until the call is over, and hands each
//     message to the caller's function, which must not keep it. Everything else may be
//     called from anywhere. Send never waits for the peer's flow control: what has no
//     window is queued.
//   - It answers pings and settings, keeps to the windows and frame sizes of the peer
//     and opens its own again as messages are handled, takes GOAWAY for what it says
//     about this call, and gives the peer's status as an error of package status.
//   - Close breaks the connection; it does not say good-bye.
//
// Contract of a Server:
//
//   - It serves what is registered as grpc.Server does, handlers see no difference:
//     peer, metadata, deadline, status with details, headers and trailers. It has no
//     compression, no interceptors and no graceful stop.
//   - A connection has the one goroutine that called Serve. A call of a method that is
//     Inline is handled in it, one at a time; others get a goroutine each. Nobody reads
//     for all: who waits, for a message or for a window, reads for the connection where
//     nobody does, and what he reads for others wakes them.
//   - Calls of Inline methods go first: before them stands one piece of another call at
//     most, and a part of the connection's window is theirs.
//   - What a peer may make the server hold is bounded: by the windows of a connection
//     and its streams, and by what all of them together may have beyond the usual one, the streams at a time, the size of a message and of header
//     fields. A peer that makes work and does none, or calls what
//     it may not again and again, is told to calm down and cut off, and
//     so is one that takes nothing of what is written.
//   - Stop ends all connections and returns when no handler runs any more.
//
// A Server is safe for concurrent use. A stream is as grpc.ServerStream says: one
// goroutine may send while another receives.
package h2
