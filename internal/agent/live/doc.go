// Package live answers what the hub asks, in its own name, of what runs in the member for
// placed workloads: a part of the member's API, for reading, on the tunnels by which people
// come too.
//
// Contract: an object is answered for when Atoll applied it, or when its controller, or the
// controller's controller and so on, is one that Atoll applied: the agent's records know
// them by their UIDs. A UID counts with the kind, namespace and name that go with it, since
// owner references and Events hold what their writers like. Of anything else in the member
// nothing is said, not even that it is there, but for the sum of what all nodes use. An Event
// is answered for when what it is about is. Answers are those of the member's API for get,
// list, watch and logs of pods, events, replicasets, controllerrevisions, jobs and
// endpointslices, as protobuf, and are the member's own objects; and what metrics-server
// measures, where the member has it.
//
// The requests are made with the agent's own rights. So they are nobody's but the hub's:
// they come under a host name that what people ask can never have, and one that brings
// somebody's name is refused.
//
// Lists are read page by page, of owners only metadata, and nothing is held between
// requests. A list holds the version at which its first page was read: a watch from there
// may tell some of the list again. A watch from a version begins by reading the metadata of
// what is there, and ends with 410 where it cannot tell any more whose an object was that
// is gone. Errors are Statuses of the API. A Server is safe for concurrent use.
package live
