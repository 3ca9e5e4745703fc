package apply

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Name: "web"}

// in the test's namespace.
func (w *world) claimKey(k atoll.ItemKey) atoll.ItemKey {
	k.Namespace = w.ns
	return k
}

// orphanManifest as the hub says it of a cluster that leaves the fleet.
func orphanManifest(bundle string, generation int64) atoll.Manifest {
	m := remove(bundle, generation)
	m.Removal, m.ClusterDecommissioned = v1alpha1.RemoveOrphan, true
	return m
}

func TestTakenUpAgain(t *testing.T) {
	for _, c := range []struct {
		name             string
		template, change string
		taken            bool
	}{
		{"same", "t-web", "", true},
		{"edited during the removal", "t-web", "replicas: 3", true},
		{"another hub", "t-other", "", true},
		{"another hub differs", "t-other", "replicas: 3", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.storeManifest(newManifest("b1", 1, w.newItem("t-web", deployment)))
			w.waitForReady("b1", 1)
			uid := w.expectExists(w.claimKey(webKey)).GetUID()
			w.storeManifest(orphanManifest("b1", 2))
			w.waitForRemoval("b1")
			live := w.expectExists(w.claimKey(webKey))
			for label := range live.GetLabels() {
				if strings.Contains(label, "atoll.dev/") {
					t.Errorf("label %s is left on it", label)
				}
			}
			for _, f := range live.GetManagedFields() { // the note is its own, and nothing else
				if fields := f.FieldsV1.GetRawString(); (f.Manager == atoll.FieldManager || f.Manager == atoll.HandoverManager) &&
					(f.Operation != "Update" || strings.Count(fields, `"f:`) != 3 || !strings.Contains(fields, `{"f:metadata":{"f:annotations":{`) || !strings.Contains(fields, `"f:atoll.dev/left-behind":{}`)) {
					t.Errorf("%s still owns by %s: %s", f.Manager, f.Operation, fields)
				}
			}
			if note := live.GetAnnotations()[ownership.AnnotationLeftBehind]; note != "t-web" {
				t.Errorf("its note is %q", note)
			}
			text := deployment
			if c.change != "" {
				text = strings.Replace(text, "replicas: 2", c.change, 1)
				if text == deployment {
					text = strings.Replace(text, "replicas: 1", c.change, 1)
				}
				if text == deployment {
					t.Fatalf("the change is none: %s", deployment)
				}
			}
			w.storeManifest(newManifest("b2", 1, w.newItem(c.template, text)))
			if !c.taken {
				w.waitForReason("b2", atoll.ReasonConflict)
				return
			}
			w.waitForReady("b2", 1)
			live = w.expectExists(w.claimKey(webKey))
			if live.GetUID() != uid || live.GetLabels()[atoll.LabelBundleUID] != "b2" || live.GetLabels()[ownership.LabelAdopted] != "" || live.GetAnnotations()[ownership.AnnotationLeftBehind] != "" {
				t.Errorf("taken up as %s, %v, %v; it was %s", live.GetUID(), live.GetLabels(), live.GetAnnotations(), uid)
			}
		})
	}
}

// Objects that a policy orphans are released for good.
func TestWhatAPolicyOrphansHasNoNote(t *testing.T) {
	w := newWorld(t)
	w.storeManifest(newManifest("b1", 1, w.newItem("t-conf", configMap)))
	w.waitForReady("b1", 1)
	m := remove("b1", 2)
	m.Removal = v1alpha1.RemoveOrphan
	w.storeManifest(m)
	w.waitForRemoval("b1")
	if note := w.expectExists(w.claimKey(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"})).GetAnnotations()[ownership.AnnotationLeftBehind]; note != "" {
		t.Errorf("its note is %q", note)
	}
}

// Fields that were handed over stay as the member has them, without an owner in Atoll's name.
func TestWhatWasHandedOverIsLetGoOf(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(map[bool]string{false: "policy", true: "cluster"}[leaves], func(t *testing.T) {
			w := newWorld(t)
			w.storeManifest(newManifest("b1", 1, w.webWith(2, 1)))
			w.waitForReady("b1", 1)
			web := w.webWith(2, 2)
			web.MemberOwned = []string{replicas}
			w.storeManifest(newManifest("b1", 2, web))
			w.expectImage(web.Key, "nginx:2")
			if owns := w.fieldManagers(web.Key); !slices.Contains(owns, atoll.HandoverManager) {
				t.Fatalf("nothing was handed over: %q", owns)
			}
			w.scaleObject(web.Key, 7)
			m := orphanManifest("b1", 3)
			m.ClusterDecommissioned = leaves
			w.storeManifest(m)
			w.waitForRemoval("b1")
			w.hasReplicas(web.Key, 7)
			for _, manager := range w.fieldManagers(web.Key) {
				if manager == atoll.HandoverManager || manager == atoll.FieldManager && !leaves { // the field manager of the note
					t.Errorf("%s owns some of it", manager)
				}
			}
		})
	}
}

// fieldManagers of the object's fields.
func (w *world) fieldManagers(key atoll.ItemKey) (managers []string) {
	for _, f := range w.expectExists(key).GetManagedFields() {
		managers = append(managers, f.Manager)
	}
	return managers
}

func TestLeaving(t *testing.T) {
	for _, c := range []struct {
		name           string
		clean, foreign bool
		namespace      bool // stays
		behind         int
	}{
		{"orphan", false, false, true, 0},
		{"clean", true, false, false, 0},
		{"clean with others", true, true, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.storeManifest(newManifest("b1", 1, w.newItem("t-conf", configMap)))
			w.waitForReady("b1", 1)
			uid := w.expectExists(atoll.NamespaceKey(w.ns)).GetUID()
			if c.foreign {
				w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign}")
			}
			if c.clean { // as the hub ordered before it says that the agent is to leave
				w.storeManifest(remove("b1", 2))
				w.waitForRemoval("b1")
			}
			behind, err := w.ReleaseAll(t.Context(), c.clean, w.expectWait)
			if err != nil || len(behind) != c.behind {
				t.Fatalf("left behind: %q, %v", behind, err)
			}
			if held := w.ReceivedManifests(); len(held) > 0 {
				t.Errorf("still held: %v", held)
			}
			if !c.namespace {
				w.expectAbsent(atoll.NamespaceKey(w.ns))
				return
			}
			ns := w.expectExists(atoll.NamespaceKey(w.ns))
			if ns.GetDeletionTimestamp() != nil || ns.GetLabels()[atoll.LabelBundleUID] != "" || ns.GetLabels()[ownership.LabelTemplateUID] != "" {
				t.Errorf("the namespace: %v", ns.Object["metadata"])
			}
			if !c.clean {
				conf := w.expectExists(w.claimKey(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"}))
				if conf.GetLabels()[atoll.LabelBundleUID] != "" {
					t.Errorf("the agent still holds %v", conf.Object["metadata"])
				}
			}
			// It comes back: the namespace is known for the agent's own.
			w.storeManifest(newManifest("b2", 9, w.newItem("t-conf", configMap)))
			w.waitForReady("b2", 9)
			if ns := w.expectExists(atoll.NamespaceKey(w.ns)); ns.GetUID() != uid || ns.GetLabels()[atoll.LabelBundleUID] != "b2" {
				t.Errorf("the namespace when it is needed again: %v", ns.Object["metadata"])
			}
		})
	}
}

// An agent that is killed while it lets go goes on when it is asked again, also of what it
// knows by labels alone.
func TestLeavingGoesOnAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.storeManifest(newManifest("b1", 1, w.newItem("t-conf", configMap), w.newItem("t-web", deployment)))
	w.waitForReady("b1", 1)
	if err := w.releaseBundle(t.Context(), "b1"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	if behind, err := w.ReleaseAll(t.Context(), true, w.expectWait); err != nil || len(behind) == 0 {
		t.Fatalf("left behind: %q, %v", behind, err) // its namespace, with what is orphaned in it
	}
	for _, key := range []atoll.ItemKey{w.claimKey(webKey), w.claimKey(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"})} {
		if live := w.expectExists(key); live.GetLabels()[atoll.LabelBundleUID] != "" || live.GetDeletionTimestamp() != nil {
			t.Errorf("%s: %v", key, live.Object["metadata"])
		}
	}
	w.stop()
	w.start()
	if n := len(w.storedOrClaimingBundles()); n > 0 {
		t.Errorf("%d bundles are still claimed after another start", n)
	}
}

// An object that moved to a Bundle which never came stays, whether its own Bundle was to be
// removed or not. It is adopted again where its cluster keeps everything.
func TestLeavingWaitsForNoMove(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(bundle string, generation int64) atoll.Manifest
		noted bool
	}{
		"stays": {func(bundle string, generation int64) atoll.Manifest { return newManifest(bundle, generation) }, true},
		"goes":  {remove, false},
		"left":  {orphanManifest, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			conf := w.newItem("t-conf", configMap)
			w.storeManifest(newManifest("b1", 1, conf))
			w.waitForReady("b1", 1)
			m := c.then("b1", 2)
			m.Tombstones = []atoll.Tombstone{{Key: conf.Key, UID: "t-conf", MovedTo: []string{"never"}}}
			w.storeManifest(m)
			ctx, stop := context.WithTimeout(t.Context(), testwait.HangLimit)
			defer stop()
			if _, err := w.ReleaseAll(ctx, false, w.expectWait); err != nil {
				t.Fatal(err)
			}
			live := w.expectExists(conf.Key)
			if live.GetDeletionTimestamp() != nil || live.GetLabels()[atoll.LabelBundleUID] != "" {
				t.Errorf("it is left as %v", live.Object["metadata"])
			}
			if note := live.GetAnnotations()[ownership.AnnotationLeftBehind]; (note == "t-conf") != c.noted {
				t.Errorf("its note is %q", note)
			}
		})
	}
}

// An earlier removal order is carried out although it had no time yet: only the rest stays.
func TestLeavingRemovesWhatWasOrderedBefore(t *testing.T) {
	w := newWorld(t)
	conf, web := w.newItem("t-conf", configMap), w.newItem("t-web", deployment)
	w.storeManifest(newManifest("b1", 1, conf, web))
	w.waitForReady("b1", 1)
	w.holdFence(false) // nothing is deleted
	m := newManifest("b1", 2, web)
	m.Tombstones = []atoll.Tombstone{{Key: conf.Key, UID: "t-conf"}}
	w.storeManifest(m)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := w.ReleaseAll(ctx, false, w.expectWait); err == nil {
		t.Error("it has left although something was still to be removed")
	}
	w.holdFence(true)
	if _, err := w.ReleaseAll(t.Context(), false, w.expectWait); err != nil {
		t.Fatal(err)
	}
	if live := w.get(conf.Key); live != nil {
		t.Errorf("what was to be removed is left as %v", live.Object["metadata"])
	}
	if live := w.expectExists(web.Key); live.GetDeletionTimestamp() != nil || live.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Errorf("what was not to be removed is left as %v", live.Object["metadata"])
	}
}

// A removal that is taken back while a namespace waits to go leaves no order to remove it.
func TestLeavingThatIsTakenBackPartsWithNoNamespace(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.storeManifest(remove("b1", 2))
	w.waitForRemoval("b1")
	ns := atoll.NamespaceKey(w.ns)
	w.holdFence(false) // nothing is deleted, and ReleaseAll is not informed
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := w.ReleaseAll(ctx, true, w.expectWait); err == nil {
		t.Fatal("it went although nothing could be deleted")
	}
	w.holdFence(true)
	w.stop()
	w.start()
	w.expectHolds("the namespace", 2*time.Second, func() (bool, string) {
		live := w.get(ns)
		return live != nil && live.GetDeletionTimestamp() == nil, "it goes"
	})
}

// A lasting blocker of the agent is reported once, with the person that must act, and so is its
// end.
func TestLeavingTellsWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.storeManifest(remove("b1", 2))
	w.waitForRemoval("b1")
	ns := atoll.NamespaceKey(w.ns)
	w.patchObject(ns, `{"metadata":{"finalizers":["example.com/keep"]}}`)
	reported := make(chan string, 16)
	left := make(chan error, 1)
	go func() {
		_, err := w.ReleaseAll(t.Context(), true, func(why string) { reported <- why })
		left <- err
	}()
	if why := <-reported; !strings.Contains(why, "Namespace "+w.ns) || !strings.Contains(why, "example.com/keep") {
		t.Errorf("it waits for %q", why)
	}
	w.patchObject(ns, `{"metadata":{"finalizers":null}}`)
	for why := range reported { // by way of what is on its way
		if why == "" {
			break
		}
	}
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	w.expectAbsent(ns)
}

// expectWait for nothing that a test asks about.
func (w *world) expectWait(string) {}
