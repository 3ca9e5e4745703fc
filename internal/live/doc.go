// Package live says how what runs in members is shown on the hub as if it were one
// cluster: under which names, with which owners, by which part of a selector each member is
// asked, and what a resource version means.
//
// Contract: an object of a member is shown as NAME.CLUSTER, with the cluster's name in the
// label atoll.dev/cluster, in its own namespace. Its owners are of a group that no API
// serves, so that nobody resolves them on the hub; the UID of an owner that Atoll placed is
// its template's, as clients compare them. Names and selectors are mapped back by the same
// functions.
//
// Resource versions of what is shown are counted by History, from the time at which it was
// made: those of an earlier one, of another hub, or that are no longer remembered, are not
// found. A History is safe for concurrent use; all else is functions.
package live
