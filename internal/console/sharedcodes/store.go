// Package sharedcodes keeps the one-time codes of the console in etcd, so that each hub of an etcd takes the codes of all.
//
// Contract: a code is taken once, by one hub. The caller seals what is stored, and etcd deletes it at the end of its life. One
// request writes once. All methods are safe for concurrent use.
package sharedcodes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// prefix of the keys lies outside of the prefix that the API server uses.
	prefix = "/atoll.dev/console-codes/"
	// requestTime bounds a request to etcd.
	requestTime = 5 * time.Second
)

var errStarting = errors.New("the hub is starting up")

// Store keeps codes in etcd. It refuses each request until SetClient was called.
type Store struct {
	client atomic.Pointer[clientv3.Client]
}

// SetClient sets the client of the etcd.
func (s *Store) SetClient(c *clientv3.Client) { s.client.Store(c) }

// PutCode stores what a code stands for under the hash of the code.
func (s *Store) PutCode(ctx context.Context, hash, sealed string, lifetime time.Duration) error {
	c := s.client.Load()
	if c == nil {
		return errStarting
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	// A lease has whole seconds. The caller's own end is within what is sealed.
	lease, err := c.Grant(ctx, int64((lifetime+time.Second-1)/time.Second))
	if err != nil {
		return fmt.Errorf("make the lease of a code: %w", err)
	}
	if _, err := c.Put(ctx, prefix+hash, sealed, clientv3.WithLease(lease.ID)); err != nil {
		return fmt.Errorf("store a code: %w", err)
	}
	return nil
}

// TakeCode returns what a code stands for and deletes it; "": it is unknown, used or over. One of several callers
// at the same time gets it.
func (s *Store) TakeCode(ctx context.Context, hash string) (sealed string, err error) {
	c := s.client.Load()
	if c == nil {
		return "", errStarting
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	answer, err := c.Delete(ctx, prefix+hash, clientv3.WithPrevKV())
	if err != nil {
		return "", fmt.Errorf("take a code: %w", err)
	}
	if len(answer.PrevKvs) == 0 {
		return "", nil
	}
	return string(answer.PrevKvs[0].Value), nil
}
