package apply

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/testwait"
)

func movedTombstone(it atoll.RenderedItem, to ...string) atoll.Tombstone {
	return atoll.Tombstone{Key: it.Key, UID: it.UID, Cause: atoll.CauseMoved, MovedTo: to}
}

func withTombstones(m atoll.Manifest, t ...atoll.Tombstone) atoll.Manifest {
	m.Tombstones = t
	return m
}

func TestMoveBetweenBundles(t *testing.T) {
	for _, targetFirst := range []bool{true, false} {
		t.Run(map[bool]string{true: "target-first", false: "source-first"}[targetFirst], func(t *testing.T) {
			w := newWorld(t)
			web := w.newItem("t-web", deployment)
			w.storeManifest(newManifest("b1", 1, web))
			w.waitForReady("b1", 1)
			before := w.expectExists(web.Key)
			source := func() { w.storeManifest(withTombstones(newManifest("b1", 2), movedTombstone(web, "b2"))) }
			target := func() { w.storeManifest(newManifest("b2", 1, web)) }
			if targetFirst {
				target()
				w.waitForReady("b2", 1)
				source()
			} else {
				source()
				w.expectHolds("it is kept for the other bundle", 300*time.Millisecond, func() (bool, string) { return w.get(web.Key) != nil, "it is gone" })
				target()
			}
			w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
			w.waitForReady("b2", 1)
			w.waitUntil("it is labelled again", func() (bool, string) {
				return w.expectExists(web.Key).GetLabels()[atoll.LabelBundleUID] == "b2", ""
			})
			after := w.expectExists(web.Key)
			if after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration() {
				t.Fatal("the move touched the object")
			}
			w.storeManifest(remove("b2", 2))
			w.waitForRemoval("b2")
			w.expectAbsent(web.Key)
		})
	}
}

func TestSharedByTwoBundles(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	conf.Dependency = true
	w.storeManifest(newManifest("b1", 1, conf))
	w.storeManifest(newManifest("b2", 1, conf))
	w.waitForReady("b1", 1)
	w.waitForReady("b2", 1)
	uid := w.expectExists(conf.Key).GetUID()
	unused := atoll.Tombstone{Key: conf.Key, UID: conf.UID, Cause: atoll.CauseUnused}
	w.storeManifest(withTombstones(newManifest("b1", 2), unused))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	if w.expectExists(conf.Key).GetUID() != uid {
		t.Fatal("it was created again")
	}
	w.storeManifest(withTombstones(newManifest("b2", 2), unused))
	w.waitForStatus("b2", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	w.expectAbsent(conf.Key)
}

func TestNewTemplateIsANewObject(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-1", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	uid := w.expectExists(conf.Key).GetUID()
	again := w.newItem("t-2", configMap)
	w.storeManifest(withTombstones(newManifest("b1", 2, again), tombstoneOf(conf)))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowReady && len(s.DoneTombstones) == 1 })
	if w.expectExists(conf.Key).GetUID() == uid {
		t.Fatal("it is the old object")
	}
}

const volumeClaim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`

func TestVolumesStayAsDependencies(t *testing.T) {
	w := newWorld(t)
	claim := w.newItem("t-pvc", volumeClaim)
	claim.Dependency = true
	w.storeManifest(newManifest("b1", 1, claim))
	w.expectExists(claim.Key)
	w.storeManifest(withTombstones(newManifest("b1", 2), atoll.Tombstone{Key: claim.Key, UID: claim.UID, Cause: atoll.CauseUnused}))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	left := w.expectExists(claim.Key)
	if left.GetDeletionTimestamp() != nil || left.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Fatalf("%v", left)
	}

	// Another volume of that name is not this one; the same one takes up its data.
	other := w.newItem("t-other", volumeClaim)
	other.Dependency = true
	w.storeManifest(newManifest("b2", 1, other))
	w.waitForReason("b2", atoll.ReasonConflict)
	w.storeManifest(remove("b2", 2))
	w.waitForRemoval("b2")
	w.storeManifest(newManifest("b1", 3, claim))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 3 && s.Applied })
	if live := w.expectExists(claim.Key); live.GetUID() != left.GetUID() || live.GetLabels()[atoll.LabelBundleUID] != "b1" {
		t.Fatalf("%v", live)
	}
	w.storeManifest(remove("b1", 4))
	w.waitForRemoval("b1")
	w.expectExists(claim.Key)
}

func TestFinalizersAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.patchObject(conf.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.storeManifest(withTombstones(newManifest("b1", 2), tombstoneOf(conf)))
	if it := w.waitForReason("b1", atoll.ReasonTerminating); it.Error || it.Message == "" {
		t.Fatalf("%+v", it)
	}
	w.expectHolds("it is not reported gone", 300*time.Millisecond, func() (bool, string) {
		s, _ := w.StatusOf("b1", nil, testNow)
		return len(s.DoneTombstones) == 0, rowcodec.EncodeStatus(s, nil)
	})
	w.patchObject(conf.Key, `{"metadata":{"finalizers":null}}`)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
}

// A finalizer that the hub sent leaves an object that is being deleted once the hub's template lost it.
// Another one holds the object on, and one of the member's stays even if the hub releases it.
func TestReleasedFinalizersLeaveAnObjectThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/sent, example.com/other]}}")
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.patchObject(conf.Key, `{"metadata":{"finalizers":["example.com/sent","example.com/other","example.com/member"]}}`)
	gone := tombstoneOf(conf)
	w.storeManifest(withTombstones(newManifest("b1", 2), gone))
	w.waitForReason("b1", atoll.ReasonTerminating)
	gone.ReleasedFinalizers = []string{"example.com/member", "example.com/sent"}
	w.storeManifest(withTombstones(newManifest("b1", 3), gone))
	testwait.UntilNil(t, "the finalizer that the hub released is gone", func(context.Context) error {
		if live := w.expectExists(conf.Key); !slices.Equal(live.GetFinalizers(), []string{"example.com/other", "example.com/member"}) {
			return fmt.Errorf("finalizers %q", live.GetFinalizers())
		}
		return nil
	})
	gone.ReleasedFinalizers = []string{"example.com/member", "example.com/other", "example.com/sent"}
	w.storeManifest(withTombstones(newManifest("b1", 4), gone))
	testwait.UntilNil(t, "the other one is gone", func(context.Context) error {
		if live := w.expectExists(conf.Key); !slices.Equal(live.GetFinalizers(), []string{"example.com/member"}) {
			return fmt.Errorf("finalizers %q", live.GetFinalizers())
		}
		return nil
	})
	w.patchObject(conf.Key, `{"metadata":{"finalizers":null}}`)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	w.expectAbsent(conf.Key)
}

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "busybox:1"}]}
`

func TestFinishedJobsRunOnce(t *testing.T) {
	w := newWorld(t)
	once := w.newItem("t-job", job)
	w.storeManifest(newManifest("b1", 1, once))
	w.waitForReady("b1", 1)
	w.deleteByHand(once.Key)
	w.expectAbsent(once.Key) // it orphans its pods first
	notAgain := func(what string) {
		t.Helper()
		w.expectHolds(what, time.Second, func() (bool, string) { return w.get(once.Key) == nil, "it runs again" })
		s := w.waitForReady("b1", 1)
		if len(s.Items) != 1 || len(s.Items[0].ReflectedStatus) == 0 {
			t.Fatalf("what became of the job is forgotten: %s", rowcodec.EncodeStatus(s, nil))
		}
	}
	notAgain("it is not made again")
	w.stop()
	w.start()
	notAgain("it is not made again after a restart")

	other := w.newItem("t-job-2", job)
	w.storeManifest(withTombstones(newManifest("b1", 2, other), tombstoneOf(once)))
	w.expectExists(once.Key)
	w.waitForReady("b1", 2)
}

func TestJobDeletedBeforeItFinished(t *testing.T) {
	w := newWorld(t)
	once := w.newItem("t-job", job)
	w.storeManifest(newManifest("b1", 1, once))
	w.expectExists(once.Key)
	w.deleteByHand(once.Key)
	w.expectAbsent(once.Key)
	w.expectHolds("it is not made again", time.Second, func() (bool, string) { return w.get(once.Key) == nil, "it runs again" })
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.Items) == 1 && s.Items[0].Reason == "DeletedInMember" })
}
