// Package kinds holds the built-in rules of kinds of objects. It answers how healthy an object
// is, which part of its status a cluster reports, and how the statuses of many clusters
// become the status of the template. It also answers how many replicas an object states,
// which pods it makes, and which objects these pods need. Further answers are whether it has run
// to completion, which fields the member owns, and which fields are immutable.
//
// The knowledge is one table by group and kind, for all versions. Kinds of Kubernetes are in
// upstream.go, others in one file for each family. Every question reads this table, so a kind
// in it is divided, counted and judged like a Deployment.
//
// Contract: a pure core that the hub and agents share. Values in, values out. No function
// blocks, logs, reads a clock, or changes or keeps an argument. All functions are safe for
// concurrent use. The shape of an object is never trusted: a field of the wrong type counts
// as absent, amounts are capped at the largest int64, and negative amounts count as none.
//
// A kind without an entry is judged by the customary conditions: Ready, Available, Synced,
// Progressing, Stalled, Reconciling. An unreadable status is Unknown, never Healthy. An object
// of such a kind without a status is Healthy: most of these kinds are configuration and never
// get a status. A kind whose entry expects a status is Progressing without one.
//
// Package script adds what users teach, and falls back to this package.
package kinds
