// Package bind keeps Bundles and their Revisions as templates, policies and annotations
// want them: who places what, and what a Revision contains, is internal/claim's to say.
//
// Contract: a thin shell. Binder hears of changes, waits for 200 ms of quiet per Bundle,
// reads the tables, asks claim, and writes Bundles, Revisions and the finalizer of
// templates. A change costs the Bundles that it touches. A Revision is not cut while a
// kind that the Bundle lists is unsynced. One Binder runs per hub cluster (the leader's);
// what only asks may be called concurrently with Run, from before it starts.
package bind
