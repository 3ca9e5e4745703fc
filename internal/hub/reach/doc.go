// Package reach lets people talk to the API of any cluster through the hub's own, at
// …/clusters/NAME/proxy/…, as themselves.
//
// Contract: whether somebody may is the hub's authorizer to say, by clusters/proxy and the
// cluster's name, or by clustersets/proxy and the name of a set that it is in; a request
// that upgrades its connection (exec, attach, port-forward) needs the verb create,
// whatever its method. What it authorized is what is served: the method's own verb, at the
// plain path, in no namespace; anything else is refused. In the member it is made under the
// name that package person gives, and what it may do there is the member's to say. The hub
// reads nothing of what is asked and answered, and keeps none of it: bodies are handed on as
// they come, and where one end does not read, the other one waits.
//
// Who waits for an answer of which nothing comes costs the goroutine of his request and of the
// tunnel, and no buffer. On the former nothing is done but to wait and to pass on: what needs more
// of a stack has a goroutine of its own while it lasts (Beside).
//
// What one user may have under way at one cluster and at all of them, and a hub of all
// users, has Limits; what is more is refused with 429, for others not to wait and
// the hub not to hold what nobody reads. A cluster that cannot be reached is 503, with the
// reason, at once.
package reach
