// Package trust holds the pure helpers of the handshake between agents and the hub:
// join tokens, certificate requests, the pin of the hub's CA, agents' certificates,
// the session tickets with which agents reconnect, and the authentication of positions.
//
// Contract: functions of values, with the random source of the operating system
// where keys and tokens are made; nothing here talks or logs, and only a Ticket keeps
// something. Errors and String methods never hold secret material. Safe for concurrent
// use. Only the standard library is used, so that the smallest agent can link it.
package trust
