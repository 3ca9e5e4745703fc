// Package live answers the hub's own requests for the running objects of placed workloads: a
// read-only part of the member's API, on the tunnels that also carry people's requests.
//
// Contract: an object is visible when Atoll applied it, or when its controller, or the
// controller's controller and so on, is one that Atoll applied. A volume claim has the StatefulSet that
// uses it by its name as controller. The agent's records have these by
// UID. A UID counts with its kind, namespace and name, because any writer can put a UID into owner
// references and Events. Nothing else in the member is visible, not even its existence, with two
// exceptions: the sum of all nodes' usage, and the names of the objects that would keep a namespace
// that Atoll made and a user deletes. An Event is visible when its object is. Answers are those of the
// member's API for get, list, watch and logs of pods, events, replicasets, controllerrevisions,
// jobs, endpointslices and persistentvolumeclaims, as protobuf, with the member's own objects. The measurements of
// metrics-server are included where the member has it.
//
// The requests use the agent's own rights, so only the hub may make them. They use a host name
// that people's requests cannot have, and a request with a user is refused.
//
// Lists are read page by page, owners as metadata, and nothing is held between requests. A list
// has the version of its first page: a watch from there may repeat a part of the list. A watch
// from a version first reads the metadata of the existing objects. It ends with 410 where the
// owner of a deleted object is unknown. Errors are Statuses of the API. A Server is safe for
// concurrent use.
package live
