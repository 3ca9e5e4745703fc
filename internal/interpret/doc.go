// Package interpret knows what kinds of objects mean: how healthy one is, what of
// its status is worth reporting, how the statuses of many clusters become the one
// status of the template, how many replicas it states, which pods it makes and
// which other objects those need.
//
// Contract: a pure core, used by the hub and by agents. Values in, values out;
// nothing here talks, waits, logs or reads a clock, and no argument is changed or
// kept. All functions may be called from many goroutines. What an object says
// about itself is never trusted to have the right shape: a field of the wrong type
// counts as absent.
//
// A kind that this package does not know is judged by the conditions that are
// customary (Ready, Available, Progressing, Stalled, Reconciling); without a status
// it is Healthy by existing; with a status that cannot be read it is Unknown,
// never Healthy.
package interpret
