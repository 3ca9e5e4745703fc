// Package link is the agent's end of the connection to the hub: it joins, dials, keeps a session
// and reconnects. Package session defines the meaning of frames, and the Engine their effect.
//
// Contract:
//
//   - The key is made here and never leaves the member; identity and certificate
//     are in the member's store.
//   - A manifest is acknowledged only once it is in the member's store. Reports
//     are sent when they differ from the last, gathered for Gather, and again after
//     a reconnect until the hub has stored them.
//   - A broken or half-open link is dialled again after 0.1 to 3 seconds, and a
//     dial without an answer is given up after dialTimeout, so that a link is in
//     use within 5 seconds of its return. TLS gets connectTimeout: a hub to which
//     all agents return at once gets no second request while it works on the first.
//   - Where a proxy that terminates TLS answers, the hub is dialled by WebSocket, with
//     the same TLS inside. The working way is tried first the next time; once in
//     directEvery a dial is direct again.
//   - A certificate is renewed at about half of its life, by this end's clock, or when the
//     hub sends another one; the session continues. It is used at once, and stored as
//     soon as the member takes it. Without a valid one the agent requests one by its key.
//   - An agent with mode CheckIn ends its session when it is over and rests until the
//     next, by session.CheckIn; a row with a changed state may bring the next forward.
//     It dials at once when its process starts. A certificate that is due before the
//     next check-in is renewed at this one, unless its life is shorter than the interval.
//   - After RefusedPause, the agent calls a hub again that refuses for good. A superseded agent
//     returns after SupersededPause: of two agents with the same key the newer one works.
//   - Neither tokens nor keys nor the content of objects are logged.
//   - BundleStatusChanged may be called from anywhere. Run is called once.
package link
