package live

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
)

const (
	// identityBytes is the memory of an object whose controller is known, and shownBytes the memory of the UID
	// of an object.
	identityBytes = 512
	shownBytes    = 64
	// objectFactor is the memory of a decoded object, in multiples of its encoded size.
	objectFactor = 3
	// watchMemoryPause is after how many seconds a refused watch may be tried again.
	watchMemoryPause = 10
)

// errWatchMemory refuses or ends the largest watch.
var errWatchMemory = func() error {
	err := apierrors.NewTooManyRequests("the cluster's agent has no more memory for watches of what is placed, and this watch is the largest one: watch one namespace or fewer objects, or raise the memory limit of the agent's pod", watchMemoryPause)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(atoll.ReasonAgentMemoryFull)})
	return err
}()

// watchMemory is what all watches may keep. The largest watch ends when that is exceeded.
type watchMemory struct {
	most int

	mu     sync.Mutex
	used   int
	shares map[*watchMemoryShare]bool
}

// watchMemoryShare is what one watch keeps.
type watchMemoryShare struct {
	of    *watchMemory
	bytes int
	end   context.CancelCauseFunc
}

// beginShare returns the share of a new watch. end is called when the watch is to end.
func (m *watchMemory) beginShare(end context.CancelCauseFunc) *watchMemoryShare {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &watchMemoryShare{of: m, end: end}
	m.shares[s] = true
	return s
}

// resizeShare counts what the watch keeps now. The error is errWatchMemory when the watch is to end.
func (s *watchMemoryShare) resizeShare(bytes int) error {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.shares[s] {
		return errWatchMemory
	}
	m.used += bytes - s.bytes
	s.bytes = bytes
	for m.used > m.most {
		largest := s
		for other := range m.shares {
			if other.bytes > largest.bytes {
				largest = other
			}
		}
		m.remove(largest)
		largest.end(errWatchMemory)
		if largest == s {
			return errWatchMemory
		}
	}
	return nil
}

// release gives the share back.
func (s *watchMemoryShare) release() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.remove(s)
}

// remove removes a share, unless it was removed before. The caller holds mu.
func (m *watchMemory) remove(s *watchMemoryShare) {
	if m.shares[s] {
		m.used -= s.bytes
		delete(m.shares, s)
	}
}

// estimateObjectBytes returns about how much memory an object takes.
func estimateObjectBytes(obj runtime.Object) int {
	if sized, ok := obj.(interface{ Size() int }); ok {
		return objectFactor * sized.Size()
	}
	return identityBytes
}
