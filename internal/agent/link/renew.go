package link

import (
	"context"
	"math/rand/v2"
	"time"

	"atoll.dev/atoll/internal/pause"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// renewSpread bounds for how long an agent waits that comes with a certificate whose time
// to be renewed has passed: after a hub was away it has company.
const renewSpread = 10 * time.Minute

// renewCertificateLoop requests a new certificate in time, until the session ends. The session
// continues with the old certificate, which stays valid until its own expiry.
func (l *HubLink) renewCertificateLoop(ctx context.Context, out *outbox) {
	for wait := l.firstRenewalDelay(time.Now()); pause.WaitFor(ctx, wait); {
		if err := l.storeIdentity(ctx); err != nil {
			l.o.Log.Warn("the certificate cannot be stored in the member; trying on", "err", err)
		}
		l.notifyAdmittedIfStored()
		l.mu.Lock()
		id, now := l.id, time.Now()
		due, ends, retry := !now.Before(id.renewAt()), id.certificateEnd(), trust.RenewalRetryInterval(trust.CertificateLifetime(id.cert))
		wait = max(min(id.renewAt().Sub(now), time.Hour), time.Second)
		if id.unsaved {
			wait = min(wait, time.Minute)
		}
		l.mu.Unlock()
		if !due {
			continue
		}
		if now.After(ends.Add(-trust.CertificateLifetime(id.cert) / 4)) {
			l.o.Log.Warn("the hub has not renewed this agent's certificate, though requested; trying on. When it ends the agent requests another by its key", "hub", l.currentHub(), "ends", ends)
		}
		l.requestRenewal(out)
		wait = max(retry, time.Second)
	}
}

// firstRenewalDelay is how long a session waits before it looks after the certificate.
func (l *HubLink) firstRenewalDelay(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.id.renewAt().Sub(now); wait > 0 {
		if l.id.unsaved {
			wait = min(wait, time.Minute)
		}
		return wait
	}
	spread := min(renewSpread, l.id.certificateEnd().Sub(now)/2)
	if spread <= 0 {
		return 0
	}
	return rand.N(spread)
}

// requestRenewal requests a new certificate for the same key.
func (l *HubLink) requestRenewal(out *outbox) (asked bool) {
	csr, err := trust.NewCertificateRequest(l.id.key, l.o.Name)
	if err != nil {
		l.o.Log.Error("cannot request a new certificate", "err", err)
		return false
	}
	out.put(&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: csr}}})
	return true
}
