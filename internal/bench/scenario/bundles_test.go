package scenario

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// What changes while nobody asks, since asking takes long, is asked about once more: the
// last change of all is not waited for in vain.
func TestTheLastChangeIsAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bundles{by: map[string]seen{}, changed: make(chan struct{})}
		change := func(name string) {
			b.set(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
		}
		change("web")
		result := make(chan error, 1)
		asked := 0
		go func() {
			result <- b.await(context.Background(), "three are there", time.Hour, func(by map[string]seen) bool {
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
			t.Errorf("asked %d times, want 2: nobody asks while it rests", asked)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("told after %s", took)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bundles{by: map[string]seen{}, changed: make(chan struct{})}
		err := b.await(t.Context(), "web becomes ready", time.Minute, func(map[string]seen) bool { return false })
		if want := "web becomes ready: not within 1m0s"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
