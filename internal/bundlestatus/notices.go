package bundlestatus

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/wakeup"
)

// notice is an Event that is to be written.
type notice struct {
	about   *corev1.ObjectReference // or else the bundle, or else the template
	bundle  *enginev1.BundleRef
	key     atoll.ItemKey
	reason  atoll.Reason
	message string
	// isNormal: nothing is wrong.
	isNormal bool
}

func (n notice) queueNamespace() string {
	switch {
	case n.about != nil:
		return n.about.Namespace
	case n.bundle != nil:
		return n.bundle.Namespace
	}
	return n.key.Namespace
}

// mostNotices of one namespace may wait to be written.
const mostNotices = 1000

// noticeQueue wait by namespace, and are taken one of each namespace in turn.
type noticeQueue struct {
	mu        sync.Mutex
	waiting   map[string][]notice
	turns     []string      // namespaces that have any, whose turn it is first
	available chan struct{} // capacity 1: there is one to take
}

func newNoticeQueue() noticeQueue {
	return noticeQueue{waiting: map[string][]notice{}, available: make(chan struct{}, 1)}
}

// put puts a notice in line; false where its namespace has too many.
func (q *noticeQueue) put(n notice) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ns := n.queueNamespace()
	line := q.waiting[ns]
	if len(line) >= mostNotices {
		return false
	}
	if len(line) == 0 {
		q.turns = append(q.turns, ns)
	}
	q.waiting[ns] = append(line, n)
	wakeup.WakeReader(q.available)
	return true
}

// next returns the next notice; false once ctx has ended.
func (q *noticeQueue) next(ctx context.Context) (notice, bool) {
	for ctx.Err() == nil {
		if n, ok := q.takeNotice(); ok {
			return n, true
		}
		select {
		case <-ctx.Done():
		case <-q.available:
		}
	}
	return notice{}, false
}

func (q *noticeQueue) takeNotice() (notice, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return notice{}, false
	}
	ns := q.turns[0]
	q.turns = q.turns[1:]
	n := q.waiting[ns][0]
	if rest := q.waiting[ns][1:]; len(rest) > 0 {
		q.waiting[ns] = rest
		q.turns = append(q.turns, ns)
	} else {
		delete(q.waiting, ns)
	}
	return n, true
}
