// Package bind decides what belongs together: which policy or annotation holds each
// template, which Bundle it therefore goes into, and what that Bundle's next
// Revision contains.
//
// Contract: deciding is pure (Decide, Plan and what they call): values in, values
// out. Binder is the thin shell around it: it hears of changes, waits for 200 ms of
// quiet per Bundle, reads the tables, decides, and writes Bundles, Revisions and the
// finalizer of templates. A change costs the Bundles that it touches. Nothing is
// ever taken out of a Bundle's content but by a tombstone that goes back to a user's
// act; what is merely missing is kept and marked. A Revision is not cut while a kind
// that the Bundle lists is unsynced. One Binder runs per hub cluster (the leader's);
// Explain and Matches may be called concurrently with Run, from before it starts.
package bind
