package h2

import (
	"time"

	"golang.org/x/net/http2"
)

const (
	// floodAllowance is the cost of empty frames that a peer can send in a floodPeriod, beyond those
	// that answer the server's own frames.
	floodAllowance = 1000
	floodPeriod    = int64(10 * time.Second)
	// costLittle and the others are costs of such frames.
	costLittle, costReset, costSettings = 1, 5, 10
	// earnedPerFrame is the allowance that a frame of the server adds, because the peer may
	// answer it.
	earnedPerFrame = 4
	// maxPingStrikes is how many pings of a peer can come too early.
	maxPingStrikes = 2
)

// floodGuard counts the frames of one peer that cause work and carry no data.
type floodGuard struct {
	spent       int
	periodStart int64 // Unix nanoseconds
	strikes     int
	lastPing    int64 // time of the peer's last ping
}

// connError is a protocol error, or an exceeded limit, that ends the connection.
type connError struct {
	code   http2.ErrCode
	reason string
}

func (b connError) Error() string { return b.reason }

// spendAllowance charges a frame that carries no data. It returns an error when the allowance is
// spent.
func (p *floodGuard) spendAllowance(cost int) error {
	if p.spent += cost; p.spent <= floodAllowance {
		return nil
	}
	now := time.Now().UnixNano()
	if now-p.periodStart < floodPeriod {
		return connError{http2.ErrCodeEnhanceYourCalm, "too many frames that carry no data"}
	}
	p.periodStart, p.spent = now, cost
	return nil
}

// earnAllowance adds to the allowance after a frame that the peer may answer.
func (p *floodGuard) earnAllowance() {
	p.spent = max(p.spent-earnedPerFrame, 0)
	p.strikes, p.lastPing = 0, 0
}

// checkPing counts the peer's early pings as gRPC does. A ping is early when it follows another
// within apart, and the server has sent no data in between.
func (p *floodGuard) checkPing(now int64, apart time.Duration) error {
	early := p.lastPing != 0 && now-p.lastPing < int64(apart)
	p.lastPing = now
	if early {
		p.strikes++
	}
	if p.strikes > maxPingStrikes {
		return connError{http2.ErrCodeEnhanceYourCalm, "too_many_pings"}
	}
	return nil
}
