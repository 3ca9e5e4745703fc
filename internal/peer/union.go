package peer

import "cmp"

// session is one cluster's stream at one hub.
type session struct {
	at  int64  // by the clock of union
	hub string // empty: this one
}

// isNewerThan reports whether s began after o. The order is total, and the same at every
// hub that names hubs alike.
func (s session) isNewerThan(o session) bool {
	return cmp.Or(cmp.Compare(s.at, o.at), cmp.Compare(s.hub, o.hub)) > 0
}

// holderChange is what is new about one cluster: whether this hub, and whether any other
// one, holds a stream of it.
type holderChange struct {
	uid             string
	here, elsewhere bool
}

// superseded is a session of this hub that a newer one at another hub took over.
type superseded struct{ uid, hub string }

// outcome of one step.
type outcome struct {
	changes    []holderChange
	superseded []superseded
}

// sessionUnion is the pure core: the holder of each cluster. Values in, values out; the caller gives the
// time and serialises calls.
type sessionUnion struct {
	self    string // name of this hub
	clock   int64  // the latest reported beginning of a session
	own     map[string]session
	hubs    map[string]*holding
	holders map[string]int // number of other hubs that hold the cluster
}

// holding is the list of another hub.
type holding struct {
	round    int            // of calls
	sessions map[string]int // by UID, the round of its last mention
	complete bool           // all of this round was received
	serves   bool           // agents, by its last report
}

func newUnion(self string) *sessionUnion {
	return &sessionUnion{self: self, own: map[string]session{}, hubs: map[string]*holding{}, holders: map[string]int{}}
}

// addOwnSession begins a session of this hub. It counts as newer than all reported ones, whatever
// the clocks of hubs are.
func (u *sessionUnion) addOwnSession(uid string, now int64) outcome {
	u.clock = max(now, u.clock+1)
	_, had := u.own[uid]
	u.own[uid] = session{at: u.clock, hub: u.self}
	if had {
		return outcome{}
	}
	return outcome{changes: []holderChange{u.newHolderChange(uid)}}
}

// endOwnSession ends a session of this hub.
func (u *sessionUnion) endOwnSession(uid string) outcome {
	if _, had := u.own[uid]; !had {
		return outcome{}
	}
	delete(u.own, uid)
	return outcome{changes: []holderChange{u.newHolderChange(uid)}}
}

// beginHubList begins a new call to a hub: its new list replaces the old one when it is complete.
func (u *sessionUnion) beginHubList(hub string) {
	h := u.hubs[hub]
	if h == nil {
		h = &holding{sessions: map[string]int{}}
		u.hubs[hub] = h
	}
	h.round++
	h.complete = false
}

// addRemoteSession records a stream that is held by the hub since at, as it reports.
func (u *sessionUnion) addRemoteSession(hub, uid string, at int64) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	u.clock = max(u.clock, at)
	_, had := h.sessions[uid]
	if h.sessions[uid] = h.round; !had {
		if u.holders[uid]++; u.holders[uid] == 1 {
			out.changes = append(out.changes, u.newHolderChange(uid))
		}
	}
	if own, ok := u.own[uid]; ok && (session{at: at, hub: hub}).isNewerThan(own) {
		out.superseded = append(out.superseded, superseded{uid, hub})
	}
	return out
}

// endRemoteSession records a stream that is gone from the hub, as it reports.
func (u *sessionUnion) endRemoteSession(hub, uid string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	if _, had := h.sessions[uid]; !had {
		return out
	}
	delete(h.sessions, uid)
	if u.holders[uid]--; u.holders[uid] > 0 {
		return out
	}
	delete(u.holders, uid)
	return outcome{changes: []holderChange{u.newHolderChange(uid)}}
}

// completeHubList: everything that the hub held when the call began was received.
func (u *sessionUnion) completeHubList(hub string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	for uid, round := range h.sessions {
		if round < h.round {
			out.changes = append(out.changes, u.endRemoteSession(hub, uid).changes...)
		}
	}
	h.complete = true
	return out
}

// markHubListIncomplete: the call ended; the hub's list still counts, and may be outdated.
func (u *sessionUnion) markHubListIncomplete(hub string) {
	if h := u.hubs[hub]; h != nil {
		h.complete = false
	}
}

// removeHub: the hub is gone, and so are the streams that it held.
func (u *sessionUnion) removeHub(hub string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	for uid := range h.sessions {
		out.changes = append(out.changes, u.endRemoteSession(hub, uid).changes...)
	}
	delete(u.hubs, hub)
	return out
}

// isHubListComplete reports whether the hub has sent its whole list, and continues to send changes.
func (u *sessionUnion) isHubListComplete(hub string) bool {
	h := u.hubs[hub]
	return h != nil && h.complete
}

func (u *sessionUnion) newHolderChange(uid string) holderChange {
	_, here := u.own[uid]
	return holderChange{uid, here, u.holders[uid] > 0}
}
