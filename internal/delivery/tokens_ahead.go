package delivery

import (
	"time"

	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	// aheadLifetime is how long uses that are reserved ahead are handed out. A deleted token
	// still works for that time; then unspent uses go back.
	aheadLifetime = 2 * time.Second
	// aheadGrace is how long unspent uses then wait for the next request, whose write includes
	// them.
	aheadGrace = aheadLifetime / 4
	// maxAhead uses of one token.
	maxAhead = 500
	// aheadReserveFactor and minUsesLeft: uses are reserved ahead only while the token has so
	// many times as many left, and minUsesLeft besides. The last uses of a token are therefore
	// reserved one by one, also with several hubs, and a hub that is killed loses few of many.
	aheadReserveFactor = 5
	minUsesLeft        = 100
)

// countPrereservable returns how many of the uses that are left may be reserved ahead, where more
// are needed.
func countPrereservable(left, more int) int {
	if left < aheadReserveFactor*more+minUsesLeft {
		return 0
	}
	return more
}

// aheadUses are uses of one token that are reserved before agents request them.
type aheadUses struct {
	token handshake.StoredToken
	uses  int
	until time.Time
	// spent since since; demand for the same time is expected to be equal.
	spent int
	since time.Time
}

// takePrereservedUse takes a use that was reserved ahead. The caller holds the lock.
func (d *tokenUses) takePrereservedUse(r *useRequest) (handshake.StoredToken, bool) {
	a := d.ahead[r.token.ID]
	now := time.Now()
	if a == nil || !now.Before(a.until) || checkToken(a.token, a.uses, r, now) != nil {
		return handshake.StoredToken{}, false
	}
	a.uses--
	a.spent++
	d.reserved[r.token.ID+r.keyHash] = reservedUse{a.token, now.Add(reservedUseLifetime)}
	return a.token, true
}

// estimateFurtherUses estimates how many further uses of the token will be requested within
// aheadLifetime, by those spent since the last write. The caller holds the lock.
func (d *tokenUses) estimateFurtherUses(id string) int {
	a := d.ahead[id]
	if a == nil {
		return 0
	}
	rate := int(int64(a.spent) * int64(aheadLifetime) / int64(max(time.Since(a.since), aheadLifetime/20)))
	return max(min(rate, maxAhead)-a.uses, 0)
}

// addPrereservedUses adds uses that were reserved ahead to those that are left. The caller holds the
// lock.
func (d *tokenUses) addPrereservedUses(id string, token handshake.StoredToken, spent, uses int) {
	a := d.ahead[id]
	now := time.Now()
	if a == nil {
		a = &aheadUses{}
		d.ahead[id] = a
		time.AfterFunc(aheadLifetime+aheadGrace, func() { d.returnPrereservedUses(id) })
	}
	a.token, a.until = token, now.Add(aheadLifetime)
	a.spent, a.since = spent, now
	a.uses += uses
}

// returnPrereservedUses returns unspent uses to the token after a time without requests. A worker
// that runs writes them; otherwise this call does.
func (d *tokenUses) returnPrereservedUses(id string) {
	d.mu.Lock()
	a := d.ahead[id]
	if left := time.Until(a.until) + aheadGrace; left > 0 {
		d.mu.Unlock()
		time.AfterFunc(left, func() { d.returnPrereservedUses(id) })
		return
	}
	delete(d.ahead, id)
	if a.uses == 0 || d.ctx.Err() != nil {
		d.mu.Unlock()
		return
	}
	d.usesToReturn[id] += a.uses
	_, running := d.waiting[id]
	if !running {
		d.waiting[id] = nil
	}
	d.mu.Unlock()
	if !running {
		d.serveTokenRequests(id)
	}
}
