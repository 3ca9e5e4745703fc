package inventory

import "time"

// incomplete is how soon it is looked again whether all hubs have told what they hold.
const incomplete = time.Second

// Lead tells that this hub decides from now on: it looks at all Clusters, and silence
// counts from now.
func (r *Reconciler) Lead() {
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	for _, c := range r.o.Clusters.List() {
		r.queue.Add(c.Name)
	}
}

// Elsewhere tells that another hub holds a stream of the member's agent, or that none
// does any more, and when the agent was heard of last there. What this hub was told of the member before is out of date then.
func (r *Reconciler) Elsewhere(uid string, on bool, heard time.Time) {
	r.mu.Lock()
	c, known := r.o.Clusters.ByUID(uid)
	m := r.member(uid)
	if m.elsewhere == on {
		r.mu.Unlock()
		return
	}
	m.elsewhere = on
	var release []string
	if on {
		r.found(m)
		m.silent = false
		if !m.up {
			m.facts, m.apis = facts{}, nil
		}
		release = r.release(uid, time.Now())
	} else if !m.up && known {
		r.lose(m, &c.Spec, heard)
	} else if !m.up {
		delete(r.members, uid) // its Cluster is gone
	}
	every := m.every
	r.mu.Unlock()
	r.enqueue(release...)
	if !on && known {
		r.queue.AddAfter(c.Name, r.missedAfter(every))
	}
}

func (r *Reconciler) leads() bool { return r.o.Leads == nil || r.o.Leads() }

// others' is a member about which another hub writes: the one that holds its stream,
// or, where none does, the one that leads. How the agent fares that this hub runs, only
// this one knows. The caller holds the lock.
func (r *Reconciler) others(m *member) bool {
	switch {
	case m.up || m.pushed != nil:
		return false
	case m.elsewhere:
		return true
	}
	return !r.leads() && m.inventory == nil && len(m.apis) == 0
}
