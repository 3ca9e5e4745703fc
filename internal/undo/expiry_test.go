package undo

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/undo/history"
)

// runKeeper runs the expiry until the test ends.
func runKeeper(t *testing.T, k *Keeper) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.runExpiry(ctx, k.currentHub())
	}()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
}

// deleteObject deletes a ConfigMap as a user.
func deleteObject(t *testing.T, k *Keeper, name, version string) {
	t.Helper()
	k.sendRequest(t, testWrite{user: "ann", verb: "delete", before: newObject("ConfigMap", name, version, map[string]any{"a": "1"})})
}

func TestChangesExpireEachAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		deleteObject(t, k, "first", "10")
		time.Sleep(time.Hour)
		deleteObject(t, k, "second", "20")
		time.Sleep(23*time.Hour - time.Second)
		if synctest.Wait(); hub.countSecrets() != 2 {
			t.Fatalf("%d changes are kept within the window", hub.countSecrets())
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); hub.countSecrets() != 1 || k.lastChange(keyOfConf) != nil {
			t.Fatalf("%d changes are kept after the window of the first", hub.countSecrets())
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); hub.countSecrets() != 0 {
			t.Errorf("%d changes are kept after their windows", hub.countSecrets())
		}
	})
}

func TestAWindowOfZeroDropsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		deleteObject(t, k, "conf", "10")
		hub.setWindow(0)
		if synctest.Wait(); hub.countSecrets() != 0 || k.lastChange(keyOfConf) != nil {
			t.Errorf("%d changes are kept", hub.countSecrets())
		}
		deleteObject(t, k, "conf", "20")
		if synctest.Wait(); hub.countSecrets() != 0 {
			t.Error("a change is kept without a window")
		}
		hub.setWindow(time.Hour)
		deleteObject(t, k, "conf", "30")
		if synctest.Wait(); hub.countSecrets() != 1 {
			t.Error("a change is not kept with a window again")
		}
	})
}

// A Secret that cannot be deleted is tried again, less and less often, and holds up no other.
func TestAStuckSecretHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		deleteObject(t, k, "conf", "10")
		stuck := k.lastChange(keyOfConf).ID
		hub.stuck[stuck] = true
		time.Sleep(time.Second)
		deleteObject(t, k, "second", "20")
		time.Sleep(24 * time.Hour)
		if synctest.Wait(); hub.countSecrets() != 1 || hub.secrets[stuck] == nil {
			t.Fatalf("%d Secrets are left", hub.countSecrets())
		}
		hub.mu.Lock()
		delete(hub.stuck, stuck)
		hub.mu.Unlock()
		time.Sleep(maxPause)
		if synctest.Wait(); hub.countSecrets() != 0 {
			t.Error("the Secret is never deleted")
		}
	})
}

func TestDisplacedChangesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		for n := range 13 {
			before := newObject("ConfigMap", "conf", fmt.Sprint(10+n), map[string]any{"a": fmt.Sprint(n)})
			k.sendRequest(t, testWrite{user: "ann", before: before, now: changeCopy(before, func(o *unstructured.Unstructured) { o.Object["data"] = "x" })})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if kept := hub.keptChanges(t); len(kept) != history.MaxObjectChanges || kept[0].Revision != "13" {
			t.Errorf("%d changes are kept, the oldest %+v", len(kept), kept[0])
		}
	})
}

// The changes of a namespace go with it, also when another one of its name is there before the hub looks.
func TestAFormerNamespaceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		deleteObject(t, k, "conf", "10")
		hub.setNamespace("shop", "uid-shop")
		if synctest.Wait(); hub.countSecrets() != 1 {
			t.Fatal("a change is forgotten while its namespace is there")
		}
		hub.setNamespace("shop", "uid-new")
		if synctest.Wait(); hub.countSecrets() != 0 {
			t.Error("a change of the former namespace is kept")
		}
	})
}

// The watch adds the changes of other hubs, and deletes Secrets that nothing can be read from.
func TestSecretsThatTheWatchSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, store := newTestKeeper(mayAll)
		deleteObject(t, other, "conf", "10")
		k, hub := newTestKeeper(mayAll)
		runKeeper(t, k)
		broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "undo-broken"}, Data: map[string][]byte{dataChange: []byte("{}")}}
		hub.secrets["undo-broken"] = broken
		if _, err := dropContent(broken); err != nil {
			t.Fatal(err)
		}
		k.secretAdded(broken)
		for _, s := range store.secrets {
			slim, err := dropContent(s.DeepCopy())
			if err != nil || slim.(*corev1.Secret).Data[dataContent] != nil {
				t.Fatalf("the watch keeps %v, %v", slim, err)
			}
			k.secretAdded(slim)
			if c := k.lastChange(keyOfConf); c == nil || c.Bytes < int64(len(s.Data[dataContent])+len(s.Data[dataChange])) {
				t.Errorf("the change of another hub: %+v", c)
			}
			k.secretDeleted(s)
		}
		if synctest.Wait(); k.lastChange(keyOfConf) != nil || hub.countSecrets() != 0 {
			t.Errorf("%d Secrets are left", hub.countSecrets())
		}
	})
}

// A plan counts what a shorter window drops, and an explanation has the latest change.
func TestWhatOthersReadOfKeptChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, hub := newTestKeeper(mayAll)
		deleteObject(t, k, "first", "10")
		time.Sleep(2 * time.Hour)
		deleteObject(t, k, "conf", "20")
		for window, want := range map[time.Duration]int{0: 2, time.Hour: 1, 3 * time.Hour: 0} {
			if got := k.CountDropped(window); got != want {
				t.Errorf("a window of %s drops %d, want %d", window, got, want)
			}
		}
		c, until, ok := k.FindLatest(keyOfConf)
		if !ok || c.By != "ann" || until.Sub(c.At) != 24*time.Hour {
			t.Errorf("%+v until %s, %t", c, until, ok)
		}
		hub.setNamespace("shop", "uid-new")
		if _, _, ok := k.FindLatest(keyOfConf); ok {
			t.Error("a change of the former namespace is found")
		}
	})
}
