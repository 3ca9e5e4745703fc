// Package h2 is a gRPC client for one call on one connection that costs next to
// nothing while nothing happens.
//
// Contract:
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
package h2
