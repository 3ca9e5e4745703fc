package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// reservedUseLifetime is how long a reserved use waits for its Cluster to be created.
const reservedUseLifetime = 10 * time.Minute

// errTokenRefused wraps every reason for the refusal of a token. The reasons are only for
// the hub's log.
var errTokenRefused = errors.New("the join token is refused")

// tokenUses reserves uses of join tokens. Concurrent requests for one token are one write.
// Under load some uses are reserved ahead. It is safe for concurrent use.
type tokenUses struct {
	ctx    context.Context
	client client.Client
	log    *slog.Logger

	mu           sync.Mutex
	waiting      map[string][]*useRequest // by token id; present while a worker runs
	reserved     map[string]reservedUse   // by token id and key
	ahead        map[string]*aheadUses    // by token id
	usesToReturn map[string]int           // by token id: uses that go back to the token
}

// useRequest requests one use.
type useRequest struct {
	token   trust.Token
	name    string
	keyHash string
	// verifySignature verifies that the requester has the key. It runs only once the secret of
	// the token is found to be right.
	verifySignature func() error

	done   chan error // capacity 1
	result handshake.StoredToken
}

// reservedUse is a use that is reserved and not spent. A repeated request for the same
// key, after its Cluster could not be created, takes no second use.
type reservedUse struct {
	token handshake.StoredToken
	until time.Time
}

func newTokenUses(ctx context.Context, c client.Client, log *slog.Logger) *tokenUses {
	return &tokenUses{ctx: ctx, client: c, log: log, waiting: map[string][]*useRequest{}, reserved: map[string]reservedUse{}, ahead: map[string]*aheadUses{}, usesToReturn: map[string]int{}}
}

// reserveUse reserves one use of the request's token. Call dropSpentUse when the Cluster is
// written.
func (d *tokenUses) reserveUse(ctx context.Context, r *useRequest) (handshake.StoredToken, error) {
	r.done = make(chan error, 1)
	token := r.token
	d.mu.Lock()
	if g, ok := d.reserved[token.ID+r.keyHash]; ok && time.Now().Before(g.until) && token.MatchesHash(g.token.Hash) && g.token.AllowsCluster(r.name) {
		d.mu.Unlock()
		return g.token, nil
	}
	if t, ok := d.takePrereservedUse(r); ok {
		d.mu.Unlock()
		return t, nil
	}
	queue, running := d.waiting[token.ID]
	d.waiting[token.ID] = append(queue, r)
	d.mu.Unlock()
	if !running {
		go d.serveTokenRequests(token.ID)
	}
	select {
	case err := <-r.done:
		return r.result, err
	case <-ctx.Done():
		return handshake.StoredToken{}, ctx.Err()
	}
}

// dropSpentUse drops a use that is spent.
func (d *tokenUses) dropSpentUse(token trust.Token, keyHash string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, token.ID+keyHash)
}

// serveTokenRequests serves requests for one token, and returns uses to the token, until
// nothing is left to do. It is the only writer of the token in this process, so that its
// writes do not conflict with each other.
func (d *tokenUses) serveTokenRequests(id string) {
	for {
		b, ok := d.nextCharge(id)
		if !ok {
			return
		}
		granted, refused, more, err := d.chargeToken(id, b)
		d.recordGranted(id, granted, more)
		for _, r := range granted {
			r.done <- nil
		}
		for r, reason := range refused {
			r.done <- fmt.Errorf("%w: %w", errTokenRefused, reason)
		}
		if err != nil {
			if b.returned > 0 {
				d.log.Warn("uses of a join token that were reserved ahead are lost", "token", id, "uses", b.returned, "err", err)
			}
			for _, r := range b.requests {
				select {
				case r.done <- err:
				default: // answered already
				}
			}
		}
	}
}

// nextCharge takes the requests that wait for uses of a token, except those that reserved uses
// serve. ok is false, and the worker of the token ends, when nothing is left to do.
func (d *tokenUses) nextCharge(id string) (b tokenCharge, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	batch := slices.DeleteFunc(d.waiting[id], func(r *useRequest) bool {
		t, ok := d.takePrereservedUse(r)
		if ok {
			r.result = t
			r.done <- nil
		}
		return ok
	})
	b = tokenCharge{requests: batch, returned: d.usesToReturn[id], wantedAhead: d.estimateFurtherUses(id)}
	delete(d.usesToReturn, id)
	if len(batch) == 0 && b.returned == 0 {
		delete(d.waiting, id)
		return b, false
	}
	d.waiting[id] = nil
	return b, true
}

// recordGranted records the uses that were granted, and those that were reserved ahead with them.
func (d *tokenUses) recordGranted(id string, granted []*useRequest, ahead int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if len(granted) > 0 {
		d.addPrereservedUses(id, granted[0].result, len(granted), ahead)
	}
	maps.DeleteFunc(d.reserved, func(_ string, g reservedUse) bool { return now.After(g.until) })
	for _, r := range granted {
		d.reserved[id+r.keyHash] = reservedUse{r.result, now.Add(reservedUseLifetime)}
	}
}

// tokenCharge is one write of a token: a use for each request, up to wantedAhead further
// uses, and uses that go back to the token.
type tokenCharge struct {
	requests              []*useRequest
	returned, wantedAhead int
}

// refuseAll returns the reason for every request.
func (b tokenCharge) refuseAll(reason error) map[*useRequest]error {
	refused := map[*useRequest]error{}
	for _, r := range b.requests {
		refused[r] = reason
	}
	return refused
}

// grantUses divides the uses of a token, with those that go back to it, between the requests. left
// are the uses that remain.
func (b tokenCharge) grantUses(stored handshake.StoredToken) (granted []*useRequest, refused map[*useRequest]error, left int) {
	refused, left = map[*useRequest]error{}, stored.UsesLeft+b.returned
	for _, r := range b.requests {
		if why := checkToken(stored, left, r, time.Now()); why != nil {
			refused[r] = why
			continue
		}
		left--
		r.result = stored
		granted = append(granted, r)
	}
	return granted, refused, left
}

// chargeToken takes as many uses as are left and needed in one write, and returns how many
// of them it took ahead. Uses that would go back to a deleted token are dropped.
func (d *tokenUses) chargeToken(id string, b tokenCharge) (granted []*useRequest, refused map[*useRequest]error, ahead int, err error) {
	for {
		var secret corev1.Secret
		err := d.client.Get(d.ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: handshake.TokenSecretName(id)}, &secret)
		if apierrors.IsNotFound(err) {
			return nil, b.refuseAll(errors.New("there is no such token; it was deleted, or never made on this hub. Make one with: atoll token create")), 0, nil
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("read join token %s: %w", id, err)
		}
		stored, err := handshake.ParseTokenSecret(&secret)
		if err != nil {
			return nil, b.refuseAll(err), 0, nil
		}
		var left int
		if granted, refused, left = b.grantUses(stored); len(granted) == 0 && b.returned == 0 {
			return nil, refused, 0, nil
		}
		if ahead = 0; len(granted) > 0 {
			ahead = countPrereservable(left, b.wantedAhead)
		}
		handshake.SetRemainingUses(&secret, left-ahead)
		err = d.client.Update(d.ctx, &secret)
		if err == nil {
			return granted, refused, ahead, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, refused, 0, fmt.Errorf("reserve uses of join token %s: %w", id, err)
		}
	}
}

// checkToken returns why a token does not allow the request.
func checkToken(t handshake.StoredToken, left int, r *useRequest, now time.Time) error {
	switch {
	case !r.token.MatchesHash(t.Hash):
		return errors.New("its secret is wrong; the token was mistyped, or is being guessed")
	case now.After(t.Expires):
		return fmt.Errorf("it expired at %s. Make another with: atoll token create", t.Expires.Format(time.RFC3339))
	case left <= 0:
		return errors.New("all its uses are spent; the token was meant for fewer clusters, or has leaked. Make another with: atoll token create")
	case !t.AllowsCluster(r.name):
		return fmt.Errorf("it allows names like %q only, and the cluster requests %q", t.Pattern, r.name)
	}
	return r.verifySignature()
}
