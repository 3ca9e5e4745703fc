// Package fleet simulates agents by the thousand, to load a hub as a fleet does.
//
// Contract:
//
//   - A simulated agent is real from the view of the hub. It has its own key, certificate
//     request, certificate and mutual-TLS connection. It speaks the protocol by the agent's
//     own session core, and the agent's own code builds its reports. The member alone is
//     simulated: it applies every order at once, and the content is healthy after a drawn
//     delay.
//   - Keys and certificates are stored in the lab's directory, so that a restarted
//     simulator does not join again. The state of simulated members is not stored: the hub
//     orders it again after a restart.
//   - The draws of an agent (delays, pauses) depend on the seed, the agent and its number
//     of draws alone. Injected faults depend on the seed and the clock.
//   - A simulator listens on a Unix socket in the lab's directory; Control is its client.
//     Control is safe for concurrent use and keeps no state.
//   - An agent costs under 30 KB of resident memory while it holds a stream.
package fleet
