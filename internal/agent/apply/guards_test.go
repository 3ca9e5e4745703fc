package apply

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A namespace that the agent made is deleted only when all that is in it came with the namespace, or
// with another object in it.
func TestNamespaceIsDeletedOnlyWithWhatCameAlong(t *testing.T) {
	object := func(apiVersion, kind, more string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: shop, %s}", apiVersion, kind, more)
	}
	for name, c := range map[string]struct {
		objects []string
		want    atoll.Reason
	}{
		"nothing":                           {nil, ""},
		"the default ServiceAccount":        {[]string{object("v1", "ServiceAccount", "name: default")}, ""},
		"another ServiceAccount":            {[]string{object("v1", "ServiceAccount", "name: robot")}, atoll.ReasonForeignObjects},
		"the cluster's CA":                  {[]string{object("v1", "ConfigMap", "name: kube-root-ca.crt")}, ""},
		"another ConfigMap":                 {[]string{object("v1", "ConfigMap", "name: default")}, atoll.ReasonForeignObjects},
		"the default account's token":       {[]string{object("v1", "Secret", "name: t, annotations: {kubernetes.io/service-account.name: default}")}, ""},
		"another account's token":           {[]string{object("v1", "Secret", "name: t, annotations: {kubernetes.io/service-account.name: robot}")}, atoll.ReasonForeignObjects},
		"events":                            {[]string{object("v1", "Event", "name: e"), object("events.k8s.io/v1", "Event", "name: f")}, ""},
		"endpoints":                         {[]string{object("v1", "Endpoints", "name: web"), object("discovery.k8s.io/v1", "EndpointSlice", "name: web-1")}, ""},
		"a Pod":                             {[]string{object("v1", "Pod", "name: p")}, atoll.ReasonForeignObjects},
		"a Pod of a ReplicaSet that went":   {[]string{object("v1", "Pod", "name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u}]")}, ""},
		"a Pod of a Node":                   {[]string{object("v1", "Pod", "name: p, ownerReferences: [{apiVersion: v1, kind: Node, name: other, uid: u}]")}, atoll.ReasonForeignObjects},
		"a Pod of an unknown kind":          {[]string{object("v1", "Pod", "name: p, ownerReferences: [{apiVersion: x.dev/v1, kind: Thing, name: other, uid: u}]")}, atoll.ReasonForeignObjects},
		"a Pod of a ReplicaSet and a Node":  {[]string{object("v1", "Pod", "name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u}, {apiVersion: v1, kind: Node, name: other, uid: u}]")}, atoll.ReasonForeignObjects},
		"a Pod that is being deleted":       {[]string{object("v1", "Pod", "name: p, deletionTimestamp: 2026-01-01T00:00:00Z")}, atoll.ReasonWaitsForObjects},
		"one that goes and one that stays":  {[]string{object("v1", "Pod", "name: p, deletionTimestamp: 2026-01-01T00:00:00Z"), object("v1", "Pod", "name: q")}, atoll.ReasonForeignObjects},
		"an event beside a foreign Secret":  {[]string{object("v1", "Event", "name: e"), object("v1", "Secret", "name: s")}, atoll.ReasonForeignObjects},
		"a Pod in a namespace of like name": {[]string{"apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop2, name: p}"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.objects...)
			record := shopNamespace
			record.Doomed = true
			e := engineOn(t, api, record, newManifest("b1", 1))
			f := e.workOnKey(t.Context(), record.Key)
			if got := reasonOf(f); got != c.want {
				t.Fatalf("it fails for %q, want %q: %+v", got, c.want, f)
			}
			if c.want == "" {
				api.expectWrites(t, "DELETE shop")
			} else {
				api.expectWrites(t)
			}
		})
	}
}

// A definition is deleted only when no object of its kind is left, and when that can be seen.
func TestDefinitionIsDeletedOnlyWithoutObjects(t *testing.T) {
	key := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "shells.example.io"}
	definition := func(served string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: shells.example.io}\n" +
			"spec: {group: example.io, scope: Cluster, names: {kind: Shell, plural: shells}, versions: [{name: v1alpha1, served: false}, {name: v1, served: " + served + "}]}"
	}
	shell := func(more string) string {
		return "apiVersion: example.io/v1\nkind: Shell\nmetadata: {name: conch" + more + "}"
	}
	for name, c := range map[string]struct {
		objects []string
		want    atoll.Reason
	}{
		"no object":                       {[]string{definition("true")}, ""},
		"an object":                       {[]string{definition("true"), shell("")}, atoll.ReasonForeignObjects},
		"an object that is being deleted": {[]string{definition("true"), shell(", deletionTimestamp: 2026-01-01T00:00:00Z")}, atoll.ReasonWaitsForObjects},
		"no version is served":            {[]string{definition("false")}, atoll.ReasonForeignObjects},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.objects...)
			tombstone := atoll.Tombstone{Key: key, UID: "t", Cause: atoll.CauseDeleted}
			e := engineOn(t, api, ownership.Record{
				Key: key, APIVersion: "apiextensions.k8s.io/v1", UID: "live", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, withTombstones(newManifest("b1", 2), tombstone))
			if f := e.workOnKey(t.Context(), key); reasonOf(f) != c.want {
				t.Fatalf("it fails for %q, want %q: %+v", reasonOf(f), c.want, f)
			}
			if c.want == "" {
				api.expectWrites(t, "DELETE shells.example.io")
			} else {
				api.expectWrites(t)
			}
			if done := len(e.CarriedOut("b1")) == 1; done != (c.want == "") {
				t.Errorf("the tombstone is carried out: %t", done)
			}
		})
	}
}

func reasonOf(f *Failure) atoll.Reason {
	if f == nil {
		return ""
	}
	return f.Reason
}

var confKey = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}

// confItem returns an item with a value.
func confItem(value string) atoll.RenderedItem {
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"a":%q}}`, value)
	return atoll.RenderedItem{Key: confKey, APIVersion: "v1", UID: "t", Object: []byte(object), Hash: "h" + value}
}

// An object that exists and is not Atoll's is left alone, adopted, or overwritten, by the manifest's
// conflict resolution.
func TestExistingObjectsAreLeftAdoptedOrOverwritten(t *testing.T) {
	const apply, dropNote = "APPLY conf " + atoll.FieldManager, "MERGE conf " + atoll.FieldManager
	live := func(meta, value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop" + meta + "}\ndata: {a: " + value + "}"
	}
	note := func(template string) string {
		return ", annotations: {" + ownership.AnnotationLeftBehind + ": " + template + "}"
	}
	for name, c := range map[string]struct {
		live    string
		how     v1alpha1.ConflictResolution
		want    atoll.Reason
		part    string // of the message
		writes  []string
		adopted bool
	}{
		"none exists":                                  {"", v1alpha1.ConflictAbort, "", "", []string{apply}, false},
		"one exists":                                   {live("", "x"), v1alpha1.ConflictAbort, atoll.ReasonConflict, "set conflictResolution: AdoptIfSame or Overwrite", nil, false},
		"an equal one exists":                          {live("", "x"), v1alpha1.ConflictAdoptIfSame, "", "", []string{apply}, true},
		"another one exists":                           {live("", "y"), v1alpha1.ConflictAdoptIfSame, atoll.ReasonConflict, "differs at /data/a", nil, false},
		"another one is overwritten":                   {live("", "y"), v1alpha1.ConflictOverwrite, "", "", []string{apply}, true},
		"one is being deleted":                         {live(", deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x.dev/f]", "x"), v1alpha1.ConflictOverwrite, atoll.ReasonTerminating, "x.dev/f", nil, false},
		"one was left behind":                          {live(note("t"), "y"), v1alpha1.ConflictAbort, "", "", []string{apply, dropNote}, false},
		"an equal one of another template was left":    {live(note("t0"), "x"), v1alpha1.ConflictAbort, "", "", []string{apply, dropNote}, false},
		"a different one of another template was left": {live(note("t0"), "y"), v1alpha1.ConflictAbort, atoll.ReasonConflict, "", nil, false},
		"one of this Bundle exists": {live(fmt.Sprintf(", labels: {%s: b1, %s: t}, managedFields: [{manager: %s, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]",
			atoll.LabelBundleUID, ownership.LabelTemplateUID, atoll.FieldManager), "y"), v1alpha1.ConflictAbort, "", "", []string{apply}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{c.live}
			}
			api := newMemoryMember(t, objects...)
			m := newManifest("b1", 1, confItem("x"))
			m.ConflictResolution = c.how
			e := engineOn(t, api, shopNamespace, m)
			f := settleKey(t, e, confKey)
			if reasonOf(f) != c.want || f != nil && !strings.Contains(f.Message, c.part) {
				t.Fatalf("it fails with %+v, want %q %q", f, c.want, c.part)
			}
			api.expectWrites(t, c.writes...)
			r, _ := e.book.Record(confKey)
			if done := c.want == ""; done != (r.UID != "" && r.Applied == "hx") || r.Adopted != c.adopted {
				t.Errorf("the record is %+v", r)
			}
			after := api.objects["/api/v1/namespaces/shop/configmaps/conf"]
			if done := c.want == ""; done && after["data"].(map[string]any)["a"] != "x" {
				t.Errorf("the object is %v", after)
			}
			if notes, _ := after["metadata"].(map[string]any)["annotations"].(map[string]any); c.want == "" && notes[ownership.AnnotationLeftBehind] != nil {
				t.Errorf("the note is left: %v", notes)
			}
		})
	}
}

// A namespace is made for what is placed in it, with the metadata of the hub's. One that is there
// already is not the agent's.
func TestNamespacesAreMadeForWhatIsPlacedInThem(t *testing.T) {
	manifest := func(labels map[string]string) atoll.Manifest {
		m := newManifest("b1", 1, confItem("x"))
		m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: labels, Annotations: map[string]string{"a": "1"}}}
		return m
	}
	key := atoll.NamespaceKey("shop")
	const path = "/api/v1/namespaces/shop"
	for name, c := range map[string]struct {
		live   string // empty: none
		record ownership.Record
		made   bool
	}{
		"none exists":                  {"", ownership.Record{Key: key, Implicit: true}, true},
		"a foreign one exists":         {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n2}", ownership.Record{Key: key, Implicit: true}, false},
		"one of an agent exists":       {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n2, labels: {" + ownership.LabelTemplateUID + ": namespace}}", ownership.Record{Key: key, Implicit: true}, true},
		"one was left behind":          {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n2, annotations: {" + ownership.AnnotationLeftBehind + ": namespace}}", ownership.Record{Key: key, Implicit: true}, true},
		"it has other labels than now": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n1}", shopNamespace, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t)
			if delete(api.objects, path); c.live != "" {
				api = newMemoryMember(t, c.live)
			}
			e := engineOn(t, api, c.record, manifest(map[string]string{"team": "web", corev1NameLabel: "other"}))
			if f := e.workOnKey(t.Context(), key); f != nil {
				t.Fatalf("%+v", f)
			}
			r, known := e.book.Record(key)
			if !c.made {
				if api.expectWrites(t); known && r.UID != "" || !e.foreign["shop"] {
					t.Errorf("a foreign namespace has the record %+v", r)
				}
				return
			}
			api.expectWrites(t, "APPLY shop "+atoll.FieldManager)
			meta := api.objects[path]["metadata"].(map[string]any)
			labels, _ := meta["labels"].(map[string]any)
			notes, _ := meta["annotations"].(map[string]any)
			if labels["team"] != "web" || labels[corev1NameLabel] != nil || labels[atoll.LabelBundleUID] != "b1" || labels[ownership.LabelTemplateUID] != "namespace" || notes["a"] != "1" {
				t.Errorf("the namespace has the metadata %v", meta)
			}
			if r.UID != meta["uid"] || !r.Implicit {
				t.Errorf("the namespace %v has the record %+v", meta["uid"], r)
			}
			if f := e.workOnKey(t.Context(), key); f != nil {
				t.Fatalf("%+v", f)
			}
			api.expectWrites(t)
		})
	}
}

// A released object keeps all but Atoll's labels and fields. A note stays on one that Atoll made and
// leaves behind.
func TestReleasedObjectsKeepTheirContent(t *testing.T) {
	live := func(more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, labels: {%s: b1, %s: t, app: web}, managedFields: [%s]}\ndata: {a: x}",
			atoll.LabelBundleUID, ownership.LabelTemplateUID, more)
	}
	managed := func(manager string) string {
		return "{manager: " + manager + ", operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}"
	}
	for name, c := range map[string]struct {
		managers []string
		adopted  bool
		uid      string // that is recorded
		left     int    // managers
		noted    bool
		released bool
	}{
		"made by Atoll":            {[]string{atoll.FieldManager, atoll.HandoverManager, "kubectl"}, false, "live", 1, true, true},
		"no other manager":         {[]string{atoll.FieldManager}, false, "live", 1, true, true},
		"there before":             {[]string{atoll.FieldManager, "kubectl", "helm"}, true, "live", 2, false, true},
		"another object of a name": {[]string{atoll.FieldManager}, false, "gone", 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var managers []string
			for _, m := range c.managers {
				managers = append(managers, managed(m))
			}
			api := newMemoryMember(t, live(strings.Join(managers, ", ")))
			m := newManifest("b1", 2)
			m.Remove, m.Removal, m.ClusterDecommissioned = true, v1alpha1.RemoveOrphan, true
			e := engineOn(t, api, ownership.Record{
				Key: confKey, APIVersion: "v1", UID: c.uid, Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true, Adopted: c.adopted,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, m)
			e.mu.Lock()
			e.ensureTask(confKey).weigh = false
			e.mu.Unlock()
			if f := e.workOnKey(t.Context(), confKey); f != nil {
				t.Fatalf("%+v", f)
			}
			if !c.released {
				api.expectWrites(t)
			} else {
				api.expectWrites(t, "MERGE conf "+atoll.FieldManager)
			}
			if _, known := e.book.Record(confKey); known {
				t.Error("the record is left")
			}
			obj := api.objects["/api/v1/namespaces/shop/configmaps/conf"]
			meta := obj["metadata"].(map[string]any)
			labels := meta["labels"].(map[string]any)
			if labels["app"] != "web" || c.released && len(labels) != 1 || obj["data"].(map[string]any)["a"] != "x" {
				t.Errorf("the object is %v", obj)
			}
			notes, _ := meta["annotations"].(map[string]any)
			if noted := notes[ownership.AnnotationLeftBehind] == "t"; noted != c.noted {
				t.Errorf("with a note: %t", noted)
			}
			if got := managersOf(meta); len(got) != c.left {
				t.Errorf("the managers are %v", got)
			}
		})
	}
}

// Fields that the member owns from now on get its live values from another manager, before Atoll
// drops them.
func TestFieldsAreHandedOverWithTheirLiveValues(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":2,"paused":false}}`
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	hpa := atoll.RenderedItem{
		Key: atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "web"}, APIVersion: "autoscaling/v2", UID: "t2", Hash: "h2",
		Object: []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","namespace":"shop"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`),
	}
	other := hpa
	other.Object = []byte(strings.ReplaceAll(string(hpa.Object), `"kind":"Deployment","name":"web"`, `"kind":"Deployment","name":"api"`))
	const hand, apply = "APPLY web " + atoll.HandoverManager, "APPLY web " + atoll.FieldManager
	for name, c := range map[string]struct {
		items    []atoll.RenderedItem
		owned    []string // by the member, as the hub names them
		live     string   // spec
		uid      string
		writes   []string
		replicas any // that the handover states
		applied  any // that Atoll's apply states
	}{
		"an autoscaler of the object":       {[]atoll.RenderedItem{hpa}, nil, "{replicas: 7, paused: false}", "live", []string{hand, apply}, 7.0, nil},
		"an autoscaler of another object":   {[]atoll.RenderedItem{other}, nil, "{replicas: 7, paused: false}", "live", []string{apply}, nil, 2.0},
		"no autoscaler":                     {nil, nil, "{replicas: 7, paused: false}", "live", []string{apply}, nil, 2.0},
		"the hub names the field":           {nil, []string{"/spec/replicas"}, "{replicas: 7}", "live", []string{hand, apply}, 7.0, nil},
		"the hub names fields and it lacks": {nil, []string{"/spec/replicas", "/spec/minReadySeconds"}, "{replicas: 7}", "live", []string{hand, apply}, 7.0, nil},
		"the object lacks the field":        {nil, []string{"/spec/replicas"}, "{paused: true}", "live", []string{apply}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: "+c.live)
			web := atoll.RenderedItem{Key: key, APIVersion: "apps/v1", UID: "t", Object: []byte(deployment), Hash: "new", MemberOwned: c.owned}
			e := engineOn(t, api, ownership.Record{
				Key: key, APIVersion: "apps/v1", UID: c.uid, Template: "t", Owner: "b1", Label: "b1", Applied: "old", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, newManifest("b1", 1, append(c.items, web)...))
			e.mu.Lock()
			e.ensureTask(key).weigh = false
			e.mu.Unlock()
			if f := e.workOnKey(t.Context(), key); f != nil {
				t.Fatalf("%+v", f)
			}
			api.expectWrites(t, c.writes...)
			stated := func(i int) any { v, _ := api.bodies[i]["spec"].(map[string]any); return v["replicas"] }
			if len(c.writes) == 2 {
				meta := api.bodies[0]["metadata"].(map[string]any)
				if stated(0) != c.replicas || meta["resourceVersion"] != "1" || meta["uid"] != "live" {
					t.Errorf("the handover is %v", api.bodies[0])
				}
			}
			if got := stated(len(c.writes) - 1); got != c.applied {
				t.Errorf("Atoll states %v replicas, want %v", got, c.applied)
			}
		})
	}
}

// A deleted object is forgotten, also where another object took its name.
func TestOnlyTheRecordedObjectIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		live   string
		fenced bool
		want   atoll.Reason
		writes []string
		gone   bool
	}{
		"the recorded object":         {"uid: o1", true, "", []string{"DELETE conf"}, true},
		"an agent without its lease":  {"uid: o1", false, atoll.ReasonNotLeaseHolder, nil, false},
		"it is gone already":          {"", true, "", nil, true},
		"another object has its name": {"uid: o2", true, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, " + c.live + "}"}
			}
			api := newMemoryMember(t, objects...)
			e := engineOn(t, api, ownership.Record{
				Key: confKey, APIVersion: "v1", UID: "o1", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, withTombstones(newManifest("b1", 2), atoll.Tombstone{Key: confKey, UID: "t", Cause: atoll.CauseDeleted}))
			e.o.Lease = heldLease(func() bool { return c.fenced })
			f := e.workOnKey(t.Context(), confKey)
			if reasonOf(f) != c.want {
				t.Errorf("it fails with %+v, want %q", f, c.want)
			}
			api.expectWrites(t, c.writes...)
			if _, known := e.book.Record(confKey); known == c.gone || c.gone != (len(e.CarriedOut("b1")) == 1) {
				t.Errorf("recorded %t, carried out %v", known, e.CarriedOut("b1"))
			}
		})
	}
}

// A deletion that was asked for and did not begin is asked for again; one that began is waited for.
func TestDeletionsAreWaitedForOnceTheyBegan(t *testing.T) {
	for name, c := range map[string]struct {
		meta   string
		writes []string
		want   atoll.Reason
	}{
		"it has not begun": {"uid: o1", []string{"DELETE conf"}, ""},
		"it began":         {"uid: o1, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x.dev/f]", nil, atoll.ReasonTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, "+c.meta+"}")
			e := engineOn(t, api, ownership.Record{
				Key: confKey, APIVersion: "v1", UID: "o1", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, withTombstones(newManifest("b1", 2), atoll.Tombstone{Key: confKey, UID: "t", Cause: atoll.CauseDeleted}))
			e.mu.Lock()
			e.ensureTask(confKey).weigh = false
			e.ensureTask(confKey).failure = &Failure{Reason: atoll.ReasonTerminating}
			e.mu.Unlock()
			if f := e.workOnKey(t.Context(), confKey); reasonOf(f) != c.want {
				t.Errorf("it fails with %+v, want %q", f, c.want)
			}
			api.expectWrites(t, c.writes...)
		})
	}
}

// A finalizer that Atoll applied and the hub released is removed from an object that is being deleted.
// An object that went before the request is no failure, and a changed object is a conflict.
func TestReleasedFinalizersAreRemoved(t *testing.T) {
	const begun = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, uid: o1, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x.dev/sent, x.dev/other], managedFields: [" +
		"{manager: " + atoll.FieldManager + ", operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {f:metadata: {f:finalizers: {'v:\"x.dev/sent\"': {}}}}}]}"
	for name, c := range map[string]struct {
		release string
		refuse  int // status code of the patch; 0: it succeeds
		want    atoll.Reason
		left    string // finalizers
		held    string // part of the message
	}{
		"it is released":        {"x.dev/sent", 0, atoll.ReasonTerminating, "x.dev/other", "waits for the finalizers x.dev/other:"},
		"another one":           {"x.dev/other", 0, atoll.ReasonTerminating, "x.dev/sent x.dev/other", "waits for the finalizers x.dev/sent, x.dev/other:"},
		"the object went":       {"x.dev/sent", http.StatusNotFound, atoll.ReasonTerminating, "x.dev/sent x.dev/other", "waits for the finalizers x.dev/other:"},
		"the object changed":    {"x.dev/sent", http.StatusConflict, atoll.ReasonConflict, "x.dev/sent x.dev/other", ""},
		"the member refuses it": {"x.dev/sent", http.StatusForbidden, atoll.ReasonForbidden, "x.dev/sent x.dev/other", ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, begun)
			e := engineOn(t, refusePatches(api, c.refuse), ownership.Record{
				Key: confKey, APIVersion: "v1", UID: "o1", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, withTombstones(newManifest("b1", 2), atoll.Tombstone{Key: confKey, UID: "t", Cause: atoll.CauseDeleted, ReleasedFinalizers: []string{c.release}}))
			e.mu.Lock()
			e.ensureTask(confKey).weigh = false
			e.ensureTask(confKey).failure = &Failure{Reason: atoll.ReasonTerminating}
			e.mu.Unlock()
			f := e.workOnKey(t.Context(), confKey)
			if reasonOf(f) != c.want || !strings.Contains(f.Message, c.held) {
				t.Errorf("it fails with %+v, want %q %q", f, c.want, c.held)
			}
			meta := api.objects["/api/v1/namespaces/shop/configmaps/conf"]["metadata"].(map[string]any)
			if got := strings.Trim(fmt.Sprint(meta["finalizers"]), "[]"); got != c.left {
				t.Errorf("the finalizers are %q, want %q", got, c.left)
			}
		})
	}
}

// refusePatches answers patches with a status code; 0: it passes them on.
func refusePatches(api http.Handler, code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || code == 0 {
			api.ServeHTTP(w, r)
			return
		}
		refuseRequest(w, code)
	})
}

// refuseRequest answers a request with the Status of a code.
func refuseRequest(w http.ResponseWriter, code int) {
	reasons := map[int]string{
		http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict", http.StatusForbidden: "Forbidden", http.StatusUnprocessableEntity: "Invalid",
	}
	_, status := failRequest(code, reasons[code])
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}
