package h2

import (
	"time"

	"golang.org/x/net/http2"
)

const (
	// patienceMost is what frames may cost that make work and carry nothing, in
	// patienceSpan and beyond what the server's own frames explain.
	patienceMost = 1000
	patienceSpan = int64(10 * time.Second)
	// costs of such frames.
	costLittle, costReset, costSettings = 1, 5, 10
	// earned by each frame of the server that a peer may answer.
	earned = 4
	// strikesMost is how many pings of a peer may come too early.
	strikesMost = 2
)

// patience with a peer.
type patience struct {
	spent   int
	since   int64 // Unix nanoseconds
	strikes int
	pinged  int64 // when the peer did last
}

// breach of the protocol, or of what is bounded, by which a connection ends.
type breach struct {
	code http2.ErrCode
	what string
}

func (b breach) Error() string { return b.what }

// spend on a frame that carries nothing.
func (p *patience) spend(cost int) error {
	if p.spent += cost; p.spent <= patienceMost {
		return nil
	}
	now := time.Now().UnixNano()
	if now-p.since < patienceSpan {
		return breach{http2.ErrCodeEnhanceYourCalm, "too many frames that carry nothing"}
	}
	p.since, p.spent = now, cost
	return nil
}

// earn by a frame that the peer may answer.
func (p *patience) earn() {
	p.spent = max(p.spent-earned, 0)
	p.strikes, p.pinged = 0, 0
}

// ping of the peer: pings closer together than apart are strikes, unless the server
// has sent something meanwhile. So does grpc.
func (p *patience) ping(now int64, apart time.Duration) error {
	early := p.pinged != 0 && now-p.pinged < int64(apart)
	p.pinged = now
	if early {
		p.strikes++
	}
	if p.strikes > strikesMost {
		return breach{http2.ErrCodeEnhanceYourCalm, "too_many_pings"}
	}
	return nil
}
