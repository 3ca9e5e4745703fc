package placer

// effectivePlace returns the place of a member by its rows and by the decision that is under way.
func effectivePlace(places map[string]memberPlace, decided map[string]decidedPlace, cluster string) memberPlace {
	p := places[cluster]
	if d, isDecided := decided[cluster]; isDecided {
		p.stays = d.takes
		p.occupies = p.occupies || d.takes
	}
	return p
}

// movePlace counts that a member's place in a cluster changed. The caller holds the lock.
func (x *groupIndex) movePlace(m *groupMember, cluster string, was, is memberPlace) (woken []string) {
	if was == is {
		return nil
	}
	for _, key := range m.groups {
		g := x.ensureGroup(m, key)
		taken := was.occupies != is.occupies && setPresence(g.occupants, cluster, m.uid, is.occupies)
		kept := was.stays != is.stays && setPresence(g.stayers, cluster, m.uid, is.stays)
		if taken || kept {
			g.changes++
			m.ownChanges++
		}
		if taken && !is.occupies {
			woken = appendOthers(woken, g.waitingApart, m.uid)
		}
		if kept {
			woken = appendOthers(woken, g.waitingTogether, m.uid)
		} else if was.stays && !is.stays {
			woken = append(woken, g.countLastStayer(m, cluster)...)
		}
		x.dropEmptyGroup(key, g)
	}
	return woken
}

// ensureGroup returns a group of a member, and makes it where the member is its first. The caller holds the lock.
func (x *groupIndex) ensureGroup(m *groupMember, key groupKey) *workloadGroup {
	if g := x.groups[key]; g != nil {
		return g
	}
	x.created++
	g := &workloadGroup{
		occupants: map[string]map[string]bool{}, stayers: map[string]map[string]bool{},
		waitingApart: map[string]bool{}, waitingTogether: map[string]bool{}, changes: x.created << 32,
	}
	m.ownChanges += g.changes
	x.groups[key] = g
	return g
}

// setPresence sets whether a member is in a cluster, and reports whether the cluster came or went.
func setPresence(clusters map[string]map[string]bool, cluster, uid string, present bool) (turned bool) {
	in := clusters[cluster]
	if present {
		if in == nil {
			in = map[string]bool{}
			clusters[cluster] = in
		}
		in[uid] = true
		return len(in) == 1
	}
	if delete(in, uid); len(in) > 0 {
		return false
	}
	delete(clusters, cluster)
	return true
}

// countLastStayer counts a change for the member that a cluster has alone after m left: it may be free to choose now.
func (g *workloadGroup) countLastStayer(m *groupMember, cluster string) (woken []string) {
	last := lastOf(g.stayers[cluster])
	if last == "" {
		return nil
	}
	g.changes++
	m.ownChanges++
	if g.waitingTogether[last] {
		woken = append(woken, last)
	}
	return woken
}

// lastOf returns the only member; empty: there is none, or more than one.
func lastOf(members map[string]bool) (uid string) {
	if len(members) == 1 {
		for uid = range members {
		}
	}
	return uid
}

// appendOthers appends the waiting members without the one that caused the change.
func appendOthers(to []string, waiting map[string]bool, uid string) []string {
	for w := range waiting {
		if w != uid {
			to = append(to, w)
		}
	}
	return to
}

func (x *groupIndex) dropEmptyGroup(key groupKey, g *workloadGroup) {
	if len(g.occupants)+len(g.stayers)+len(g.waitingApart)+len(g.waitingTogether) == 0 {
		delete(x.groups, key)
	}
}
