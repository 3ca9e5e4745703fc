package bundlestatus

import (
	"fmt"
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A namespace in which much happens keeps no news from another.
func TestNoticesOfNamespacesTakeTurns(t *testing.T) {
	q := newNoticeQueue()
	dropped := 0
	for i := range 2 * mostNotices {
		if !q.put(notice{bundle: &enginev1.BundleRef{Namespace: "loud"}, message: fmt.Sprint(i)}) {
			dropped++
		}
	}
	if !q.put(notice{key: atoll.ItemKey{Kind: "Deployment", Namespace: "quiet", Name: "web"}, reason: atoll.ReasonRemovalHeld}) {
		t.Fatal("the only news of a namespace was dropped")
	}
	if dropped != mostNotices {
		t.Errorf("%d notices dropped, want %d", dropped, mostNotices)
	}
	if n, ok := q.next(t.Context()); !ok || n.queueNamespace() != "loud" || n.message != "0" {
		t.Errorf("first is %+v", n)
	}
	if n, ok := q.next(t.Context()); !ok || n.reason != atoll.ReasonRemovalHeld {
		t.Errorf("second is %+v, want the quiet namespace's", n)
	}
	for i := 1; i < mostNotices; i++ {
		if n, ok := q.takeNotice(); !ok || n.message != fmt.Sprint(i) {
			t.Fatalf("notice %d is %+v", i, n)
		}
	}
	if n, ok := q.takeNotice(); ok {
		t.Errorf("one too many: %+v", n)
	}
}
