// Package proxy answers what people ask of the member's API through the hub: an HTTP
// server on tunnels, which hands each request to the API server under the name of who
// asks.
//
// Contract: a request is made by impersonation (package person), never by the agent's own
// right alone; what it may do is the member's RBAC to say, of the agent too, which must be
// allowed to impersonate. Credentials that a request brings are dropped. Bodies are passed
// on as they come, both ways, and so are upgraded connections (exec, attach,
// port-forward). When the tunnel ends, so does the request in the member.
//
// The policy of the member's administrator says who may come, and to do what; what is under
// way when it changes is cut off if it would be refused now.
//
// Errors are the API's: a Status, Forbidden where nobody or somebody is impersonated who
// must not be, ServiceUnavailable where the member's API server does not answer.
//
// A Server is safe for concurrent use.
package proxy
