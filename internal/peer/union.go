package peer

import "cmp"

// session is one cluster's stream at one hub.
type session struct {
	at  int64  // by the clock of union
	hub string // empty: this one
}

// newer tells whether s began after o. The order is total, and the same at every
// hub that names hubs alike.
func (s session) newer(o session) bool {
	return cmp.Or(cmp.Compare(s.at, o.at), cmp.Compare(s.hub, o.hub)) > 0
}

// change is what is new about one cluster: whether this hub, and whether any other
// one, holds a stream of it.
type change struct {
	uid             string
	here, elsewhere bool
}

// superseded is a session of this hub that a newer one at another hub took over.
type superseded struct{ uid, hub string }

// outcome of one step.
type outcome struct {
	changes    []change
	superseded []superseded
}

// union is the pure core: who holds which cluster. Values in, values out; the caller
// gives the time and keeps others out.
type union struct {
	self      string // name of this hub
	clock     int64  // the latest session's beginning that was heard of
	own       map[string]session
	hubs      map[string]*holding
	elsewhere map[string]int // number of other hubs that hold the cluster
}

// holding is what another hub told.
type holding struct {
	round    int            // of calls
	sessions map[string]int // by UID, the round in which it was told last
	complete bool           // all of this round was told
	serves   bool           // agents, as it told last
}

func newUnion(self string) *union {
	return &union{self: self, own: map[string]session{}, hubs: map[string]*holding{}, elsewhere: map[string]int{}}
}

// up begins a session of this hub. It counts as newer than all that were told of
// before, whatever the clocks of hubs say.
func (u *union) up(uid string, now int64) outcome {
	u.clock = max(now, u.clock+1)
	_, had := u.own[uid]
	u.own[uid] = session{at: u.clock, hub: u.self}
	if had {
		return outcome{}
	}
	return outcome{changes: []change{u.state(uid)}}
}

// down ends a session of this hub.
func (u *union) down(uid string) outcome {
	if _, had := u.own[uid]; !had {
		return outcome{}
	}
	delete(u.own, uid)
	return outcome{changes: []change{u.state(uid)}}
}

// begin a new call to a hub: what it tells now replaces, once complete, what it told.
func (u *union) begin(hub string) {
	h := u.hubs[hub]
	if h == nil {
		h = &holding{sessions: map[string]int{}}
		u.hubs[hub] = h
	}
	h.round++
	h.complete = false
}

// held by the hub since at, as it says.
func (u *union) held(hub, uid string, at int64) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	u.clock = max(u.clock, at)
	_, had := h.sessions[uid]
	if h.sessions[uid] = h.round; !had {
		if u.elsewhere[uid]++; u.elsewhere[uid] == 1 {
			out.changes = append(out.changes, u.state(uid))
		}
	}
	if own, ok := u.own[uid]; ok && (session{at: at, hub: hub}).newer(own) {
		out.superseded = append(out.superseded, superseded{uid, hub})
	}
	return out
}

// gone from the hub, as it says.
func (u *union) gone(hub, uid string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	if _, had := h.sessions[uid]; !had {
		return out
	}
	delete(h.sessions, uid)
	if u.elsewhere[uid]--; u.elsewhere[uid] > 0 {
		return out
	}
	delete(u.elsewhere, uid)
	return outcome{changes: []change{u.state(uid)}}
}

// completed: all that the hub held when the call began was told.
func (u *union) completed(hub string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	for uid, round := range h.sessions {
		if round < h.round {
			out.changes = append(out.changes, u.gone(hub, uid).changes...)
		}
	}
	h.complete = true
	return out
}

// broken: the call ended; what the hub told counts on, and may be outdated.
func (u *union) broken(hub string) {
	if h := u.hubs[hub]; h != nil {
		h.complete = false
	}
}

// lost: the hub is gone, and so are the streams that it held.
func (u *union) lost(hub string) (out outcome) {
	h := u.hubs[hub]
	if h == nil {
		return out
	}
	for uid := range h.sessions {
		out.changes = append(out.changes, u.gone(hub, uid).changes...)
	}
	delete(u.hubs, hub)
	return out
}

// told tells whether the hub has told all that it holds, and tells on.
func (u *union) told(hub string) bool {
	h := u.hubs[hub]
	return h != nil && h.complete
}

func (u *union) state(uid string) change {
	_, here := u.own[uid]
	return change{uid, here, u.elsewhere[uid] > 0}
}
