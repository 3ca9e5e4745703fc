// Package memberproxy lets people talk to the API of any cluster through the hub's own, at
// …/clusters/NAME/proxy/…, as themselves.
//
// Contract: the hub's authorizer decides about a user, by clusters/proxy and the cluster's name,
// or by clustersets/proxy and the name of a set of the cluster. A request that upgrades its
// connection (exec, attach, port-forward) needs the verb create, whatever its method. Only the
// authorized request is served: the method's own verb, at the plain path, in no namespace;
// anything else is refused. In the member it has the identity of package person, and the member
// decides about its rights. The hub reads and keeps nothing of requests and answers: bodies are
// passed on as they come, and where one end does not read, the other one waits.
//
// A request that waits for a silent answer costs its goroutine and the tunnel's, and no buffer. On
// the former nothing is done but to wait and to pass on: work that needs more stack has a
// goroutine of its own (RunOnSeparateStack).
//
// Limits bounds the requests of one user at one cluster and at all of them, and the requests of
// all users at a hub. More requests are refused with 429, so that others do not wait and the hub
// does not hold unread data. A cluster that cannot be reached is 503, with the reason, at once.
package memberproxy
