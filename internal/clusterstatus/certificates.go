package clusterstatus

import (
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// RecordCertificate takes the newest certificate of an agent whose stream is here: its end, the
// generation of the CA that signed it, and whether its renewal is overdue. It is kept in memory;
// only the last is written, when it turns.
func (r *ClusterStatusReconciler) RecordCertificate(uid string, ends time.Time, generation int, overdue bool) {
	r.mu.Lock()
	m := r.members[uid]
	if m == nil { // its stream went, and its Cluster
		r.mu.Unlock()
		return
	}
	turned := m.overdue != overdue || m.certificate == 0
	m.certificate, m.overdue = ends.Unix(), overdue
	m.newest = newest{ends.Unix(), int32(generation)}
	r.mu.Unlock()
	if turned {
		r.enqueueClusters(uid)
	}
}

// RecordRemoteCertificate records the newest certificate of an agent whose stream another hub
// holds. The other hub writes the status.
func (r *ClusterStatusReconciler) RecordRemoteCertificate(uid string, ends time.Time, generation int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[uid]; m != nil {
		m.newest = newest{ends.Unix(), int32(generation)}
	}
}

// newest certificate of an agent, reported here or elsewhere: it is the agent's wherever it
// connects next.
type newest struct {
	expiry     int64 // Unix seconds; 0: none was reported since this hub started
	generation int32 // of the CA that signed it
}

// SetRemoteTransport records the transport of an agent whose stream another hub holds; an empty
// transport means that the other hub does not report it. It is kept in memory.
func (r *ClusterStatusReconciler) SetRemoteTransport(uid, how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[uid]; m != nil {
		m.carriage = how
	}
}

// TransportOf returns the transport of an agent: how its present connection comes, to this hub or another; Push where a
// hub runs the agent, CheckIn where there is none and the agent is to check in, empty where
// it is away.
func (r *ClusterStatusReconciler) TransportOf(uid string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, here := r.members[uid]
	connected := here && (m.up || m.connectedElsewhere)
	c, known := r.o.Clusters.GetByUID(uid)
	switch {
	case connected && known && c.Spec.Mode == v1alpha1.ModePush:
		return string(v1alpha1.ModePush)
	case connected:
		return m.carriage
	case known && c.Spec.Accepted && c.Spec.CheckInInterval() > 0:
		return string(v1alpha1.ConnectionCheckIn)
	}
	return ""
}

// CertificateOf returns an agent's certificate, as it was last reported since this hub started; ok
// is false where it was not.
func (r *ClusterStatusReconciler) CertificateOf(uid string) (ends time.Time, generation int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[uid]
	if m == nil || m.newest.expiry == 0 {
		return time.Time{}, 0, false
	}
	return time.Unix(m.newest.expiry, 0), int(m.newest.generation), true
}
