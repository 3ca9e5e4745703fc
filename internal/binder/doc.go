// Package binder keeps Bundles and their Revisions in line with templates, policies and
// annotations. internal/policymatch decides which policy places an object, and
// internal/bundlecontent what a Revision contains.
//
// Contract: a Binder reconciles a Bundle at its first change, or 200 ms after the last one of
// several. It reads the tables, plans, and writes Bundles, Revisions and the finalizers of
// templates. A change costs the Bundles that it touches. No Revision is created while a kind that
// the Bundle needs is not synced. One Binder writes per hub, the leader's. Queries may be called
// concurrently with Run, and before it.
package binder
