// Package quarantine accounts what the rendering of each Bundle costs. It sets a Revision aside
// when its Bundle costs too much again and again.
//
// Contract: a quarantine stops renderings and nothing else. Members keep what they have. A row that
// is Removing is not rendered, so that a quarantine never delays it. The removal of a single object
// is a tombstone in the content of a Revision, and waits with the Revision. A quarantine ends when
// its time is over. Another Revision of the Bundle is another content, and is rendered. Renderings
// that take less than freeTime cost nothing, whatever their number: a large fleet is no reason.
//
// Accounts live in memory. A hub that starts again accounts from zero, and spends at most the
// budget before it sets the Bundle aside again. Ledger is a value without clock and lock. Accounts
// is safe for concurrent use.
package quarantine
