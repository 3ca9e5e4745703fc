package server

import (
	"context"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// memberRequestLimiter counts the requests of members under way in the hub's own name, by the user that they are
// for. One user may have as many at one cluster as in the own name, so that one user's watches do
// not take all of an agent. The zero value has none to give.
type memberRequestLimiter struct {
	maxPerUser int // of one user at one cluster
	mu         sync.Mutex
	usedShares map[userAtCluster]int
}

type userAtCluster struct{ user, cluster string }

// acquireSlot takes one for the user, until the returned function is called, once.
func (s *memberRequestLimiter) acquireSlot(ctx context.Context, cluster string) (left func(), err error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	of := userAtCluster{u.GetName(), cluster}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usedShares[of] >= s.maxPerUser {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: you have as many lists, watches and logs of it under way as one user may; end some of them", cluster), 1)
	}
	if s.usedShares == nil {
		s.usedShares = map[userAtCluster]int{}
	}
	s.usedShares[of]++
	return func() { s.releaseSlot(of) }, nil
}

func (s *memberRequestLimiter) releaseSlot(of userAtCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usedShares[of]--; s.usedShares[of] == 0 {
		delete(s.usedShares, of)
	}
}

// slotHoldingBody is the body of an answer, which leaves a share when it is closed.
type slotHoldingBody struct {
	io.ReadCloser
	left func()
}

// WriteTo passes all on, as the body itself does best.
func (s slotHoldingBody) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, s.ReadCloser) }

// Close closes the shared connection.
func (s slotHoldingBody) Close() error {
	defer s.left()
	return s.ReadCloser.Close()
}
