package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"time"
)

// Backdated is how far before its issue a hub's certificate becomes valid. It tolerates clocks
// that differ by 10 minutes, with 5 minutes in reserve.
const Backdated = 15 * time.Minute

const (
	// renewFrom and renewWithin are parts of a certificate's life: it is renewed at half
	// of it, give or take a twentieth.
	renewFrom   = 0.45
	renewWithin = 0.1
)

// IssuedAt returns when a hub issued the certificate, by the hub's clock.
func IssuedAt(c *x509.Certificate) time.Time {
	if at := c.NotBefore.Add(Backdated); at.Before(c.NotAfter) {
		return at
	}
	return c.NotBefore
}

// CertificateLifetime returns the time from a certificate's issue to its expiry. It is positive unless the
// certificate was never valid.
func CertificateLifetime(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(IssuedAt(c)) }

// RenewAfter returns how long after its issue an agent renews its certificate: about half of the
// certificate's life. The exact time is derived from the certificate, so that certificates that
// were issued together are not renewed together.
func RenewAfter(c *x509.Certificate) time.Duration {
	sum := sha256.Sum256(c.Raw)
	lot := float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
	return time.Duration(float64(CertificateLifetime(c)) * (renewFrom + renewWithin*lot))
}

// RenewalRetryInterval returns how long an agent waits for the answer to a renewal before it requests
// again.
func RenewalRetryInterval(life time.Duration) time.Duration { return min(time.Minute, life/8) }

// RenewalOverdueAt returns when a renewal counts as overdue: when a quarter of the certificate's
// life is left.
func RenewalOverdueAt(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-CertificateLifetime(c) / 4)
}
