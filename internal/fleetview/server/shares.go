package server

import (
	"context"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// shares are the requests of members under way in the hub's own name, by the user that they are
// for. One user may have as many at one cluster as in the own name, so that one user's watches do
// not take all of an agent. The zero value has none to give.
type shares struct {
	maxPerUser int // of one user at one cluster
	mu         sync.Mutex
	usedShares map[share]int
}

type share struct{ user, cluster string }

// takeShare takes one for the user, until the returned function is called, once.
func (s *shares) takeShare(ctx context.Context, cluster string) (left func(), err error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	of := share{u.GetName(), cluster}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usedShares[of] >= s.maxPerUser {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: you have as many lists, watches and logs of it under way as one user may; end some of them", cluster), 1)
	}
	if s.usedShares == nil {
		s.usedShares = map[share]int{}
	}
	s.usedShares[of]++
	return func() { s.returnShare(of) }, nil
}

func (s *shares) returnShare(of share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usedShares[of]--; s.usedShares[of] == 0 {
		delete(s.usedShares, of)
	}
}

// shared is the body of an answer, which leaves a share when it is closed.
type shared struct {
	io.ReadCloser
	left func()
}

// WriteTo passes all on, as the body itself does best.
func (s shared) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, s.ReadCloser) }

// Close closes the shared connection.
func (s shared) Close() error {
	defer s.left()
	return s.ReadCloser.Close()
}
