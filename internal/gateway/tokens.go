package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// grantLife is how long a use that was reserved waits for its Cluster to be made.
const grantLife = 10 * time.Minute

// errToken wraps every reason for which a token is refused. The reasons are for the
// hub's log; whoever shows a token learns only that it is refused.
var errToken = errors.New("the join token is refused")

// tokenDesk reserves uses of join tokens. Requests for one token that come at the
// same time are one write, and where many come, some uses are reserved ahead. It is
// safe for concurrent use.
type tokenDesk struct {
	ctx    context.Context
	client client.Client
	log    *slog.Logger

	mu      sync.Mutex
	waiting map[string][]*reservation // by token id; present while a worker runs
	granted map[string]grant          // by token id and key
	ahead   map[string]*allotment     // by token id
	owed    map[string]int            // uses that go back to the token of that id
}

// reservation of one use.
type reservation struct {
	token   trust.Token
	name    string
	keyHash string
	done    chan error // capacity 1
	result  handshake.StoredToken
}

// grant is a use that was reserved and not spent yet: who asks again for the same
// key, since making the Cluster failed, is not charged twice.
type grant struct {
	token handshake.StoredToken
	until time.Time
}

func newTokenDesk(ctx context.Context, c client.Client, log *slog.Logger) *tokenDesk {
	return &tokenDesk{ctx: ctx, client: c, log: log, waiting: map[string][]*reservation{}, granted: map[string]grant{}, ahead: map[string]*allotment{}, owed: map[string]int{}}
}

// reserve one use of the token for a cluster of that name with that key. Call
// spend once the use has led to something.
func (d *tokenDesk) reserve(ctx context.Context, token trust.Token, name, keyHash string) (handshake.StoredToken, error) {
	r := &reservation{token: token, name: name, keyHash: keyHash, done: make(chan error, 1)}
	d.mu.Lock()
	if g, ok := d.granted[token.ID+keyHash]; ok && time.Now().Before(g.until) && token.Matches(g.token.Hash) && g.token.Allows(name) {
		d.mu.Unlock()
		return g.token, nil
	}
	if t, ok := d.fromAhead(r); ok {
		d.mu.Unlock()
		return t, nil
	}
	queue, running := d.waiting[token.ID]
	d.waiting[token.ID] = append(queue, r)
	d.mu.Unlock()
	if !running {
		go d.work(token.ID)
	}
	select {
	case err := <-r.done:
		return r.result, err
	case <-ctx.Done():
		return handshake.StoredToken{}, ctx.Err()
	}
}

// spend forgets the grant.
func (d *tokenDesk) spend(token trust.Token, keyHash string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.granted, token.ID+keyHash)
}

// work serves reservations of one token, and gives back what is owed to it, until there
// is nothing to do. It alone writes the token, so that the desk does not conflict with
// itself.
func (d *tokenDesk) work(id string) {
	for {
		d.mu.Lock()
		batch := slices.DeleteFunc(d.waiting[id], func(r *reservation) bool {
			t, ok := d.fromAhead(r)
			if ok {
				r.result = t
				r.done <- nil
			}
			return ok
		})
		b := bill{batch: batch, back: d.owed[id], more: d.demand(id)}
		delete(d.owed, id)
		if len(batch) == 0 && b.back == 0 {
			delete(d.waiting, id)
			d.mu.Unlock()
			return
		}
		d.waiting[id] = nil
		d.mu.Unlock()
		granted, refused, more, err := d.charge(id, b)
		d.mu.Lock()
		now := time.Now()
		if len(granted) > 0 {
			d.allot(id, granted[0].result, len(granted), more)
		}
		for key, g := range d.granted {
			if now.After(g.until) {
				delete(d.granted, key)
			}
		}
		for _, r := range granted {
			d.granted[id+r.keyHash] = grant{r.result, now.Add(grantLife)}
		}
		d.mu.Unlock()
		for _, r := range granted {
			r.done <- nil
		}
		for r, reason := range refused {
			r.done <- fmt.Errorf("%w: %w", errToken, reason)
		}
		if err != nil {
			if b.back > 0 {
				d.log.Warn("uses of a join token that were reserved ahead are lost", "token", id, "uses", b.back, "err", err)
			}
			for _, r := range batch {
				select {
				case r.done <- err:
				default: // refused already
				}
			}
		}
	}
}

// bill is what is wanted of a token: a use for each of the batch, and up to more of them
// ahead; back is what it gets.
type bill struct {
	batch      []*reservation
	back, more int
}

// charge takes as many uses as are left and wanted, in one write, and gives how many of
// them it took ahead. What a token that is gone was to get back is gone with it.
func (d *tokenDesk) charge(id string, b bill) (granted []*reservation, refused map[*reservation]error, ahead int, err error) {
	for {
		refused, granted = map[*reservation]error{}, nil
		var secret corev1.Secret
		err := d.client.Get(d.ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: handshake.TokenSecretName(id)}, &secret)
		if apierrors.IsNotFound(err) {
			for _, r := range b.batch {
				refused[r] = errors.New("there is no such token; it was deleted, or never made on this hub. Make one with: atoll token create")
			}
			return nil, refused, 0, nil
		}
		if err != nil {
			return nil, refused, 0, fmt.Errorf("read join token %s: %w", id, err)
		}
		stored, err := handshake.ParseTokenSecret(&secret)
		left := stored.UsesLeft + b.back
		for _, r := range b.batch {
			if err != nil {
				refused[r] = err
			} else if why := check(stored, left, r, time.Now()); why != nil {
				refused[r] = why
			} else {
				left--
				r.result = stored
				granted = append(granted, r)
			}
		}
		if err != nil || len(granted) == 0 && b.back == 0 {
			return nil, refused, 0, nil
		}
		if ahead = 0; len(granted) > 0 {
			ahead = aheadOf(left, b.more)
		}
		handshake.SetUses(&secret, left-ahead)
		err = d.client.Update(d.ctx, &secret)
		if err == nil {
			return granted, refused, ahead, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, refused, 0, fmt.Errorf("reserve uses of join token %s: %w", id, err)
		}
	}
}

// check says why a token does not allow what is asked.
func check(t handshake.StoredToken, left int, r *reservation, now time.Time) error {
	switch {
	case !r.token.Matches(t.Hash):
		return errors.New("its secret is wrong; somebody guesses, or the token was mistyped")
	case now.After(t.Expires):
		return fmt.Errorf("it expired at %s. Make another with: atoll token create", t.Expires.Format(time.RFC3339))
	case left <= 0:
		return errors.New("all its uses are spent; it was meant for fewer clusters, or has leaked. Make another with: atoll token create")
	case !t.Allows(r.name):
		return fmt.Errorf("it allows names like %q only, and the cluster asks for %q", t.Pattern, r.name)
	}
	return nil
}
