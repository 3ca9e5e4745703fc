// Package measure reads the cost of a scenario: from the hub's metrics, from its etcd, and
// from the kernel's process accounting.
//
// Contract: everything is read from outside, as any user of the hub's machine could. A
// reading costs the hub one request; ReadProcess costs it nothing. Counts are exact between
// two readings of one process: a restarted hub begins at zero. Values are free to share. An
// EtcdClient is safe for concurrent use.
package measure
