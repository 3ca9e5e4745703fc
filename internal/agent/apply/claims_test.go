package apply

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

func moved(it atoll.Rendered, to ...string) atoll.Tombstone {
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
			web := w.item("t-web", deployment)
			w.upsert(manifest("b1", 1, web))
			w.ready("b1", 1)
			before := w.exists(web.Key)
			source := func() { w.upsert(withTombstones(manifest("b1", 2), moved(web, "b2"))) }
			target := func() { w.upsert(manifest("b2", 1, web)) }
			if targetFirst {
				target()
				w.ready("b2", 1)
				source()
			} else {
				source()
				w.holds("it is kept for the other bundle", 300*time.Millisecond, func() (bool, string) { return w.get(web.Key) != nil, "it is gone" })
				target()
			}
			w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
			w.ready("b2", 1)
			w.eventually("it is labelled anew", func() (bool, string) {
				return w.exists(web.Key).GetLabels()[atoll.LabelBundleUID] == "b2", ""
			})
			after := w.exists(web.Key)
			if after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration() {
				t.Fatal("the move touched the object")
			}
			w.upsert(remove("b2", 2))
			w.removed("b2")
			w.absent(web.Key)
		})
	}
}

func TestSharedByTwoBundles(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	conf.Dependency = true
	w.upsert(manifest("b1", 1, conf))
	w.upsert(manifest("b2", 1, conf))
	w.ready("b1", 1)
	w.ready("b2", 1)
	uid := w.exists(conf.Key).GetUID()
	unused := atoll.Tombstone{Key: conf.Key, UID: conf.UID, Cause: atoll.CauseUnused}
	w.upsert(withTombstones(manifest("b1", 2), unused))
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
	if w.exists(conf.Key).GetUID() != uid {
		t.Fatal("it was made anew")
	}
	w.upsert(withTombstones(manifest("b2", 2), unused))
	w.status("b2", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
	w.absent(conf.Key)
}

func TestNewTemplateIsANewObject(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-1", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	uid := w.exists(conf.Key).GetUID()
	again := w.item("t-2", configMap)
	w.upsert(withTombstones(manifest("b1", 2, again), tombstone(conf)))
	w.status("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowReady && len(s.Gone) == 1 })
	if w.exists(conf.Key).GetUID() == uid {
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
	claim := w.item("t-pvc", volumeClaim)
	claim.Dependency = true
	w.upsert(manifest("b1", 1, claim))
	w.exists(claim.Key)
	w.upsert(withTombstones(manifest("b1", 2), atoll.Tombstone{Key: claim.Key, UID: claim.UID, Cause: atoll.CauseUnused}))
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
	left := w.exists(claim.Key)
	if left.GetDeletionTimestamp() != nil || left.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Fatalf("%v", left)
	}

	// Another volume of that name is not this one; the same one takes up its data.
	other := w.item("t-other", volumeClaim)
	other.Dependency = true
	w.upsert(manifest("b2", 1, other))
	w.reason("b2", ReasonConflict)
	w.upsert(remove("b2", 2))
	w.removed("b2")
	w.upsert(manifest("b1", 3, claim))
	w.status("b1", func(s atoll.RowStatus) bool { return s.Generation == 3 && s.Applied })
	if live := w.exists(claim.Key); live.GetUID() != left.GetUID() || live.GetLabels()[atoll.LabelBundleUID] != "b1" {
		t.Fatalf("%v", live)
	}
	w.upsert(remove("b1", 4))
	w.removed("b1")
	w.exists(claim.Key)
}

func TestFinalizersAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.edit(conf.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.upsert(withTombstones(manifest("b1", 2), tombstone(conf)))
	if it := w.reason("b1", ReasonTerminating); it.Error || it.Message == "" {
		t.Fatalf("%+v", it)
	}
	w.holds("it is not reported gone", 300*time.Millisecond, func() (bool, string) {
		s, _ := w.Status("b1", nil, testNow)
		return len(s.Gone) == 0, s.Encode()
	})
	w.edit(conf.Key, `{"metadata":{"finalizers":null}}`)
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
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
	once := w.item("t-job", job)
	w.upsert(manifest("b1", 1, once))
	w.ready("b1", 1)
	w.deleteByHand(once.Key)
	w.absent(once.Key) // it orphans its pods first
	notAgain := func(what string) {
		t.Helper()
		w.holds(what, time.Second, func() (bool, string) { return w.get(once.Key) == nil, "it runs again" })
		s := w.ready("b1", 1)
		if len(s.Items) != 1 || len(s.Items[0].Reflected) == 0 {
			t.Fatalf("what became of the job is forgotten: %s", s.Encode())
		}
	}
	notAgain("it is not made again")
	w.stop()
	w.start()
	notAgain("it is not made again after a restart")

	other := w.item("t-job-2", job)
	w.upsert(withTombstones(manifest("b1", 2, other), tombstone(once)))
	w.exists(once.Key)
	w.ready("b1", 2)
}

func TestJobDeletedBeforeItFinished(t *testing.T) {
	w := newWorld(t)
	once := w.item("t-job", job)
	w.upsert(manifest("b1", 1, once))
	w.exists(once.Key)
	w.deleteByHand(once.Key)
	w.absent(once.Key)
	w.holds("it is not made again", time.Second, func() (bool, string) { return w.get(once.Key) == nil, "it runs again" })
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Items) == 1 && s.Items[0].Reason == "DeletedInMember" })
}
