package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"time"
)

// Backdated is how long before it is issued a certificate of a hub begins to be valid.
// Clocks that are 10 minutes apart are to be no trouble, and 5 are to spare.
const Backdated = 15 * time.Minute

const (
	// renewFrom and renewWithin are parts of a certificate's life: it is renewed at half
	// of it, give or take a twentieth.
	renewFrom   = 0.45
	renewWithin = 0.1
)

// Issued is when a certificate of a hub was, by the clock of that hub.
func Issued(c *x509.Certificate) time.Time {
	if at := c.NotBefore.Add(Backdated); at.Before(c.NotAfter) {
		return at
	}
	return c.NotBefore
}

// Life of a certificate of a hub, from when it was issued to its end. It is positive
// unless the certificate was never valid.
func Life(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(Issued(c)) }

// RenewAfter is how long after it came an agent's certificate is renewed: about half of
// its life. By how much it is more or less follows from the certificate, so that those
// that were issued at once are not renewed at once.
func RenewAfter(c *x509.Certificate) time.Duration {
	sum := sha256.Sum256(c.Raw)
	lot := float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
	return time.Duration(float64(Life(c)) * (renewFrom + renewWithin*lot))
}

// RenewRetry is how long an agent waits for a certificate of that life before it asks
// again.
func RenewRetry(life time.Duration) time.Duration { return min(time.Minute, life/8) }

// Overdue is from when on a certificate should have been renewed long since: a quarter of
// its life is left.
func Overdue(c *x509.Certificate) time.Time { return c.NotAfter.Add(-Life(c) / 4) }
