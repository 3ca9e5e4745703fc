// Package view is REST storage in place of upstream's for pods, replicasets,
// controllerrevisions, jobs, endpointslices and events: to people it shows, beside what is stored
// on the hub, what runs of placed workloads in members, as if all were one cluster.
//
// Contract: only people see it. The API server itself and the hub's controllers get what is
// stored, and no request of theirs reaches a member. Nothing of a member is stored on the
// hub, or held while nobody asks or watches, but for the versions by which a watch can go
// on. Which clusters are asked, the rows of the namespace say. What is read is asked for in
// the hub's own name, and agents answer for what is placed and nothing else; what is
// written, and what connects to a pod, is asked for in the name of who asks, and the
// member's to allow.
//
// A cluster that does not answer is named in a warning, with the reason; a watch goes on
// without it, and with it when it is back; a log of it is broken off (see Whole). That it is
// away deletes nothing: where it cannot be told what has changed meanwhile, a watch ends with
// 410, for who watches to list again. Lists are not paged.
//
// Members are not believed: of namespaces in which they have no rows nothing of theirs is
// shown, and what they answer at once, and what becomes of it in memory, is bounded, of each
// and of all together; of that a user may have half of what others leave. A list that finds no
// room names who is missing; a watch that may not have all its clusters is refused, or ends.
//
// A template is shown as it is stored, once; what it is in members, its status says.
//
// What was stated of a workload at the Revisions that are kept is shown to who lists ReplicaSets
// or ControllerRevisions by exactly its selector, and to nobody else: it is its history.
//
// All may be called concurrently.
package view
