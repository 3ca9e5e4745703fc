// Package server is REST storage in place of upstream's for pods, replicasets, controllerrevisions,
// jobs, endpointslices, persistentvolumeclaims and events. It shows people the stored objects and the
// running objects of placed workloads in members, as if all were one cluster.
//
// Contract: only people see members' objects. The API server itself and the hub's controllers get
// the stored objects, and no request of theirs reaches a member. Nothing of a member is stored on
// the hub, or held without a request or watch, except the versions by which a watch resumes. The
// rows of the namespace name the clusters that get the request. Reads use the hub's own name, and
// agents answer
// only for placed objects. Writes, and connections to pods, use the user's name, and the member
// decides.
//
// Before a namespace is deleted, its members are asked for what would keep it, for a second at most.
//
// A cluster that does not answer is named in a warning, with the reason. A watch goes on without
// it, and includes it when it is back; a log of it is broken off (see AbortTruncatedLogs). Its
// absence deletes nothing: where the changes since cannot be known, a watch ends with 410, and its
// client lists again. Lists are not paged.
//
// Members are not trusted. Objects in namespaces without their rows are not shown. The size of an
// answer, and its size in memory, are bounded, for each and for all together; a user may have half
// of the free part. A list without memory names the missing members; a watch without all its
// clusters is refused, or ends.
//
// A pod that is not stored is found by its full name, or by its own name where one cluster has it.
// At most 128 clusters with rows in the namespace get the request for an own name. A cluster that does not
// answer may have the name: reads go on with a warning, and changes are refused.
//
// A template is shown as it is stored, once; its status has its state in members.
//
// The history of a workload, its stated templates in the kept Revisions, is shown to lists of
// ReplicaSets or ControllerRevisions by exactly its selector, and to no others.
//
// All may be called concurrently.
package server
