// Package leave brings clusters out of the fleet that are to go (Cluster's spec.removal),
// and tells how far that is.
//
// Contract: place takes the rows of such a cluster out, make before break, agents remove or
// let go of what is in their members, and the gateway tells an agent whose cluster has no
// row left to let go of the rest. This package forgets the Cluster then, or before where
// there is nobody who could be told, or where that was forced; writes down what is left
// behind; and until then keeps the condition Removing and status.removal true. What a cluster that is
// cleaned would lose is held until this package, on the hub that leads, has found that the
// confirmation is of exactly that, whatever admission let in; what is not known is held. One
// Reconciler per hub runs, while its hub leads; Left may be called on any hub and at any
// time. Everything is read from the tables and from the Cluster itself, so that a hub that
// was killed, or another one, goes on where it was. A Cluster is deleted only as it was
// looked at, by UID and version: a removal that was taken back meanwhile stays so.
//
// Nothing here deletes anything in a member, and a Cluster that goes takes nothing along: an
// agent that comes back is told so and keeps what it has.
package leave
