// Package fleet simulates agents by the thousand, to load a hub as a fleet does.
//
// Contract:
//
//   - A simulated agent is real as far as a hub can see: its own key, certificate
//     request and certificate, its own mutual-TLS connection, the real protocol
//     spoken by the agent's own session core, reports built by the agent's own code.
//     Only the member behind it is imagined: what is ordered is stored and applied at
//     once, and is healthy after a drawn delay.
//   - Keys and certificates are kept in the lab's directory, so that a simulator that
//     is started again does not join again. What the imagined members store is not:
//     to the hub it looks as if they had lost it, and it orders it anew.
//   - What an agent draws (delays, pauses) depends on nothing but the seed, the agent
//     and how often it drew; who is befallen by what, on the seed and the clock.
//   - A simulator listens on a Unix socket in the lab's directory; Control is its
//     client. Control is safe for concurrent use and keeps no state.
//   - An agent costs under 30 KB resident while it holds a stream.
package fleet
