// Package interpret knows what kinds of objects mean: how healthy one is, what of
// its status is worth reporting, how the statuses of many clusters become the one
// status of the template, how many replicas it states, which pods it makes and
// which other objects those need, whether it has run to completion, what of it is the
// member's, and what nobody can change.
//
// What is known is a table by group and kind, whatever the version: Kubernetes' own kinds
// in upstream.go, those of others in one file for each family. All questions read it, so
// that a kind which it names is divided, counted and judged like a Deployment.
//
// Contract: a pure core, used by the hub and by agents. Values in, values out;
// nothing here talks, waits, logs or reads a clock, and no argument is changed or
// kept. All functions may be called from many goroutines. What an object says
// about itself is never trusted to have the right shape: a field of the wrong type
// counts as absent, amounts stop at the largest number instead of running over, and
// below zero count as none.
//
// A kind that this package does not know is judged by the conditions that are
// customary (Ready, Available, Synced, Progressing, Stalled, Reconciling); with a status that
// cannot be read it is Unknown, never Healthy. Without a status it is Healthy by
// existing: most such kinds are configuration that others read and nobody ever reports
// on, so that whoever waited for a status of them would wait for ever. Of a kind that the
// table says is reported on, an object without a status is Progressing.
//
// What users teach beside it is in package script, which asks this one for the rest.
package interpret
