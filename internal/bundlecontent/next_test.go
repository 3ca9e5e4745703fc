package bundlecontent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// fakeHub is a World of plain values.
type fakeHub struct {
	templates map[atoll.ItemKey]*unstructured.Unstructured
	placers   map[atoll.ItemKey]PlacedBy
	held      map[atoll.ItemKey]bool
	deleted   map[string]bool
	holders   map[atoll.ItemKey][]string
	crds      map[atoll.ItemKey]atoll.ItemKey
	hubOnly   map[atoll.ItemKey]bool
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, placers: map[atoll.ItemKey]PlacedBy{}, held: map[atoll.ItemKey]bool{},
		deleted: map[string]bool{}, holders: map[atoll.ItemKey][]string{}, crds: map[atoll.ItemKey]atoll.ItemKey{},
	}
}

func (m *fakeHub) TemplateOf(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := m.templates[key]
	return t, ok
}
func (m *fakeHub) PlacedBy(key atoll.ItemKey) (PlacedBy, bool)   { return m.placers[key], m.held[key] }
func (m *fakeHub) WasDeleted(key atoll.ItemKey, uid string) bool { return m.deleted[key.String()+uid] }
func (m *fakeHub) OtherHolderUIDs(key atoll.ItemKey) []string    { return m.holders[key] }
func (m *fakeHub) SelectedKeys(s atoll.Selection) (out []atoll.ItemKey) {
	for key, t := range m.templates {
		if s.SelectsKey(key) && ParseSelection(s).Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}
func (m *fakeHub) IsHubOnly(t *unstructured.Unstructured) bool {
	return m.hubOnly[policymatch.ItemKeyOf(t)]
}
func (m *fakeHub) DefinitionOf(key atoll.ItemKey) (atoll.ItemKey, bool) {
	crd, ok := m.crds[key]
	return crd, ok
}

// putTemplate a template that uses others of its namespace, named Kind/name.
func (m *fakeHub) putTemplate(key atoll.ItemKey, uid string, uses ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": strings.TrimPrefix(key.Group+"/v1", "/"), "kind": key.Kind,
		"metadata": map[string]any{"name": key.Name, "uid": uid, "generation": int64(1), "finalizers": []any{atoll.Finalizer}},
	}}
	if key.Namespace != "" {
		o.SetNamespace(key.Namespace)
	}
	if len(uses) > 0 {
		pod := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}
		var volumes []any
		for _, u := range uses {
			kind, name, _ := strings.Cut(u, "/")
			switch kind {
			case "ConfigMap":
				volumes = append(volumes, map[string]any{"name": name, "configMap": map[string]any{"name": name}})
			case "Secret":
				volumes = append(volumes, map[string]any{"name": name, "secret": map[string]any{"secretName": name}})
			case "PersistentVolumeClaim":
				volumes = append(volumes, map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name}})
			case "ServiceAccount":
				pod["serviceAccountName"] = name
			}
		}
		pod["volumes"] = volumes
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": pod}}
	}
	m.templates[key] = o
	return o
}

func (m *fakeHub) markDeleting(key atoll.ItemKey) {
	o := m.templates[key].DeepCopy()
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	m.templates[key] = o
	delete(m.placers, key)
}

func editTemplate(o *unstructured.Unstructured, value string) {
	o.Object["data"] = map[string]any{"v": value}
	o.SetGeneration(o.GetGeneration() + 1)
}

func shopKey(kind, name string) atoll.ItemKey {
	group := ""
	if kind == "Deployment" {
		group = "apps"
	}
	return atoll.ItemKey{Group: group, Kind: kind, Namespace: "shop", Name: name}
}

// bundleTest plans one Bundle again and again, as its Binder would.
type bundleTest struct {
	t         *testing.T
	m         *fakeHub
	in        Input
	revisions int
}

func newBundleTest(t *testing.T, m *fakeHub, deps bool) *bundleTest {
	s := policymatch.IntentFromAnnotation(map[string]string{atoll.AnnotationClusters: "*"}).Spec
	s.PropagateDeps = deps
	return &bundleTest{t: t, m: m, in: Input{Templates: m, Holders: m, Intent: &policymatch.Intent{Spec: s}}}
}

func (b *bundleTest) planNext() Output {
	b.t.Helper()
	b.in.Chosen = nil
	for key, c := range b.m.placers {
		if c == PlacedByThis {
			b.in.Chosen = append(b.in.Chosen, key)
		}
	}
	slices.SortFunc(b.in.Chosen, atoll.ItemKey.Compare)
	out := NextContent(b.in)
	if out.NeedsRevision {
		b.revisions++
		b.in.Previous = &out.Content
	}
	if again := NextContent(b.in); again.NeedsRevision {
		b.t.Errorf("planned again, the same world needs another revision:\n%s\nafter\n%s", formatContent(again.Content), formatContent(out.Content))
	}
	return out
}

// formatContent content in a line: items with their marks, then tombstones.
func formatContent(c atoll.Content) string {
	var out []string
	for _, i := range c.Items {
		s := i.Key.Kind + "/" + i.Key.Name + "@" + i.UID
		if i.Dependency {
			s += "+"
		}
		if i.State != "" {
			s += "(" + string(i.State) + ")"
		}
		out = append(out, s)
	}
	for _, x := range c.Tombstones {
		out = append(out, fmt.Sprintf("-%s/%s@%s:%s%v", x.Key.Kind, x.Key.Name, x.UID, x.Cause, x.MovedTo))
	}
	return strings.Join(out, " ")
}

func (b *bundleTest) wantContent(what, content string, cuts int) Output {
	b.t.Helper()
	out := b.planNext()
	if got := formatContent(out.Content); got != content || b.revisions != cuts {
		b.t.Errorf("%s: %q after %d cuts, want %q after %d", what, got, b.revisions, content, cuts)
	}
	return out
}

func TestTemplatesAreAddedChangedAndDeleted(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	b.wantContent("nothing", "", 0)
	a, c := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "c")
	m.putTemplate(a, "1")
	m.placers[a] = PlacedByThis
	b.wantContent("one", "ConfigMap/a@1", 1)
	m.putTemplate(c, "2")
	m.placers[c] = PlacedByThis
	b.wantContent("two", "ConfigMap/a@1 ConfigMap/c@2", 2)
	editTemplate(m.templates[a], "x")
	before := b.in.Previous.Items[0].Hash
	b.wantContent("edited", "ConfigMap/a@1 ConfigMap/c@2", 3)
	if b.in.Previous.Items[0].Hash == before {
		t.Error("the edit is not in the content")
	}
	m.markDeleting(a)
	b.wantContent("deleting", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
	delete(m.templates, a)
	b.wantContent("deleted", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
	m.putTemplate(a, "3")
	m.placers[a] = PlacedByThis
	b.wantContent("made again", "ConfigMap/a@3 ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 5)
	b.in.IsConfirmed = func(x atoll.Tombstone) bool { return true }
	b.wantContent("confirmed", "ConfigMap/a@3 ConfigMap/c@2", 5)
	editTemplate(m.templates[c], "y")
	b.wantContent("next revision without it", "ConfigMap/a@3 ConfigMap/c@2", 6)
	if len(b.in.Previous.Tombstones) > 0 {
		t.Errorf("confirmed tombstones are still there: %v", b.in.Previous.Tombstones)
	}
}

func TestRecreatedUnseen(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "1")
	m.placers[a] = PlacedByThis
	b.planNext()
	m.putTemplate(a, "2")
	b.wantContent("another UID", "ConfigMap/a@2 -ConfigMap/a@1:Deleted[]", 2)
	m.putTemplate(a, "3")
	delete(m.placers, a)
	b.wantContent("another UID without a policy", "-ConfigMap/a@1:Deleted[] -ConfigMap/a@2:Deleted[]", 3)
}

func TestMissingIsNotDeleted(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a, c := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "c")
	m.putTemplate(a, "1")
	m.putTemplate(c, "2")
	m.placers[a], m.placers[c] = PlacedByThis, PlacedByThis
	b.planNext()
	gone := m.templates[a]
	delete(m.templates, a)
	delete(m.placers, a)
	b.wantContent("vanished", "ConfigMap/a@1(Unaccounted) ConfigMap/c@2", 2)
	m.templates[a] = gone
	m.placers[a] = PlacedByThis
	b.wantContent("back", "ConfigMap/a@1 ConfigMap/c@2", 3)
	delete(m.templates, a)
	delete(m.placers, a)
	m.deleted[a.String()+"1"] = true
	b.wantContent("vanished, but a user was seen to delete it", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
}

func TestItemsWithoutPolicyFreeze(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w] = PlacedByThis
	b.wantContent("placed", "ConfigMap/cfg@2+ Deployment/web@1", 1)
	intent := b.in.Intent
	b.in.Intent = nil
	delete(m.placers, w)
	hash := b.in.Previous.Items[1].Hash
	b.wantContent("policy gone", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1(Unclaimed)", 2)
	editTemplate(m.templates[w], "x")
	editTemplate(m.templates[cfg], "x")
	b.wantContent("edits are not sent", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1(Unclaimed)", 2)
	if b.in.Previous.Items[1].Hash != hash {
		t.Error("a frozen item changed")
	}
	b.in.Intent = intent
	m.placers[w] = PlacedByThis
	b.wantContent("policy back", "ConfigMap/cfg@2+ Deployment/web@1", 3)
	if b.in.Previous.Items[1].Hash == hash {
		t.Error("the edit made while frozen is not sent")
	}
	delete(m.placers, w)
	b.planNext()
	m.markDeleting(w)
	b.wantContent("deleted while frozen", "-ConfigMap/cfg@2:Unused[] -Deployment/web@1:Deleted[]", 5)
}

func TestDependencies(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg, sec, sa, pvc := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg"), shopKey("Secret", "sec"), shopKey("ServiceAccount", "sa"), shopKey("PersistentVolumeClaim", "pvc")
	m.putTemplate(w, "1", "ConfigMap/cfg", "Secret/sec", "ServiceAccount/sa", "PersistentVolumeClaim/pvc")
	m.placers[w] = PlacedByThis
	out := b.wantContent("none exist", "Deployment/web@1", 1)
	if len(out.Dependencies) != 4 {
		t.Errorf("wants %v, want four", out.Dependencies)
	}
	m.putTemplate(cfg, "2")
	m.putTemplate(sec, "3")
	m.putTemplate(sa, "4")
	m.putTemplate(pvc, "5")
	b.wantContent("all exist", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+ Secret/sec@3+ ServiceAccount/sa@4+ Deployment/web@1", 2)
	m.putTemplate(w, "1", "ConfigMap/cfg").SetGeneration(2)
	b.wantContent("most are not used any more", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+(Unclaimed) Deployment/web@1 -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[]", 3)
	m.putTemplate(w, "1", "ConfigMap/cfg", "Secret/sec").SetGeneration(3)
	b.wantContent("used again before it was confirmed", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+(Unclaimed) Secret/sec@3+ Deployment/web@1 -ServiceAccount/sa@4:Unused[]", 4)
	m.holders[cfg] = []string{"other"}
	m.markDeleting(w)
	b.wantContent("the user goes; another bundle has one of them", "PersistentVolumeClaim/pvc@5+(Unclaimed) -ConfigMap/cfg@2:Unused[other] -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[] -Deployment/web@1:Deleted[]", 5)
	m.markDeleting(pvc)
	b.wantContent("a user deletes the volume claim", "-ConfigMap/cfg@2:Unused[other] -PersistentVolumeClaim/pvc@5:Deleted[] -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[] -Deployment/web@1:Deleted[]", 6)
}

func TestHubSecretsAreNeverDependencies(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, sec := shopKey("Deployment", "web"), shopKey("Secret", "push-oslo")
	m.putTemplate(w, "1", "Secret/push-oslo")
	m.putTemplate(sec, "2").Object["type"] = "atoll.dev/push"
	m.placers[w] = PlacedByThis
	b.wantContent("credentials of a member", "Deployment/web@1", 1)
}

func TestDefinitionsFollowTheirObjects(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	widget := atoll.ItemKey{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"}
	crd := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
	m.putTemplate(widget, "1")
	m.putTemplate(crd, "2")
	m.crds[widget] = crd
	m.placers[widget] = PlacedByThis
	b.wantContent("with its CRD", "CustomResourceDefinition/widgets.example.com@2+ Widget/w@1", 1)
	m.markDeleting(widget)
	b.wantContent("the CRD stays", "CustomResourceDefinition/widgets.example.com@2+(Unclaimed) -Widget/w@1:Deleted[]", 2)
}

func TestDependenciesSwitchedOff(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w] = PlacedByThis
	b.planNext()
	b.in.Intent.Spec.PropagateDeps = false
	b.wantContent("switched off", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1", 2)
	m.markDeleting(w)
	b.wantContent("the user goes", "-ConfigMap/cfg@2:Unused[] -Deployment/web@1:Deleted[]", 3)
}

func TestItemsMoveBetweenBundles(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w] = PlacedByThis
	b.planNext()
	m.placers[w] = PlacedByOther
	out := b.wantContent("the other bundle does not have it yet", "ConfigMap/cfg@2+ Deployment/web@1", 1)
	if fmt.Sprint(out.HandoverPending) != fmt.Sprint([]atoll.ItemKey{w}) {
		t.Errorf("waiting %v, want the deployment", out.HandoverPending)
	}
	m.held[w] = true
	m.holders[w], m.holders[cfg] = []string{"other"}, []string{"other"}
	b.wantContent("it has it", "-ConfigMap/cfg@2:Unused[other] -Deployment/web@1:Moved[other]", 2)
	m.placers[w], m.held[w] = PlacedByThis, false
	b.wantContent("and back", "ConfigMap/cfg@2+ Deployment/web@1", 3)
}

func TestChosenAndNeeded(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w], m.placers[cfg] = PlacedByThis, PlacedByThis
	b.wantContent("both chosen", "ConfigMap/cfg@2 Deployment/web@1", 1)
	m.placers[cfg], m.held[cfg] = PlacedByOther, true
	m.holders[cfg] = []string{"other"}
	b.wantContent("chosen elsewhere, needed here", "ConfigMap/cfg@2+ Deployment/web@1", 2)
	m.markDeleting(cfg)
	b.wantContent("deleted", "Deployment/web@1 -ConfigMap/cfg@2:Deleted[]", 3)
}

func TestOrphanRemoval(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "1")
	m.placers[a] = PlacedByThis
	b.in.Intent.Spec.Removal.Mode = v1alpha1.RemoveOrphan
	b.planNext()
	b.in.Intent = nil
	m.markDeleting(a)
	out := b.planNext()
	if len(out.Content.Tombstones) != 1 || !out.Content.Tombstones[0].Orphan {
		t.Errorf("tombstones %+v, want one that orphans", out.Content.Tombstones)
	}
}

func TestFinalizerFirst(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg").SetFinalizers(nil)
	m.putTemplate(cfg, "2").SetFinalizers([]string{"example.com/other"})
	m.placers[w] = PlacedByThis
	if out := b.planNext(); fmt.Sprint(out.NeedFinalizer) != fmt.Sprint([]atoll.ItemKey{w, cfg}) {
		t.Errorf("to finalize: %v, want both", out.NeedFinalizer)
	}
}

func TestItemsAreDividedByTheirPlacement(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w] = PlacedByThis
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.planNext()
	if items := b.in.Previous.Items; items[0].Divided || !items[1].Divided {
		t.Errorf("divided: %v %v, want the deployment alone", items[0].Divided, items[1].Divided)
	}
	if b.in.Previous.Items[1].ReplicaOverrides {
		t.Error("replicas are handed over without a word")
	}
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaOverrides = v1alpha1.AllowReplicaOverrides
	b.planNext()
	if items := b.in.Previous.Items; items[0].ReplicaOverrides || !items[1].ReplicaOverrides {
		t.Errorf("handed over: %v %v, want the deployment's alone", items[0].ReplicaOverrides, items[1].ReplicaOverrides)
	}
	b.in.Intent.Spec.Placement.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}
	b.wantContent("duplicated again", "ConfigMap/cfg@2+ Deployment/web@1", 3)
}

// A hub that newly knows a kind divides no existing item by itself, only new or edited items.
func TestANewlyKnownKindDividesNothingByItself(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, false)
	key := atoll.ItemKey{Group: "argoproj.io", Kind: "Rollout", Namespace: "shop", Name: "web"}
	b.in.Fingerprint = func(o *unstructured.Unstructured) string { return fmt.Sprint(o.Object["spec"]) }
	o := m.putTemplate(key, "1")
	o.Object["spec"] = map[string]any{"replicas": int64(3)}
	m.placers[key] = PlacedByThis
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.planNext()
	if it := b.in.Previous.Items[0]; !it.Divided || it.ReplicaKindsVersion != atoll.CurrentReplicaKinds {
		t.Errorf("new: %+v", it)
	}
	b.in.Previous.Items[0].Divided, b.in.Previous.Items[0].ReplicaKindsVersion = false, 0 // as an older hub has it
	if out := b.planNext(); out.NeedsRevision || out.Content.Items[0].Divided {
		t.Errorf("untouched: cut %v, %+v", out.NeedsRevision, out.Content.Items[0])
	}
	edited := o.DeepCopy()
	edited.Object["spec"] = map[string]any{"replicas": int64(4)}
	m.templates[key] = edited
	if out := b.planNext(); !out.NeedsRevision || !out.Content.Items[0].Divided {
		t.Errorf("edited: cut %v, %+v", out.NeedsRevision, out.Content.Items[0])
	}
}

// A hub that newly converts kinds marks only new or edited items, so that it sends no existing item in another version by itself.
func TestANewVersionChoiceIsOfNewAndEditedItems(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, false)
	key := shopKey("Deployment", "web")
	b.in.Fingerprint = func(o *unstructured.Unstructured) string { return fmt.Sprint(o.Object["spec"]) }
	o := m.putTemplate(key, "1")
	m.placers[key] = PlacedByThis
	b.planNext()
	if it := b.in.Previous.Items[0]; it.VersionChoice != atoll.CurrentVersionChoice {
		t.Errorf("new: %+v", it)
	}
	b.in.Previous.Items[0].VersionChoice = 0 // as an older hub has it
	if out := b.planNext(); out.NeedsRevision || out.Content.Items[0].VersionChoice != 0 {
		t.Errorf("untouched: cut %v, %+v", out.NeedsRevision, out.Content.Items[0])
	}
	edited := o.DeepCopy()
	edited.Object["spec"] = map[string]any{"replicas": int64(4)}
	m.templates[key] = edited
	if out := b.planNext(); !out.NeedsRevision || out.Content.Items[0].VersionChoice != atoll.CurrentVersionChoice {
		t.Errorf("edited: cut %v, %+v", out.NeedsRevision, out.Content.Items[0])
	}
}

// failingDefaulter has no defaults for one object.
type failingDefaulter struct{ name string }

func (f failingDefaulter) Default(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.GetName() == f.name {
		return nil, errors.New("broken")
	}
	return o, nil
}

func TestUnreadableTemplateLeavesOthers(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a, c := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "c")
	m.putTemplate(a, "1")
	m.putTemplate(c, "2")
	m.placers[a], m.placers[c] = PlacedByThis, PlacedByThis
	b.planNext()
	editTemplate(m.templates[a], "x")
	b.in.Defaulter = failingDefaulter{"a"}
	editTemplate(m.templates[c], "x")
	out := b.wantContent("one is unreadable", "ConfigMap/a@1 ConfigMap/c@2", 2)
	if len(out.Problems) != 1 || out.Problems[0].Key != a {
		t.Errorf("problems %v", out.Problems)
	}
}

// The metadata of the namespace is content like any other. Unknown metadata changes nothing.
func TestNamespaceLabelsAreContent(t *testing.T) {
	m := newFakeHub()
	c := shopKey("ConfigMap", "c")
	m.putTemplate(c, "1")
	labelled := func(team string) *atoll.NamespaceMeta {
		return &atoll.NamespaceMeta{Labels: map[string]string{"team": team}}
	}
	in := Input{Chosen: []atoll.ItemKey{c}, Intent: &policymatch.Intent{}, Namespace: labelled("red"), Templates: m, Holders: m}
	red := NextContent(in).Content
	for _, step := range []struct {
		what string
		now  *atoll.NamespaceMeta
		cut  bool
		want string
	}{
		{"as before", labelled("red"), false, "red"},
		{"another label", labelled("blue"), true, "blue"},
		{"not known", nil, false, "red"},
	} {
		in.Previous, in.Namespace = &red, step.now
		if out := NextContent(in); out.NeedsRevision != step.cut || out.Content.Namespace.Labels["team"] != step.want {
			t.Errorf("%s: cut %t, %v", step.what, out.NeedsRevision, out.Content.Namespace)
		}
	}
}
