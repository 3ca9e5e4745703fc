// Package measure reads what a scenario costs: from the hub's own metrics, from its
// etcd, and from the kernel's books about processes.
//
// Contract: everything is read from outside, as any user of the hub's machine could.
// Reading costs the hub one request, except for Process, which costs it nothing.
// Counts are exact for the time between two readings, and only in the life of one
// process: a restarted hub begins at zero. Values are free to share; an Etcd is safe
// for concurrent use.
package measure
