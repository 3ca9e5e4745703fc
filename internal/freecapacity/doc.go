// Package freecapacity is the free capacity of a member for pods, as its agent reports it: nodes
// in classes of about the same free resources. Agents send them as text, and the status of a
// Cluster has them as values.
//
// Contract: values and pure functions, which may be called concurrently. Values may be shared as
// long as no goroutine changes them.
package freecapacity
