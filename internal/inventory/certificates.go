package inventory

import "time"

// Certificate tells of the newest certificate of an agent, at this hub or another: when it
// ends, the generation of the CA that signed it, and whether it should have been renewed
// long since. That is kept in memory; only the last is written, when it turns.
func (r *Reconciler) Certificate(uid string, ends time.Time, generation int, overdue bool) {
	r.mu.Lock()
	m := r.members[uid]
	if m == nil { // its stream went, and its Cluster
		r.mu.Unlock()
		return
	}
	turned := m.overdue != overdue || m.certificate == 0
	m.certificate, m.generation, m.overdue = ends.Unix(), int32(generation), overdue
	r.mu.Unlock()
	if turned {
		r.enqueue(uid)
	}
}

// CertificateOf an agent, as it was told last since this hub started; ok is false where
// it was not.
func (r *Reconciler) CertificateOf(uid string) (ends time.Time, generation int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[uid]
	if m == nil || m.certificate == 0 {
		return time.Time{}, 0, false
	}
	return time.Unix(m.certificate, 0), int(m.generation), true
}
