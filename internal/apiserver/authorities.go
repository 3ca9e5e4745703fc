package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/pause"
)

const (
	// authoritiesKey holds the CAs that a rotation made, sealed; without it those of the
	// key set count. It lies outside of the prefix that the API server uses.
	authoritiesKey = "/atoll.dev/authorities"
	// authoritiesAgain is how soon it is tried again to follow them.
	authoritiesAgain = 2 * time.Second
)

// authorities in force, and the functions that a change calls.
type authorities struct {
	now atomic.Pointer[keys.Authorities]

	mu       sync.Mutex // also keeps certificates from being written twice at a time
	renewed  []func()
	revision int64 // of the etcd at which they were read
}

// CurrentAuthorities returns the authorities by which this hub, its users and its agents identify each other now.
func (s *Server) CurrentAuthorities() *keys.Authorities { return s.authorities.now.Load() }

// OnAuthorityChangeOrRenewal calls fn, which must not block, when the authorities have changed, and
// when it is time to renew what they signed for the hub itself.
func (s *Server) OnAuthorityChangeOrRenewal(fn func()) {
	s.authorities.mu.Lock()
	defer s.authorities.mu.Unlock()
	s.authorities.renewed = append(s.authorities.renewed, fn)
}

// RotateAuthorities begins a rotation of the hub's CAs, for all hubs of this etcd.
func (s *Server) RotateAuthorities(ctx context.Context) (*keys.Authorities, error) {
	return s.changeAuthorities(ctx, func(a *keys.Authorities) (*keys.Authorities, error) { return a.BeginRotation(time.Now()) })
}

// FinishRotation ends the trust in the former CAs, for all hubs of this etcd.
func (s *Server) FinishRotation(ctx context.Context) (*keys.Authorities, error) {
	return s.changeAuthorities(ctx, (*keys.Authorities).FinishRotation)
}

func (s *Server) changeAuthorities(ctx context.Context, change func(*keys.Authorities) (*keys.Authorities, error)) (*keys.Authorities, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now, version, _, err := s.store.readAuthorities(ctx, s.keys)
	if err != nil {
		return nil, err
	}
	next, err := change(now)
	if err != nil {
		return nil, err
	}
	sealed, err := s.keys.SealAuthorities(next)
	if err != nil {
		return nil, err
	}
	resp, err := s.store.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(authoritiesKey), "=", version)).
		Then(clientv3.OpPut(authoritiesKey, string(sealed))).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("write the hub's CAs to etcd at %v: %w", s.store.endpoints, err)
	}
	if !resp.Succeeded {
		return nil, errors.New("the hub's CAs were changed by another request at the same time: see atoll ca status")
	}
	return next, s.applyNewerAuthorities(next)
}

// readAuthorities reads the authorities as the etcd has them, the version of the key, and the revision of the etcd.
func (s *store) readAuthorities(ctx context.Context, set *keys.KeySet) (a *keys.Authorities, version, revision int64, err error) {
	resp, err := s.client.Get(ctx, authoritiesKey)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read the hub's CAs from etcd at %v: %w", s.endpoints, err)
	}
	if len(resp.Kvs) == 0 {
		return set.FileAuthorities(), 0, resp.Header.Revision, nil
	}
	if a, err = set.UnsealAuthorities(resp.Kvs[0].Value); err != nil {
		return nil, 0, 0, err
	}
	return a, resp.Kvs[0].ModRevision, resp.Header.Revision, nil
}

// loadAuthorities loads the authorities before anything is signed.
func (s *Server) loadAuthorities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	a, _, revision, err := s.store.readAuthorities(ctx, s.keys)
	if err != nil {
		return err
	}
	s.authorities.revision = revision
	s.authorities.now.Store(a)
	return nil
}

// applyNewerAuthorities takes authorities that are newer than those that count here.
func (s *Server) applyNewerAuthorities(a *keys.Authorities) error {
	s.authorities.mu.Lock()
	defer s.authorities.mu.Unlock()
	if a.TrustEdition() <= s.CurrentAuthorities().TrustEdition() {
		return nil
	}
	s.authorities.now.Store(a)
	s.options.Logger.Info("the hub's CAs have changed", "generation", a.Generation, "rotating", a.IsRotating())
	return s.renewServingCertificates(time.Now())
}

// renewServingCertificates writes the hub's certificates again and calls the registered functions. The caller
// holds the lock.
func (s *Server) renewServingCertificates(now time.Time) error {
	err := s.writeCertificates(now)
	for _, fn := range s.authorities.renewed {
		fn()
	}
	return err
}

// followAuthorities follows authorities that other hubs of the etcd change, until ctx ends.
func (s *Server) followAuthorities(ctx context.Context) {
	told := ""
	for ctx.Err() == nil {
		err := s.watchAuthorities(ctx)
		if ctx.Err() != nil {
			return
		}
		if told != err.Error() {
			told = err.Error()
			s.options.Logger.Warn("cannot follow the hub's CAs; trying on", "err", err)
		}
		pause.WaitFor(ctx, authoritiesAgain)
	}
}

// watchAuthorities watches until the watch ends, and returns why.
func (s *Server) watchAuthorities(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range s.store.client.Watch(clientv3.WithRequireLeader(ctx), authoritiesKey, clientv3.WithRev(s.authorities.revision+1)) {
		if r.CompactRevision == 0 && r.Err() != nil {
			return fmt.Errorf("watch the hub's CAs: %w", r.Err())
		}
		a, _, revision, err := s.store.readAuthorities(ctx, s.keys)
		if err != nil {
			return err
		}
		s.authorities.revision = revision
		if err := s.applyNewerAuthorities(a); err != nil {
			return err
		}
	}
	return errors.New("watch the hub's CAs: it ended")
}
