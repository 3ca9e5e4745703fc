package place

import "atoll.dev/atoll/internal/schedule"

// failback is what the index remembers of a Bundle that is not in the first of its
// placement's groups. It is lost with the hub's process: the hold time begins anew.
type failback struct {
	// group in use; waits tells whether an earlier one is to be used again at some time.
	group string
	waits bool
	// better group that is well, and when it will be used.
	better schedule.Better
}

func failbackOf(d schedule.Decision) failback {
	return failback{group: d.Group, waits: d.FailsBack, better: d.Better}
}

// note what a step came to; the caller holds the lock.
func (x *index) noteFailback(e *entry, is failback) {
	if e.failback = is; is.waits {
		x.failing[e.uid] = struct{}{}
	} else {
		delete(x.failing, e.uid)
	}
}

// came tells whether the cluster is in touch now and was not, or the other way round, and
// which Bundles wait for an earlier group that it is of.
func (x *index) came(c *schedule.Cluster, well bool) (uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.well[c.Name] == well {
		return nil
	}
	if well {
		x.well[c.Name] = true
	} else {
		delete(x.well, c.Name)
	}
	for uid := range x.failing {
		if e := x.entries[uid]; e != nil && e.filter != nil && e.filter.Earlier(e.failback.group, c) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// failback looks at the Bundles that wait for a cluster to be in touch, or out of it.
func (r *Reconciler) failback(c schedule.Cluster) {
	for _, uid := range r.index.came(&c, r.Clusters.Online(c.UID)) {
		r.now(uid)
	}
}

// healthy clusters may be failed back to.
func (r *Reconciler) healthy(c *schedule.Cluster) bool { return r.Clusters.Online(c.UID) }

// better group of a Bundle, as its last step found it.
func (x *index) better(uid string) schedule.Better {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		return e.failback.better
	}
	return schedule.Better{}
}
