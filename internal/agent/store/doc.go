// Package store keeps the agent's state in the member itself, as Secrets of one
// namespace, so that the agent restarts anywhere and works without the hub.
//
// Contract:
//
//   - What a Put returned from without error is stored. A Put is atomic: a reader
//     sees the old state or the new one, also after a crash in between, whatever
//     the size (parts of it are written before the head that names them).
//   - One writer: whoever holds the member's lease. A write over somebody else's
//     is refused with ErrFenced unless the fence says that the lease is still held.
//   - Numbers from Seq increase strictly over restarts, whatever the clock.
//   - Nothing here is logged: the content may be secret.
//   - Safe for concurrent use; writes of the same name are serialised.
package store
