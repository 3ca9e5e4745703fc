package apply

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/atoll"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Name: "web"}

// in the test's namespace.
func (w *world) own(k atoll.ItemKey) atoll.ItemKey {
	k.Namespace = w.ns
	return k
}

// orphaned as the hub says it of a cluster that leaves the fleet.
func orphaned(bundle string, generation int64) atoll.Manifest {
	m := remove(bundle, generation)
	m.Removal, m.LeftBehind = v1alpha1.RemoveOrphan, true
	return m
}

func TestTakenUpAgain(t *testing.T) {
	for _, c := range []struct {
		name             string
		template, change string
		taken            bool
	}{
		{"same", "t-web", "", true},
		{"edited meanwhile", "t-web", "replicas: 3", true},
		{"another hub", "t-other", "", true},
		{"another hub differs", "t-other", "replicas: 3", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.upsert(manifest("b1", 1, w.item("t-web", deployment)))
			w.ready("b1", 1)
			uid := w.exists(w.own(webKey)).GetUID()
			w.upsert(orphaned("b1", 2))
			w.removed("b1")
			live := w.exists(w.own(webKey))
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
			if note := live.GetAnnotations()[claims.AnnotationLeftBehind]; note != "t-web" {
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
			w.upsert(manifest("b2", 1, w.item(c.template, text)))
			if !c.taken {
				w.reason("b2", ReasonConflict)
				return
			}
			w.ready("b2", 1)
			live = w.exists(w.own(webKey))
			if live.GetUID() != uid || live.GetLabels()[atoll.LabelBundleUID] != "b2" || live.GetLabels()[claims.LabelAdopted] != "" || live.GetAnnotations()[claims.AnnotationLeftBehind] != "" {
				t.Errorf("taken up as %s, %v, %v; it was %s", live.GetUID(), live.GetLabels(), live.GetAnnotations(), uid)
			}
		})
	}
}

// What policies orphan is let go of for good.
func TestWhatAPolicyOrphansHasNoNote(t *testing.T) {
	w := newWorld(t)
	w.upsert(manifest("b1", 1, w.item("t-conf", configMap)))
	w.ready("b1", 1)
	m := remove("b1", 2)
	m.Removal = v1alpha1.RemoveOrphan
	w.upsert(m)
	w.removed("b1")
	if note := w.exists(w.own(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"})).GetAnnotations()[claims.AnnotationLeftBehind]; note != "" {
		t.Errorf("its note is %q", note)
	}
}

// What was handed over to the member stays as the member has it, and nobody owns it in our name.
func TestWhatWasHandedOverIsLetGoOf(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(map[bool]string{false: "policy", true: "cluster"}[leaves], func(t *testing.T) {
			w := newWorld(t)
			w.upsert(manifest("b1", 1, w.webWith(2, 1)))
			w.ready("b1", 1)
			web := w.webWith(2, 2)
			web.Leave = []string{replicas}
			w.upsert(manifest("b1", 2, web))
			w.image(web.Key, "nginx:2")
			if owns := w.owners(web.Key); !slices.Contains(owns, atoll.HandoverManager) {
				t.Fatalf("nothing was handed over: %q", owns)
			}
			w.scale(web.Key, 7)
			m := orphaned("b1", 3)
			m.LeftBehind = leaves
			w.upsert(m)
			w.removed("b1")
			w.hasReplicas(web.Key, 7)
			for _, manager := range w.owners(web.Key) {
				if manager == atoll.HandoverManager || manager == atoll.FieldManager && !leaves { // who owns the note
					t.Errorf("%s owns some of it", manager)
				}
			}
		})
	}
}

// owners of the object's fields.
func (w *world) owners(key atoll.ItemKey) (managers []string) {
	for _, f := range w.exists(key).GetManagedFields() {
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
			w.upsert(manifest("b1", 1, w.item("t-conf", configMap)))
			w.ready("b1", 1)
			uid := w.exists(claims.Namespace(w.ns)).GetUID()
			if c.foreign {
				w.make("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign}")
			}
			if c.clean { // as the hub ordered before it says that the agent is to leave
				w.upsert(remove("b1", 2))
				w.removed("b1")
			}
			behind, err := w.Leave(t.Context(), c.clean, w.waits)
			if err != nil || len(behind) != c.behind {
				t.Fatalf("left behind: %q, %v", behind, err)
			}
			if held := w.Held(); len(held) > 0 {
				t.Errorf("still held: %v", held)
			}
			if !c.namespace {
				w.absent(claims.Namespace(w.ns))
				return
			}
			ns := w.exists(claims.Namespace(w.ns))
			if ns.GetDeletionTimestamp() != nil || ns.GetLabels()[atoll.LabelBundleUID] != "" || ns.GetLabels()[claims.LabelTemplateUID] != "" {
				t.Errorf("the namespace: %v", ns.Object["metadata"])
			}
			if !c.clean {
				conf := w.exists(w.own(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"}))
				if conf.GetLabels()[atoll.LabelBundleUID] != "" {
					t.Errorf("the agent still holds %v", conf.Object["metadata"])
				}
			}
			// It comes back: the namespace is known for the agent's own.
			w.upsert(manifest("b2", 9, w.item("t-conf", configMap)))
			w.ready("b2", 9)
			if ns := w.exists(claims.Namespace(w.ns)); ns.GetUID() != uid || ns.GetLabels()[atoll.LabelBundleUID] != "b2" {
				t.Errorf("the namespace when it is needed again: %v", ns.Object["metadata"])
			}
		})
	}
}

// An agent that is killed while it lets go goes on when it is asked again, also of what it
// knows by labels alone.
func TestLeavingGoesOnAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.upsert(manifest("b1", 1, w.item("t-conf", configMap), w.item("t-web", deployment)))
	w.ready("b1", 1)
	if err := w.letGo(t.Context(), "b1"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	if behind, err := w.Leave(t.Context(), true, w.waits); err != nil || len(behind) == 0 {
		t.Fatalf("left behind: %q, %v", behind, err) // its namespace, with what is orphaned in it
	}
	for _, key := range []atoll.ItemKey{w.own(webKey), w.own(atoll.ItemKey{Kind: "ConfigMap", Name: "conf"})} {
		if live := w.exists(key); live.GetLabels()[atoll.LabelBundleUID] != "" || live.GetDeletionTimestamp() != nil {
			t.Errorf("%s: %v", key, live.Object["metadata"])
		}
	}
	w.stop()
	w.start()
	if n := len(w.claiming()); n > 0 {
		t.Errorf("%d bundles are still claimed after another start", n)
	}
}

// What went over to a Bundle that never came stays, whether its own Bundle was to go or not. It is
// known again where it stays with all that its cluster keeps.
func TestLeavingWaitsForNoMove(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(bundle string, generation int64) atoll.Manifest
		noted bool
	}{
		"stays": {func(bundle string, generation int64) atoll.Manifest { return manifest(bundle, generation) }, true},
		"goes":  {remove, false},
		"left":  {orphaned, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			conf := w.item("t-conf", configMap)
			w.upsert(manifest("b1", 1, conf))
			w.ready("b1", 1)
			m := c.then("b1", 2)
			m.Tombstones = []atoll.Tombstone{{Key: conf.Key, UID: "t-conf", MovedTo: []string{"never"}}}
			w.upsert(m)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			if _, err := w.Leave(ctx, false, w.waits); err != nil {
				t.Fatal(err)
			}
			live := w.exists(conf.Key)
			if live.GetDeletionTimestamp() != nil || live.GetLabels()[atoll.LabelBundleUID] != "" {
				t.Errorf("it is left as %v", live.Object["metadata"])
			}
			if note := live.GetAnnotations()[claims.AnnotationLeftBehind]; (note == "t-conf") != c.noted {
				t.Errorf("its note is %q", note)
			}
		})
	}
}

// What the hub ordered to be removed before goes, although it had no time to: only the rest stays.
func TestLeavingRemovesWhatWasOrderedBefore(t *testing.T) {
	w := newWorld(t)
	conf, web := w.item("t-conf", configMap), w.item("t-web", deployment)
	w.upsert(manifest("b1", 1, conf, web))
	w.ready("b1", 1)
	w.fence(false) // nothing is deleted
	m := manifest("b1", 2, web)
	m.Tombstones = []atoll.Tombstone{{Key: conf.Key, UID: "t-conf"}}
	w.upsert(m)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := w.Leave(ctx, false, w.waits); err == nil {
		t.Error("it has left although something was still to be removed")
	}
	w.fence(true)
	if _, err := w.Leave(t.Context(), false, w.waits); err != nil {
		t.Fatal(err)
	}
	if live := w.get(conf.Key); live != nil {
		t.Errorf("what was to be removed is left as %v", live.Object["metadata"])
	}
	if live := w.exists(web.Key); live.GetDeletionTimestamp() != nil || live.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Errorf("what was not to be removed is left as %v", live.Object["metadata"])
	}
}

// A removal that is taken back while a namespace waits to go leaves no order to remove it.
func TestLeavingThatIsTakenBackPartsWithNoNamespace(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.upsert(remove("b1", 2))
	w.removed("b1")
	ns := claims.Namespace(w.ns)
	w.fence(false) // nothing is deleted, and nobody says so to Leave
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := w.Leave(ctx, true, w.waits); err == nil {
		t.Fatal("it went although nothing could be deleted")
	}
	w.fence(true)
	w.stop()
	w.start()
	w.holds("the namespace", 2*time.Second, func() (bool, string) {
		live := w.get(ns)
		return live != nil && live.GetDeletionTimestamp() == nil, "it goes"
	})
}

// What keeps the agent from leaving is told once that lasts, by the name of who must act, and
// that it is over.
func TestLeavingTellsWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.upsert(remove("b1", 2))
	w.removed("b1")
	ns := claims.Namespace(w.ns)
	w.edit(ns, `{"metadata":{"finalizers":["example.com/keep"]}}`)
	told := make(chan string, 16)
	left := make(chan error, 1)
	go func() {
		_, err := w.Leave(t.Context(), true, func(why string) { told <- why })
		left <- err
	}()
	if why := <-told; !strings.Contains(why, "Namespace "+w.ns) || !strings.Contains(why, "example.com/keep") {
		t.Errorf("it waits for %q", why)
	}
	w.edit(ns, `{"metadata":{"finalizers":null}}`)
	for why := range told { // by way of what is on its way
		if why == "" {
			break
		}
	}
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	w.absent(ns)
}

// waits for nothing that a test asks about.
func (w *world) waits(string) {}
