// Package store keeps the agent's state in the member itself, as Secrets of one namespace, so that
// the agent restarts anywhere and works without the hub.
//
// Contract:
//
//   - A Put that returned without error is stored. A Put is atomic: a reader
//     sees the old state or the new one, also after a crash in between, whatever
//     the size (parts are written before the head that names them).
//   - One writer: the holder of the member's lease. A write over another writer's
//     is refused with ErrFenced unless the fence confirms that the lease is still held.
//   - Numbers from NextSequence increase strictly over restarts, whatever the clock.
//   - Nothing here is logged: the content may be secret.
//   - Safe for concurrent use; writes of the same name are serialised.
package store
