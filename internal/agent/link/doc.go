// Package link is the agent's end of the line to the hub: it joins, dials, keeps a
// session and comes back when it breaks. What the frames mean is package session's;
// what they do is the Engine's.
//
// Contract:
//
//   - The key is made here and never leaves the member; identity and certificate
//     lie in the member's store.
//   - A manifest is acknowledged only once it lies in the member's store. Reports
//     are sent when they differ from the last, gathered for Gather, and again after
//     a reconnect until the hub has stored them.
//   - A broken or half-open link is dialled again after 0.1 to 3 seconds, and a
//     dial that nobody answers is given up after dialTimeout, so that a link is in
//     use within 5 seconds of its return. TLS gets connectTimeout: a hub to which
//     all agents come back at once is not asked anew while it works on the first
//     time.
//   - Where somebody else than the hub answers, one that terminates TLS, the hub is
//     asked for by WebSocket, and the same TLS with the hub done in there. What worked
//     is tried first the next time; once in directEvery a dial is direct again.
//   - A certificate is renewed at about half of its life, by this end's clock, or when the
//     hub gives another unasked; the session goes on. It is used at once, and stored as
//     soon as the member takes it. Without one that the hub takes, the agent asks by
//     its key.
//   - An agent that the hub wants to check in ends its session when it is over and
//     rests until the next, by session.CheckIn; a row that turns meanwhile may bring
//     the next forward. It dials at once when its process starts. A certificate that
//     is due before the next check-in is renewed at this one, unless it lives for less than
//     the time between two.
//   - A hub that refuses for good is asked again after RefusedPause only. An agent
//     that another one superseded comes back after SupersededPause: of two that
//     have the same key the newer one works.
//   - Neither tokens nor keys nor the content of objects are logged.
//   - Changed may be called from anywhere. Run is called once.
package link
