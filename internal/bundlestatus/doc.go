// Package bundlestatus reports what clusters report to people: rows become the status of their
// Bundle, and of each template, as if it ran on one cluster. It also releases: it removes
// finalizers from templates and Bundles whose removal is confirmed, and deletes rows, slices and
// Revisions that are no longer needed.
//
// Contract: one Reconciler for each hub works (while its hub leads). The typed tables are synced
// before Run is called. A Bundle is reconciled when one of its rows, its Revisions, its intent, its
// templates or its clusters change. Further changes join for 150 ms, up to 2 s for Bundles of many rows. The cost follows the changes: equal rows are one group, which is updated
// row by row, and everything about a Bundle is computed from its groups. A status is written at
// once when it has new content (first words, another generation observed, a condition turned, all
// done). While only counts change, a Bundle's is written at most every
// pace.StatusWriteInterval, and 5 s after new content; a template's too, or each second where rows
// are few. All together are written at the rate pace.StatusWrites, in turn. An unchanged status is
// not written.
//
// Nothing here removes anything from a member. A finalizer is removed only when every cluster that
// holds a stream has confirmed. A row is deleted only when its cluster has confirmed, or when its
// Bundle and its Cluster are both gone. While the hub holds after a restore, statuses are shown
// and nothing is released.
//
// An administrator gives a cluster up by deleting its Cluster (`atoll remove` does, and lists what
// is left behind): that is the explicit act. The placer removes its rows from living Bundles, this
// package from deleted ones. A disconnected Cluster gives up nothing.
package bundlestatus
