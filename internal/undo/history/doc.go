// Package history decides which former contents of objects the hub keeps for undo, and what an undo
// writes.
//
// Contract: values in, values out, without client, clock or goroutine. Comparison and revert take time
// and memory in proportion to the objects, whatever their depth. Documents are never changed. An Index is
// not safe for concurrent use.
package history
