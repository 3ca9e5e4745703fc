package clusterstatus

import "time"

// incomplete is the interval of checks whether all hubs have sent their lists.
const incomplete = time.Second

// BecomeLeader reports that this hub decides from now on: it looks at all Clusters, and silence
// counts from now.
func (r *ClusterStatusReconciler) BecomeLeader() {
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	for _, c := range r.o.Clusters.List() {
		r.loop.EnqueueNow(c.Name)
	}
}

// SetRemoteStream records that another hub holds a stream of the member's agent, or that none does
// any more, and the agent's last sign of life there. Earlier reports to this hub are then
// outdated.
func (r *ClusterStatusReconciler) SetRemoteStream(uid string, on bool, heard time.Time) {
	r.mu.Lock()
	c, known := r.o.Clusters.GetByUID(uid)
	m := r.ensureMember(uid)
	if m.connectedElsewhere == on {
		r.mu.Unlock()
		return
	}
	m.connectedElsewhere = on
	var release []string
	if on {
		r.clearLostMark(m)
		m.silent = false
		if !m.up {
			m.memberFacts, m.apis = memberFacts{}, nil
		}
		release = r.releaseHeldSilences(uid, time.Now())
	} else if !m.up && known {
		r.markLost(m, &c.Spec, heard)
	} else if !m.up {
		delete(r.members, uid) // its Cluster is gone
	}
	every := m.every
	r.mu.Unlock()
	r.enqueueClusters(release...)
	if !on && known {
		r.loop.EnqueueAfter(c.Name, r.silenceDelay(every))
	}
}

func (r *ClusterStatusReconciler) isLeader() bool { return r.o.Leads == nil || r.o.Leads() }

// isStatusWrittenByOtherHub reports whether another hub writes the member's status: the hub that
// holds its stream, or else the leader. Only this hub has the state of the agent that it runs. The
// caller holds the lock.
func (r *ClusterStatusReconciler) isStatusWrittenByOtherHub(m *member) bool {
	switch {
	case m.up || m.pushed != nil:
		return false
	case m.connectedElsewhere:
		return true
	}
	return !r.isLeader() && m.inventory == nil && len(m.apis) == 0
}
