package scenario

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// A change during a slow check causes one more check: the last change is always seen.
func TestTheLastChangeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bundleWatch{byKey: map[string]observedBundle{}, changed: make(chan struct{})}
		change := func(name string) {
			b.recordBundle(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
		}
		change("web")
		result := make(chan error, 1)
		asked := 0
		go func() {
			result <- b.waitUntil(context.Background(), "three are there", time.Hour, func(by map[string]observedBundle) bool {
				asked++
				time.Sleep(100 * time.Millisecond)
				return len(by) == 3
			})
		}()
		time.Sleep(200 * time.Millisecond)
		for _, name := range []string{"api", "db"} {
			change(name)
		}
		began := time.Now()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if asked != 2 {
			t.Errorf("checked %d times, want 2: there is no check while it rests", asked)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("returned after %s", took)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bundleWatch{byKey: map[string]observedBundle{}, changed: make(chan struct{})}
		err := b.waitUntil(t.Context(), "web becomes ready", time.Minute, func(map[string]observedBundle) bool { return false })
		if want := "web becomes ready: not within 1m0s"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
