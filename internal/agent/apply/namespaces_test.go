package apply

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

var teamLabels = atoll.NamespaceMeta{Labels: map[string]string{"team": "blue", corev1NameLabel: "other"}, Annotations: map[string]string{"note": "n"}}

// shopManifest is a manifest of b1 that has the namespace shop with labels.
func shopManifest(items ...atoll.RenderedItem) atoll.Manifest {
	m := newManifest("b1", 1, items...)
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": teamLabels}
	return m
}

// A namespace that fails to be made or updated fails for its reason. One of users is left as it is.
func TestANamespaceIsMadeOrFails(t *testing.T) {
	conflict := apierrors.NewConflict(configMaps, "shop", errors.New("why"))
	const users = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n1}"
	ours := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n1, labels: {" + atoll.LabelBundleUID + ": b7, " + ownership.LabelTemplateUID + ": namespace}}"
	unmade := shopNamespace
	unmade.UID, unmade.Label = "", ""
	for name, c := range map[string]struct {
		live             string
		record           ownership.Record
		refused          refusals
		denied           bool
		want             *Failure
		label            string // of the record after it
		foreign, checked bool
	}{
		"it is made":                    {live: "", record: unmade, label: "b1"},
		"it was made before":            {live: ours, record: unmade, label: "b7"},
		"it is the users'":              {live: users, record: unmade, foreign: true},
		"it is brought up to date":      {live: ours, record: shopNamespace, label: "b1"},
		"it cannot be read":             {live: ours, record: unmade, refused: refusals{"GET shop": memberBusy()}, want: busyFailure},
		"it cannot be written":          {live: ours, record: shopNamespace, refused: refusals{"PATCH shop": memberBusy()}, want: busyFailure, label: "b1"},
		"another one has its name":      {live: ours, record: shopNamespace, refused: refusals{"PATCH shop": conflict}, want: &Failure{Reason: atoll.ReasonConflict, Message: conflict.Error()}, label: "b1", checked: true},
		"another writer is quicker":     {live: "", record: unmade, refused: refusals{"PATCH shop": conflict}, want: &Failure{Reason: atoll.ReasonConflict, Message: conflict.Error()}},
		"the policy denies it":          {live: "", record: unmade, denied: true, want: deniedFailure("")},
		"the policy denies its changes": {live: ours, record: shopNamespace, denied: true, want: deniedFailure(""), label: "b1"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t)
			delete(api.objects, "/api/v1/namespaces/shop")
			if c.live != "" {
				api = newMemoryMember(t, c.live)
			}
			e := newStubEngine(t, refuseSome(api, c.refused), []ownership.Record{c.record}, shopManifest(confItem("x")))
			if c.denied {
				e.limitAgent(t, "{clusterScoped: Deny}")
			}
			f := e.ensureNamespace(t.Context(), "shop")
			if f != nil && c.denied {
				c.want.Message = f.Message
			}
			expectFailure(t, f, c.want)
			r := e.recordOf(shopNamespace.Key)
			if r.Label != c.label || e.foreign["shop"] != c.foreign || e.holdTask(shopNamespace.Key).check != c.checked {
				t.Errorf("the record is %+v, foreign: %t", r, e.foreign["shop"])
			}
			if _, known := e.book.Record(shopNamespace.Key); known == c.foreign {
				t.Errorf("it is recorded: %t", known)
			}
			if c.want != nil || c.foreign {
				api.expectWrites(t)
				return
			}
			api.expectWrites(t, "APPLY shop "+atoll.FieldManager)
			if v, seen := e.viewOf(shopNamespace.Key); !seen || v.Owned != r.Owned || r.Applied != metaHash(teamLabels) || !r.Implicit || !slices.Equal(e.takeCalls(), []string{"watch Namespace"}) {
				t.Errorf("it is seen as %+v, %t; the record is %+v", v, seen, r)
			}
		})
	}
}

// A namespace carries the labels and annotations of the hub's, and Atoll's own labels.
func TestTheBodyOfANamespace(t *testing.T) {
	labels := map[string]any{atoll.LabelBundleUID: "b1", ownership.LabelTemplateUID: "namespace"}
	for _, c := range []struct {
		uid  string
		meta atoll.NamespaceMeta
		want map[string]any
	}{
		{"", atoll.NamespaceMeta{}, map[string]any{"name": "shop", "labels": labels}},
		{"u", teamLabels, map[string]any{"name": "shop", "uid": "u", "annotations": map[string]any{"note": "n"}, "labels": mergeValues(labels, map[string]any{"team": "blue"})}},
	} {
		expectEqualJSON(t, namespaceBody("shop", c.uid, "b1", c.meta), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": c.want})
	}
}

// Namespaces are made for what is to be in them, once each, where none is known to exist.
func TestNamespacesThatAreMissing(t *testing.T) {
	intended := func(ns string) ownership.Record {
		return ownership.Record{Key: atoll.NamespaceKey(ns), Implicit: true}
	}
	claimed, ours := intended("claimed"), intended("ours")
	claimed.Claims = map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}}
	ours.Implicit = false
	observed := observeAs(confItem("x"), atoll.ObserveDrift)
	observed.Key.Namespace = "observed"
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, intended("missing"), intended("foreign"), intended("observed"), claimed, ours, intended("wiki")}, newManifest("b1", 1, observed))
	e.foreign["foreign"] = true
	var keys []atoll.ItemKey
	for _, ns := range []string{"", "shop", "missing", "missing", "foreign", "claimed", "ours", "unknown", "wiki"} {
		keys = append(keys, atoll.ItemKey{Kind: "ConfigMap", Namespace: ns, Name: "c"})
	}
	for range 2 {
		if got := e.missingNamespaces(append(keys, observed.Key)); !slices.Equal(got, []string{"missing", "wiki"}) {
			t.Errorf("missing are %q", got)
		}
	}
}

// Only a namespace with a name that is not the users' is intended.
func TestForeignNamespacesAreNotIntended(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	e.foreign["foreign"] = true
	for ns, want := range map[string]bool{"": false, "foreign": false, "blog": true} {
		e.intendNamespace(ns)
		if r, known := e.book.Record(atoll.NamespaceKey(ns)); known != want || r.Implicit != want {
			t.Errorf("%q is intended: %t", ns, known)
		}
	}
}

// A namespace is of the first Bundle by name that owns something in it, or else that has it alone.
func TestTheBundleOfANamespace(t *testing.T) {
	of := func(name, owner string) ownership.Record {
		r := wantedRecord(confItem("x"))
		r.Key.Name, r.Owner, r.Claims = name, owner, map[string]ownership.Claim{owner: {State: ownership.Wanted, Template: "t"}}
		return r
	}
	alone := func(bundle string) atoll.Manifest {
		m := shopManifest()
		m.Bundle = bundle
		return m
	}
	for name, c := range map[string]struct {
		records   []ownership.Record
		manifests []atoll.Manifest
		want      string
	}{
		"objects are in it":           {[]ownership.Record{of("a", "b3"), of("b", "b2"), of("c", "b4")}, []atoll.Manifest{alone("b1")}, "b2"},
		"nothing is in it":            {nil, []atoll.Manifest{alone("b6"), alone("b5")}, "b5"},
		"nothing is in it, or has it": {nil, nil, ""},
	} {
		e := newStubEngine(t, newMemoryMember(t), c.records, c.manifests...)
		if got := e.owningBundleOfNamespace("shop"); got != c.want {
			t.Errorf("%s: it is of %q, want %q", name, got, c.want)
		}
	}
}

// A namespace is stale where the agent made it for something, and it is missing or has other labels than the hub's.
func TestANamespaceThatIsStale(t *testing.T) {
	with := func(edit func(*ownership.Record)) ownership.Record {
		r := shopNamespace
		r.Applied = metaHash(teamLabels)
		edit(&r)
		return r
	}
	for name, c := range map[string]struct {
		record ownership.Record
		key    atoll.ItemKey
		want   bool
	}{
		"as the hub's":             {with(func(*ownership.Record) {}), shopNamespace.Key, false},
		"other labels":             {with(func(r *ownership.Record) { r.Applied = "before" }), shopNamespace.Key, true},
		"missing":                  {with(func(r *ownership.Record) { r.UID = "" }), shopNamespace.Key, true},
		"of users":                 {with(func(r *ownership.Record) { r.UID, r.Implicit = "", false }), shopNamespace.Key, false},
		"deleted on the hub":       {with(func(r *ownership.Record) { r.UID, r.Doomed = "", true }), shopNamespace.Key, false},
		"an item of a Bundle":      {with(func(r *ownership.Record) { r.UID, r.Claims = "", map[string]ownership.Claim{"b1": {}} }), shopNamespace.Key, false},
		"not needed":               {with(func(r *ownership.Record) { r.UID = "" }), atoll.NamespaceKey("blog"), false},
		"an object of like record": {with(func(r *ownership.Record) { r.UID = "" }), atoll.ItemKey{Kind: "ConfigMap", Name: "shop"}, false},
	} {
		e := newStubEngine(t, newMemoryMember(t), nil, shopManifest())
		if got := e.namespaceIsStale(c.key, &c.record); got != c.want {
			t.Errorf("%s: it is stale: %t", name, got)
		}
	}
}

// A namespace is kept while something of Atoll's is in it, or while it is not known what is in it.
func TestANamespaceIsKeptForWhatIsInIt(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps, "secrets", errors.New("why"))
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, uid: p1, deletionTimestamp: 2026-01-01T00:00:00Z}"
	waits := &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second, Message: "Namespace shop goes after 1 objects that depend on it"}
	for name, c := range map[string]struct {
		records []ownership.Record
		objects []string
		refused refusals
		want    *Failure
	}{
		"it is empty":             {want: nil},
		"Atoll's object is in it": {records: []ownership.Record{wantedRecord(confItem("x"))}, want: &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second, Message: "namespace shop goes after what Atoll applied in it"}},
		"an object goes":          {objects: []string{pod}, want: waits},
		"foreign and going ones":  {objects: []string{pod, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop, uid: s1}"}, want: &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: "Namespace shop is kept: deleting it would take along 1 objects that Atoll did not apply (Secret shop/s): delete those in the member first"}},
		"a kind is not listed":    {refused: refusals{"GET secrets": forbidden}, want: &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: "Namespace shop is kept: the agent may not list secrets, so foreign objects there cannot be seen: allow that in a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true"}},
		"the member is busy":      {refused: refusals{"GET apis": memberBusy()}, want: busyFailure},
	} {
		t.Run(name, func(t *testing.T) {
			refused := refusals{}
			e := newStubEngine(t, refuseSome(newMemoryMember(t, c.objects...), refused), append([]ownership.Record{shopNamespace}, c.records...))
			for request, err := range c.refused {
				refused[request] = err
			}
			f := e.guardDeletion(t.Context(), pendingWork{Step: ownership.Step{Key: shopNamespace.Key, Record: shopNamespace}})
			if f != nil && c.want == busyFailure {
				f.Message = c.want.Message // of discovery
			}
			expectFailure(t, f, c.want)
		})
	}
	e := newStubEngine(t, &partial{versions: map[string]bool{"v1": false}}, []ownership.Record{shopNamespace})
	want := *discoveryFailure("example.io")
	want.Message = "namespace shop is kept while it is not known what is in it: " + want.Message
	expectFailure(t, e.guardNamespace(t.Context(), pendingWork{Step: ownership.Step{Key: shopNamespace.Key}}), &want)
}

// An object that others in the namespace own goes with them. One that a cluster-wide or unknown owner has does not.
func TestOwnedObjectsComeWithTheNamespace(t *testing.T) {
	own := func(kinds ...string) (out []metav1.OwnerReference) {
		for _, kind := range kinds {
			version, name, _ := strings.Cut(kind, " ")
			out = append(out, metav1.OwnerReference{APIVersion: version, Kind: name})
		}
		return out
	}
	for name, c := range map[string]struct {
		key    atoll.ItemKey
		owners []metav1.OwnerReference
		want   bool
	}{
		"nothing owns it":           {confKey, nil, false},
		"an object in it owns it":   {confKey, own("apps/v1 ReplicaSet"), true},
		"two objects own it":        {confKey, own("apps/v1 ReplicaSet", "v1 Pod"), true},
		"a node owns it":            {confKey, own("v1 Node"), false},
		"a node owns it, too":       {confKey, own("v1 Pod", "v1 Node"), false},
		"an unknown kind owns it":   {confKey, own("gadgets.io/v1 Gadget"), false},
		"Kubernetes makes it":       {atoll.ItemKey{Kind: "Event", Namespace: "shop", Name: "e"}, nil, true},
		"an event of another group": {atoll.ItemKey{Group: "gadgets.io", Kind: "Event", Namespace: "shop", Name: "e"}, nil, false},
	} {
		e := newStubEngine(t, newMemoryMember(t), nil)
		m := &metav1.PartialObjectMetadata{}
		m.OwnerReferences = c.owners
		if got := e.comesWithNamespace(m, c.key); got != c.want {
			t.Errorf("%s: it comes with the namespace: %t", name, got)
		}
	}
}

// The volume claims of a StatefulSet are recorded before it goes with its namespace, and only of that very set.
func TestVolumeClaimsAreRecordedBeforeTheirSetGoes(t *testing.T) {
	set := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop, uid: live, managedFields: [{manager: controllers, operation: Update, subresource: status, fieldsV1: {"f:status": {}}}]},
 spec: {selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: data}}]}}`
	claim := `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-0, uid: c0, namespace: shop, labels: {app: db}, managedFields: [{manager: controllers, operation: Update, fieldsV1: {"f:spec": {"f:accessModes": {}}}}]}}`
	item := atoll.RenderedItem{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, APIVersion: "apps/v1", UID: "t"}
	deployment := item
	deployment.Key.Kind = "Deployment"
	elsewhere := item
	elsewhere.Key.Group = "gadgets.io"
	adopted := wantedRecord(item)
	adopted.Adopted = true
	forbidden := apierrors.NewForbidden(configMaps, "x", nil)
	for name, c := range map[string]struct {
		record  ownership.Record
		kept    bool // the namespace was not deleted on the hub
		set     string
		refused refusals
		refuses error
		want    *Failure
		stored  bool
	}{
		"they are recorded":             {record: wantedRecord(item), set: set, stored: true},
		"they are not stored":           {record: wantedRecord(item), set: set, refuses: errors.New("refused"), want: &Failure{Reason: atoll.ReasonApplyFailed, Message: "refused"}, stored: true},
		"the namespace stays":           {record: wantedRecord(item), set: set, kept: true},
		"the set was there before":      {record: adopted, set: set},
		"another kind":                  {record: wantedRecord(deployment), set: set},
		"a kind of another group":       {record: wantedRecord(elsewhere), set: set},
		"the set went":                  {record: wantedRecord(item), set: claim},
		"another set has its name":      {record: wantedRecord(item), set: strings.Replace(set, "uid: live", "uid: other", 1)},
		"it has no claims":              {record: wantedRecord(item), set: strings.Replace(set, "{name: data}", "{name: log}", 1)},
		"the set cannot be read":        {record: wantedRecord(item), set: set, refused: refusals{"GET db": memberBusy()}, want: busyFailure},
		"the claims cannot be listed":   {record: wantedRecord(item), set: set, refused: refusals{"GET persistentvolumeclaims": memberBusy()}, want: busyFailure},
		"the claims may not be listed":  {record: wantedRecord(item), set: set, refused: refusals{"GET persistentvolumeclaims": forbidden}},
		"its controller is not known":   {record: wantedRecord(item), set: strings.Replace(set, "subresource: status, ", "", 1)},
		"it selects by no label at all": {record: wantedRecord(item), set: strings.Replace(set, "matchLabels: {app: db}", "matchExpressions: []", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			doomed := shopNamespace
			doomed.Doomed = !c.kept
			e := newStubEngine(t, refuseSome(newMemoryMember(t, claim, c.set), c.refused), []ownership.Record{doomed, c.record})
			e.refuses = c.refuses
			p := pendingWork{Step: ownership.Step{Key: c.record.Key, Record: c.record}}
			res, _ := e.resourceFor(t.Context(), item.Key, "apps/v1")
			expectFailure(t, e.recordSetVolumeClaims(t.Context(), p, res), c.want)
			if got := e.recordOf(doomed.Key).SetClaims; len(got) > 0 != c.stored || c.stored && got[0] != "c0" || len(e.takeCalls()) > 0 != c.stored {
				t.Errorf("recorded are %q", got)
			}
		})
	}
}

// The recorded volume claims count for their namespace alone, and only where the guard sees all claims.
func TestRecordedVolumeClaimsGoWithTheirNamespace(t *testing.T) {
	doomed := shopNamespace
	doomed.Doomed, doomed.SetClaims = true, []string{"c0"}
	many := func(n int) http.Handler {
		member := newMemoryMember(t)
		var objects strings.Builder
		for i := range n {
			fmt.Fprintf(&objects, `,{"metadata":{"name":"c%d","namespace":"shop","uid":"c0"}}`, i)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims") {
				member.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[%s]}`, strings.TrimPrefix(objects.String(), ","))
		})
	}
	tooMany := &Failure{
		Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
		Message: "Namespace shop is kept: it has 500 volume claims or more, and the agent looks at fewer: delete the claims in the member first",
	}
	for n, want := range map[int]*Failure{0: nil, 499: nil, 500: tooMany} {
		e := newStubEngine(t, many(n), []ownership.Record{doomed})
		expectFailure(t, e.guardAgainstObjectsOfKind(t.Context(), volumeClaims, "shop", doomed.Key), want)
	}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{doomed})
	other := volumeClaims
	other.Group = "gadgets.io"
	for range 2 {
		if got := e.recordedVolumeClaimsIn(volumeClaims, "shop"); !slices.Equal(got, []string{"c0"}) {
			t.Errorf("of the namespace they are %q", got)
		}
	}
	if a, b, c := e.recordedVolumeClaimsIn(other, "shop"), e.recordedVolumeClaimsIn(namespaces, "shop"), e.recordedVolumeClaimsIn(volumeClaims, ""); a != nil || b != nil || c != nil {
		t.Errorf("of others they are %q, %q, %q", a, b, c)
	}
	e.book.RestoreRecord(ownership.Record{Key: atoll.NamespaceKey("kept"), UID: "n2", Implicit: true})
	e.book.RestoreRecord(ownership.Record{Key: atoll.NamespaceKey("users"), UID: "n3", Doomed: true})
	for ns, want := range map[string]bool{"shop": true, "kept": false, "users": false, "unknown": false} {
		if got := e.isNamespaceDoomed(ns); got != want {
			t.Errorf("%s is deleted on the hub: %t", ns, got)
		}
	}
}
