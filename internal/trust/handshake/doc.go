// Package handshake defines the objects of joining on the hub, for both sides: the
// Secrets of join tokens, the certificate request of an agent, and the Secrets with
// credentials of members whose agents the hub runs. It also holds the administrator's
// acts: to make tokens, accept and deny.
//
// Contract: encoding and decoding are pure; Admin talks to the hub's API with the
// rights of the clients that it was given and keeps no state. It needs client-go
// only, so that the CLI stays small. Secrets of tokens are never stored, logged or
// put into errors.
package handshake
