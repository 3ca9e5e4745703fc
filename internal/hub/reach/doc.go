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
// One user may have PerUser requests under way at one cluster, PerUserAll at all of them,
// and a hub All of all users; what is more is refused with 429, for others not to wait and
// the hub not to hold what nobody reads. A cluster that cannot be reached is 503, with the
// reason, at once.
package reach
