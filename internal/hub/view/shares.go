package view

import (
	"context"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// shares are the requests of members that are under way in the hub's own name, by whom they
// are for: one user may have as many at one cluster as in his own name, so that nobody's
// watches take all of an agent. The zero value has none to give.
type shares struct {
	most  int // of one user at one cluster
	mu    sync.Mutex
	taken map[share]int
}

type share struct{ user, cluster string }

// take one for who asks, until left is called, once.
func (s *shares) take(ctx context.Context, cluster string) (left func(), err error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("nobody asks")
	}
	of := share{u.GetName(), cluster}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[of] >= s.most {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: you have as many lists, watches and logs of it under way as one user may; end some of them", cluster), 1)
	}
	if s.taken == nil {
		s.taken = map[share]int{}
	}
	s.taken[of]++
	return func() { s.leave(of) }, nil
}

func (s *shares) leave(of share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[of]--; s.taken[of] == 0 {
		delete(s.taken, of)
	}
}

// shared is the body of an answer, which leaves a share when it is closed.
type shared struct {
	io.ReadCloser
	left func()
}

// WriteTo passes all on, as the body itself does best.
func (s shared) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, s.ReadCloser) }

// Close it.
func (s shared) Close() error {
	defer s.left()
	return s.ReadCloser.Close()
}
