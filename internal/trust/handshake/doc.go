// Package handshake is what both sides of joining know about objects on the hub:
// how join tokens lie in Secrets, what an agent's certificate request looks like,
// what an administrator does to make tokens, accept and deny, and how credentials of
// members lie in Secrets whose agents the hub runs.
//
// Contract: encoding and decoding are pure; Admin talks to the hub's API with the
// rights of the clients that it was given and keeps no state. It needs client-go
// only, so that the CLI stays small. Secrets of tokens are never stored, logged or
// put into errors.
package handshake
