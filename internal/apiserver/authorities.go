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
)

const (
	// authoritiesKey holds the CAs that a rotation made, sealed; without it those of the
	// key set count. It lies outside of the prefix that the API server uses.
	authoritiesKey = "/atoll.dev/authorities"
	// authoritiesAgain is how soon it is tried again to follow them.
	authoritiesAgain = 2 * time.Second
)

// authorities that count now, and who wants to know of others.
type authorities struct {
	now atomic.Pointer[keys.Authorities]

	mu       sync.Mutex // also keeps certificates from being written twice at a time
	renewed  []func()
	revision int64 // of the etcd at which they were read
}

// Authorities by which this hub, its users and its agents know each other now.
func (s *Server) Authorities() *keys.Authorities { return s.authorities.now.Load() }

// OnCertificates calls fn, which must not block, when the authorities have changed, and
// when it is time to renew what they signed for the hub itself.
func (s *Server) OnCertificates(fn func()) {
	s.authorities.mu.Lock()
	defer s.authorities.mu.Unlock()
	s.authorities.renewed = append(s.authorities.renewed, fn)
}

// Rotate begins a rotation of the hub's CAs, for all hubs of this etcd.
func (s *Server) Rotate(ctx context.Context) (*keys.Authorities, error) {
	return s.changeAuthorities(ctx, func(a *keys.Authorities) (*keys.Authorities, error) { return a.Rotate(time.Now()) })
}

// FinishRotation ends the trust in the former CAs, for all hubs of this etcd.
func (s *Server) FinishRotation(ctx context.Context) (*keys.Authorities, error) {
	return s.changeAuthorities(ctx, (*keys.Authorities).Finish)
}

func (s *Server) changeAuthorities(ctx context.Context, change func(*keys.Authorities) (*keys.Authorities, error)) (*keys.Authorities, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now, version, _, err := s.store.authorities(ctx, s.keys)
	if err != nil {
		return nil, err
	}
	next, err := change(now)
	if err != nil {
		return nil, err
	}
	sealed, err := s.keys.Seal(next)
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
		return nil, errors.New("somebody else has changed the hub's CAs at the same time: see atoll ca status")
	}
	return next, s.takeAuthorities(next)
}

// authorities as the etcd has them, the version of the key, and the revision of the etcd.
func (s *store) authorities(ctx context.Context, set *keys.Set) (a *keys.Authorities, version, revision int64, err error) {
	resp, err := s.client.Get(ctx, authoritiesKey)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read the hub's CAs from etcd at %v: %w", s.endpoints, err)
	}
	if len(resp.Kvs) == 0 {
		return set.Authorities(), 0, resp.Header.Revision, nil
	}
	if a, err = set.Open(resp.Kvs[0].Value); err != nil {
		return nil, 0, 0, err
	}
	return a, resp.Kvs[0].ModRevision, resp.Header.Revision, nil
}

// loadAuthorities before anything is signed.
func (s *Server) loadAuthorities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	a, _, revision, err := s.store.authorities(ctx, s.keys)
	if err != nil {
		return err
	}
	s.authorities.revision = revision
	s.authorities.now.Store(a)
	return nil
}

// takeAuthorities that are newer than those that count here.
func (s *Server) takeAuthorities(a *keys.Authorities) error {
	s.authorities.mu.Lock()
	defer s.authorities.mu.Unlock()
	if a.Edition() <= s.Authorities().Edition() {
		return nil
	}
	s.authorities.now.Store(a)
	s.options.Logger.Info("the hub's CAs have changed", "generation", a.Generation, "rotating", a.Rotating())
	return s.renewAll(time.Now())
}

// renewAll writes the hub's certificates anew and tells whoever has others of them. The
// caller holds the lock.
func (s *Server) renewAll(now time.Time) error {
	err := s.writeCertificates(now)
	for _, fn := range s.authorities.renewed {
		fn()
	}
	return err
}

// followAuthorities that other hubs of the etcd change, until ctx ends.
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
		select {
		case <-ctx.Done():
		case <-time.After(authoritiesAgain):
		}
	}
}

// watchAuthorities until the watch ends, and tells why.
func (s *Server) watchAuthorities(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range s.store.client.Watch(clientv3.WithRequireLeader(ctx), authoritiesKey, clientv3.WithRev(s.authorities.revision+1)) {
		if r.CompactRevision == 0 && r.Err() != nil {
			return fmt.Errorf("watch the hub's CAs: %w", r.Err())
		}
		a, _, revision, err := s.store.authorities(ctx, s.keys)
		if err != nil {
			return err
		}
		s.authorities.revision = revision
		if err := s.takeAuthorities(a); err != nil {
			return err
		}
	}
	return errors.New("watch the hub's CAs: it ended")
}
