// Package h2 implements gRPC over HTTP/2 for many mostly idle connections: a client for one call on
// one connection, and a server. An idle connection costs almost no memory and no CPU.
//
// Contract of a Call, the client:
//
//   - A Call uses a few hundred bytes besides its net.Conn. Frames, header tables and message buffers
//     come from pools while a frame is handled. A Call starts no goroutine.
//   - Serve runs in the caller's goroutine until the call ends. It passes each message to the
//     caller's function, which must not keep it. All other methods are safe for concurrent use.
//     Sending never waits for the peer's flow control: data is queued until the window allows it.
//   - A Call answers pings and settings, and respects the peer's windows and frame sizes. It returns
//     window as messages are handled. A GOAWAY that covers the call ends it. The peer's status is
//     returned as an error of package status.
//   - Close closes the connection without a GOAWAY.
//
// Contract of a Server:
//
//   - It serves registered services as grpc.Server does. Handlers see the same peer, metadata,
//     deadline, status with details, headers and trailers. It has no compression, no interceptors and
//     no graceful stop.
//   - The goroutine that called Serve handles the calls of Inline methods, one at a time. Every other
//     call gets a goroutine. There is no separate reader: a goroutine that waits for a message or a
//     window reads the connection when no other does. It wakes the others when their data arrives.
//   - Calls of Inline methods have priority. They wait for at most one chunk of another call, and a
//     part of the connection's window is reserved for them.
//   - The memory that a peer can make the server hold is bounded by the windows of a connection and
//     its streams, by a common limit on larger windows, by the number of streams, and by the size of
//     messages and header fields. A peer that causes work without calls, or repeats forbidden calls,
//     gets ENHANCE_YOUR_CALM and is disconnected. A peer that reads nothing is disconnected, too.
//   - Stop ends all connections and returns when no handler runs any more.
//
// A GRPCServer serves the same by grpc-go, with the differences that its comment lists.
//
// A Server is safe for concurrent use. A stream follows grpc.ServerStream: one goroutine can send while
// another receives.
package h2
