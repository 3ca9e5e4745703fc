// Package summarise carries what clusters report back to people: rows become the
// status of their Bundle, and of each template, as if it ran on one cluster. It also
// lets go: it takes finalizers off templates and Bundles whose removal is confirmed,
// and deletes rows, slices and Revisions that nobody needs any more.
//
// Contract: one Reconciler per hub works (while its hub leads). The typed tables are
// synced before Run is called. A Bundle is looked at when one of its rows, its
// Revisions, its intent, its templates or its clusters change, after 150 ms in which
// further changes join (up to 2 s for Bundles of many rows). A look costs what
// changed: rows that say the same are one group, which is kept up to date row by row,
// and all that is told of a Bundle is told of its groups. A status is written at once
// when it says something new in kind (first words, another generation observed, a
// condition turned, all done). While only counts move, a Bundle's is written at most
// every atoll.UpkeepStatusEvery, and 5 s after news; a template's too, or each second
// where rows are few; and all together atoll.UpkeepStatuses times a second, each in its
// turn. What did not change is not written.
//
// Nothing here removes anything from a member. A finalizer goes only when every
// cluster that holds a stream has confirmed; a row goes only when its cluster has
// confirmed, or when its Bundle and its Cluster are both gone. While the hub holds
// after a restore, statuses are shown and nothing is let go.
//
// Who gives a cluster up deletes its Cluster (`atoll remove` does, and lists what is
// left behind): that is the explicit act. place takes its rows out of living
// Bundles, this package out of deleted ones. A Cluster that is merely away gives up
// nothing.
package summarise
