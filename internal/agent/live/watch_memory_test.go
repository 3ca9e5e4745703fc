package live

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/atoll"
)

// The largest watch ends when all keep too much, and not the one that grows.
func TestTheLargestWatchEnds(t *testing.T) {
	m := &watchMemory{most: 100, shares: map[*watchMemoryShare]bool{}}
	begin := func() (*watchMemoryShare, context.Context) {
		ctx, end := context.WithCancelCause(t.Context())
		return m.beginShare(end), ctx
	}
	isEnded := func(ctx context.Context) bool { return errors.Is(watchEndError(ctx, errEnded), errWatchMemory) }
	large, largeCtx := begin()
	small, smallCtx := begin()
	if err := errors.Join(large.resizeShare(70), small.resizeShare(30), large.resizeShare(60), large.resizeShare(70)); err != nil {
		t.Fatalf("watches within the bound: %v", err)
	}
	newest, newestCtx := begin()
	if err := newest.resizeShare(71); !errors.Is(err, errWatchMemory) || !isEnded(newestCtx) || isEnded(largeCtx) {
		t.Errorf("the newest watch, which is the largest, goes on: %v", err)
	}
	if err := newest.resizeShare(1); !errors.Is(err, errWatchMemory) {
		t.Errorf("a watch that ended counts again: %v", err)
	}
	if err := small.resizeShare(31); err != nil || isEnded(smallCtx) || !isEnded(largeCtx) {
		t.Errorf("the largest watch goes on while a small one grows: %v", err)
	}
	large.release()
	newest.release()
	if m.used != 31 || len(m.shares) != 1 {
		t.Errorf("%d bytes of %d watches are counted", m.used, len(m.shares))
	}
	if small.release(); m.used != 0 {
		t.Errorf("%d bytes are counted of no watch", m.used)
	}
}

// Objects that wait count with their size, until they wait no more.
func TestWaitingObjectsCount(t *testing.T) {
	m := &watchMemory{most: 1 << 20, shares: map[*watchMemoryShare]bool{}}
	v := &placedObjectWatch{waiting: map[types.UID]pendingObject{}, who: &ownershipResolver{}, share: m.beginShare(func(error) {})}
	large := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", 1000)}}}
	v.keepUntilOwnerRecorded("a", pendingObject{obj: large})
	if err := v.countMemory(); err != nil || m.used < 3000 || m.used > 4000 {
		t.Errorf("%d bytes are counted, %v", m.used, err)
	}
	v.dropPendingObject("a")
	v.dropPendingObject("a")
	if err := v.countMemory(); err != nil || m.used != 0 {
		t.Errorf("%d bytes are counted, %v", m.used, err)
	}
}

// A watch for which there is no memory is refused, and the others go on.
func TestAWatchWithoutMemoryIsRefused(t *testing.T) {
	w, crowd := newWorld(t, "live-memory"), newWorld(t, "live-memory-crowd")
	crowd.createDeployment("many")
	crowd.scaleDeployment("many", 40)
	crowd.waitForPods("many", 40)
	w.book.set(w.createDeployment("web"))
	w.waitForPods("web", 2)
	_, version := w.list("/api/v1/namespaces/" + w.ns + "/pods")
	next := w.watchEvents("/api/v1/namespaces/"+w.ns+"/pods", version)
	w.watches.mu.Lock()
	w.watches.most = w.watches.used + 20*identityBytes
	w.watches.mu.Unlock()
	code, header, body := w.sendRequest(http.MethodGet, "/api/v1/pods?watch=1&resourceVersion="+version)
	if code != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(string(body), string(atoll.ReasonAgentMemoryFull)) {
		t.Fatalf("a watch over the bound: %d %s", code, body)
	}
	w.scaleDeployment("web", 3)
	for seen := watch.Bookmark; seen != watch.Added; {
		var err error
		if seen, _, err = next(); err != nil {
			t.Fatalf("the other watch ends: %v", err)
		}
	}
}
