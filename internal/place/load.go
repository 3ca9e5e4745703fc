package place

import (
	"atoll.dev/atoll/internal/schedule"
)

// load is how many Bundles a cluster has, and is about to get by steps under way: so
// Bundles that are placed at the same time do not all take the one that has fewest.
func (r *Reconciler) load(c *schedule.Cluster) int64 {
	n := int64(r.Rows.CountOf(c.UID))
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	return n + r.index.reserved[c.UID]
}

// reserve what the snapshot's decision is about to place, if that was chosen among
// others that fit. It ends when what was written can be read.
func (r *Reconciler) reserve(s snapshot, f *schedule.Filter) (end func()) {
	if !f.Chooses() {
		return func() {}
	}
	var uids []string
	for i := range s.in.Decision.Verdicts {
		v := &s.in.Decision.Verdicts[i]
		if _, has := s.in.Rows[v.Cluster]; v.Outcome == schedule.Placed && !has {
			uids = append(uids, v.UID)
		}
	}
	r.index.reserve(uids, 1)
	return func() { r.index.reserve(uids, -1) }
}

func (x *index) reserve(uids []string, n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, uid := range uids {
		if x.reserved[uid] += n; x.reserved[uid] == 0 {
			delete(x.reserved, uid)
		}
	}
}
