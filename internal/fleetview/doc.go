// Package fleetview defines how the members' running objects are shown on the hub as if it were
// one cluster: their names, owners, the selectors for each member, and the meaning of a resource
// version.
//
// Contract: an object of a member is shown as NAME.CLUSTER, with the cluster's name in the label
// atoll.dev/cluster, in its own namespace. Its owners are of a group that no API serves, so that
// no client resolves them on the hub. The UID of an owner that Atoll placed is its template's, as
// clients compare them. The same functions map names and selectors back. An object that a request
// selects by the name that it has in one cluster is shown under that own name. A Lookup of clusters'
// answers decides which cluster an own name leads to.
//
// Resource versions are counted by a History, from its creation. Those of an earlier one, of
// another hub, or forgotten ones are not found. A History is safe for concurrent use; all else is
// functions.
package fleetview
