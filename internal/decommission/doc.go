// Package decommission removes clusters from the fleet by their Cluster's spec.removal, and
// reports the progress. It reports the progress of drains, too.
//
// Contract: the placer removes the rows of such a cluster, replacement first. Agents remove or
// release the objects in their members, and the gateway orders an agent without rows to release
// the rest. This package then deletes the Cluster, or earlier where no agent can get the order, or
// where that was forced. It records the objects left behind; and until then keeps the condition
// Removing and status.removal true. The loss of a cluster that is cleaned is held until this
// package, on the leading hub, has found that the confirmation is of exactly that, whatever
// admission let in; an unknown loss is held. One Reconciler for each hub runs, while its hub
// leads; ForgetDepartedCluster may be called on any hub and at any time. Everything is read from the tables
// and from the Cluster itself, so that a restarted hub, or another one, continues. A Cluster is
// deleted only by the UID and version that was read: a removal that was taken back since stays so.
//
// A drain is a taint of the Cluster. The placer moves the Bundles; this package only counts their rows into the condition
// Draining and status.drain.
//
// Nothing here deletes anything in a member, and a deleted Cluster takes nothing along: a returning
// agent gets the answer and keeps its objects.
package decommission
