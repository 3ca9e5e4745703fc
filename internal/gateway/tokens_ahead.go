package gateway

import (
	"time"

	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	// aheadLife is how long uses that were reserved ahead are given out. For as long a
	// token that was deleted is still honoured; then what is not spent goes back.
	aheadLife = 2 * time.Second
	// aheadRest is for how long what is not spent then waits for the next who asks, whose
	// write takes it over.
	aheadRest = aheadLife / 4
	// mostAhead of one token.
	mostAhead = 500
	// Nothing is reserved ahead where not so many times as much is left, and fewUses
	// besides: so that a token's last uses are nobody's until they are spent, also with
	// several hubs, and a hub that is killed loses few of many.
	aheadTimes = 5
	fewUses    = 100
)

// aheadOf the uses that are left, where more are wanted.
func aheadOf(left, more int) int {
	if left < aheadTimes*more+fewUses {
		return 0
	}
	return more
}

// allotment of uses of one token that were reserved before anybody asked for them.
type allotment struct {
	token handshake.StoredToken
	uses  int
	until time.Time
	// spent since then: about as many are wanted again in as long a time.
	spent int
	since time.Time
}

// fromAhead takes a use that was reserved ahead. The caller holds the lock.
func (d *tokenDesk) fromAhead(r *reservation) (handshake.StoredToken, bool) {
	a := d.ahead[r.token.ID]
	now := time.Now()
	if a == nil || !now.Before(a.until) || check(a.token, a.uses, r, now) != nil {
		return handshake.StoredToken{}, false
	}
	a.uses--
	a.spent++
	d.granted[r.token.ID+r.keyHash] = grant{a.token, now.Add(grantLife)}
	return a.token, true
}

// demand for a token's uses in the time of an allotment, by what was spent since the last
// write, beyond those that are left of it. The caller holds the lock.
func (d *tokenDesk) demand(id string) int {
	a := d.ahead[id]
	if a == nil {
		return 0
	}
	rate := int(int64(a.spent) * int64(aheadLife) / int64(max(time.Since(a.since), aheadLife/20)))
	return max(min(rate, mostAhead)-a.uses, 0)
}

// allot uses that were reserved ahead; what was left of those before is added. The caller
// holds the lock.
func (d *tokenDesk) allot(id string, token handshake.StoredToken, spent, uses int) {
	a := d.ahead[id]
	now := time.Now()
	if a == nil {
		a = &allotment{}
		d.ahead[id] = a
		time.AfterFunc(aheadLife+aheadRest, func() { d.giveBack(id) })
	}
	a.token, a.until = token, now.Add(aheadLife)
	a.spent, a.since = spent, now
	a.uses += uses
}

// giveBack what was not spent, once nobody has asked for a while. A worker writes it, this
// one where none runs.
func (d *tokenDesk) giveBack(id string) {
	d.mu.Lock()
	a := d.ahead[id]
	if left := time.Until(a.until) + aheadRest; left > 0 {
		d.mu.Unlock()
		time.AfterFunc(left, func() { d.giveBack(id) })
		return
	}
	delete(d.ahead, id)
	if a.uses == 0 || d.ctx.Err() != nil {
		d.mu.Unlock()
		return
	}
	d.owed[id] += a.uses
	_, running := d.waiting[id]
	if !running {
		d.waiting[id] = nil
	}
	d.mu.Unlock()
	if !running {
		d.work(id)
	}
}
