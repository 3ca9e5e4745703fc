// Package fleet simulates agents by the thousand, to load a hub as a fleet does.
//
// Contract:
//
//   - A simulated agent is real as far as a hub can see: its own key, certificate
//     request and certificate, its own mutual-TLS connection, the real protocol
//     spoken by the agent's own session core, reports built by the agent's own code.
//     Only the member behind it is imagined: what is ordered is stored and applied at
//     once, and is healthy after a drawn delay.
//   - Keys, certificates and what the imagined members store are kept in the lab's
//     directory, so that a simulator that is started again goes on where it ended
//     and does not join again.
//   - Draws depend on nothing but the seed, the agent and how often it drew.
//   - A simulator listens on a Unix socket in the lab's directory; Control is its
//     client. Control is safe for concurrent use and keeps no state.
//   - An agent costs under 30 KB resident while it holds a stream.
package fleet
