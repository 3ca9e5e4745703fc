// Package proxy answers people's requests to the member's API through the hub: an HTTP server on
// tunnels, which hands each request to the API server under the name of its user.
//
// Contract: a request is made by impersonation (package person), never by the agent's own right
// alone. The member's RBAC decides, for the user and for the agent, which must be allowed to
// impersonate. Credentials of a request are dropped. Bodies are passed on as they come, both ways,
// and so are upgraded connections (exec, attach, port-forward). The end of the tunnel ends the
// request in the member.
//
// The policy of the member's administrator decides on users and on kinds of requests. A request
// under way is cut off when a change of the policy would refuse it.
//
// Errors are the API's: a Status; Forbidden where the impersonated user is missing or forbidden;
// ServiceUnavailable where the member's API server does not answer.
//
// A Server is safe for concurrent use.
package proxy
