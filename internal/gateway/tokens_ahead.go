package gateway

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	// aheadLife is how long uses that were reserved ahead are given out. For as long a
	// token that was deleted is still honoured; then what is not spent goes back.
	aheadLife = 2 * time.Second
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
// write. The caller holds the lock.
func (d *tokenDesk) demand(id string) int {
	a := d.ahead[id]
	if a == nil {
		return 0
	}
	return min(int(int64(a.spent)*int64(aheadLife)/int64(max(time.Since(a.since), aheadLife/20))), mostAhead)
}

// allot uses that were reserved ahead; what was left of those before is added. The caller
// holds the lock.
func (d *tokenDesk) allot(id string, token handshake.StoredToken, spent, uses int) {
	a := d.ahead[id]
	now := time.Now()
	if a == nil {
		a = &allotment{}
		d.ahead[id] = a
		time.AfterFunc(aheadLife, func() { d.giveBack(id) })
	}
	a.token, a.until = token, now.Add(aheadLife)
	a.spent, a.since = spent, now
	a.uses += uses
}

// giveBack what was not spent, once nobody has asked for a while.
func (d *tokenDesk) giveBack(id string) {
	d.mu.Lock()
	a := d.ahead[id]
	if left := time.Until(a.until); left > 0 {
		d.mu.Unlock()
		time.AfterFunc(left, func() { d.giveBack(id) })
		return
	}
	delete(d.ahead, id)
	d.mu.Unlock()
	if a.uses == 0 || d.ctx.Err() != nil {
		return
	}
	if err := d.credit(id, a.uses); err != nil {
		d.log.Warn("uses of a join token that were reserved ahead are lost", "token", id, "uses", a.uses, "err", err)
	}
}

// credit uses to a token.
func (d *tokenDesk) credit(id string, uses int) error {
	for {
		var secret corev1.Secret
		err := d.client.Get(d.ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: handshake.TokenSecretName(id)}, &secret)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read join token %s: %w", id, err)
		}
		stored, err := handshake.ParseTokenSecret(&secret)
		if err != nil {
			return err
		}
		handshake.SetUses(&secret, stored.UsesLeft+uses)
		if err = d.client.Update(d.ctx, &secret); !apierrors.IsConflict(err) {
			return err
		}
	}
}
