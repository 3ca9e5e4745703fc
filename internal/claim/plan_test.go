package claim

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
)

// memory is a World of plain values.
type memory struct {
	templates map[atoll.ItemKey]*unstructured.Unstructured
	claims    map[atoll.ItemKey]Claim
	held      map[atoll.ItemKey]bool
	deleted   map[string]bool
	holders   map[atoll.ItemKey][]string
	crds      map[atoll.ItemKey]atoll.ItemKey
}

func newMemory() *memory {
	return &memory{
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, claims: map[atoll.ItemKey]Claim{}, held: map[atoll.ItemKey]bool{},
		deleted: map[string]bool{}, holders: map[atoll.ItemKey][]string{}, crds: map[atoll.ItemKey]atoll.ItemKey{},
	}
}

func (m *memory) Template(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := m.templates[key]
	return t, ok
}
func (m *memory) Claim(key atoll.ItemKey) (Claim, bool)      { return m.claims[key], m.held[key] }
func (m *memory) Deleted(key atoll.ItemKey, uid string) bool { return m.deleted[key.String()+uid] }
func (m *memory) Holders(key atoll.ItemKey) []string         { return m.holders[key] }
func (m *memory) Selected(s atoll.Selection) (out []atoll.ItemKey) {
	for key, t := range m.templates {
		if s.Covers(key) && Labels(s).Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}
func (m *memory) Definition(key atoll.ItemKey) (atoll.ItemKey, bool) {
	crd, ok := m.crds[key]
	return crd, ok
}

// put a template that uses others of its namespace, named Kind/name.
func (m *memory) put(key atoll.ItemKey, uid string, uses ...string) *unstructured.Unstructured {
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

func (m *memory) deleting(key atoll.ItemKey) {
	o := m.templates[key].DeepCopy()
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	m.templates[key] = o
	delete(m.claims, key)
}

func edit(o *unstructured.Unstructured, value string) {
	o.Object["data"] = map[string]any{"v": value}
	o.SetGeneration(o.GetGeneration() + 1)
}

func obj(kind, name string) atoll.ItemKey {
	group := ""
	if kind == "Deployment" {
		group = "apps"
	}
	return atoll.ItemKey{Group: group, Kind: kind, Namespace: "shop", Name: name}
}

// bundle plans one Bundle again and again, as its Binder would.
type bundle struct {
	t    *testing.T
	m    *memory
	in   PlanInput
	cuts int
}

func newBundle(t *testing.T, m *memory, deps bool) *bundle {
	s := annotated(v1alpha1.PlacementSpec{})
	s.PropagateDeps = deps
	return &bundle{t: t, m: m, in: PlanInput{World: m, Intent: &Intent{s}}}
}

func (b *bundle) plan() PlanOutput {
	b.t.Helper()
	b.in.Claimed = nil
	for key, c := range b.m.claims {
		if c == Mine {
			b.in.Claimed = append(b.in.Claimed, key)
		}
	}
	slices.SortFunc(b.in.Claimed, atoll.ItemKey.Compare)
	out := Plan(b.in)
	if out.Cut {
		b.cuts++
		b.in.Previous = &out.Content
	}
	if again := Plan(b.in); again.Cut {
		b.t.Errorf("planned again, the same world needs another revision:\n%s\nafter\n%s", show(again.Content), show(out.Content))
	}
	return out
}

// show content in a line: items with their marks, then tombstones.
func show(c atoll.Content) string {
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

func (b *bundle) want(what, content string, cuts int) PlanOutput {
	b.t.Helper()
	out := b.plan()
	if got := show(out.Content); got != content || b.cuts != cuts {
		b.t.Errorf("%s: %q after %d cuts, want %q after %d", what, got, b.cuts, content, cuts)
	}
	return out
}

func TestTemplatesComeChangeAndGo(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	b.want("nothing", "", 0)
	a, c := obj("ConfigMap", "a"), obj("ConfigMap", "c")
	m.put(a, "1")
	m.claims[a] = Mine
	b.want("one", "ConfigMap/a@1", 1)
	m.put(c, "2")
	m.claims[c] = Mine
	b.want("two", "ConfigMap/a@1 ConfigMap/c@2", 2)
	edit(m.templates[a], "x")
	before := b.in.Previous.Items[0].Hash
	b.want("edited", "ConfigMap/a@1 ConfigMap/c@2", 3)
	if b.in.Previous.Items[0].Hash == before {
		t.Error("the edit is not in the content")
	}
	m.deleting(a)
	b.want("deleting", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
	delete(m.templates, a)
	b.want("deleted", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
	m.put(a, "3")
	m.claims[a] = Mine
	b.want("made again", "ConfigMap/a@3 ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 5)
	b.in.Confirmed = func(x atoll.Tombstone) bool { return true }
	b.want("confirmed", "ConfigMap/a@3 ConfigMap/c@2", 5)
	edit(m.templates[c], "y")
	b.want("next revision without it", "ConfigMap/a@3 ConfigMap/c@2", 6)
	if len(b.in.Previous.Tombstones) > 0 {
		t.Errorf("confirmed tombstones are still there: %v", b.in.Previous.Tombstones)
	}
}

func TestRecreatedUnseen(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	a := obj("ConfigMap", "a")
	m.put(a, "1")
	m.claims[a] = Mine
	b.plan()
	m.put(a, "2")
	b.want("another UID", "ConfigMap/a@2 -ConfigMap/a@1:Deleted[]", 2)
	m.put(a, "3")
	delete(m.claims, a)
	b.want("another UID that nobody places", "-ConfigMap/a@1:Deleted[] -ConfigMap/a@2:Deleted[]", 3)
}

func TestMissingIsNotDeleted(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	a, c := obj("ConfigMap", "a"), obj("ConfigMap", "c")
	m.put(a, "1")
	m.put(c, "2")
	m.claims[a], m.claims[c] = Mine, Mine
	b.plan()
	gone := m.templates[a]
	delete(m.templates, a)
	delete(m.claims, a)
	b.want("vanished", "ConfigMap/a@1(Unaccounted) ConfigMap/c@2", 2)
	m.templates[a] = gone
	m.claims[a] = Mine
	b.want("back", "ConfigMap/a@1 ConfigMap/c@2", 3)
	delete(m.templates, a)
	delete(m.claims, a)
	m.deleted[a.String()+"1"] = true
	b.want("vanished, but a user was seen to delete it", "ConfigMap/c@2 -ConfigMap/a@1:Deleted[]", 4)
}

func TestUnclaimedFreezes(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w] = Mine
	b.want("placed", "ConfigMap/cfg@2+ Deployment/web@1", 1)
	intent := b.in.Intent
	b.in.Intent = nil
	delete(m.claims, w)
	hash := b.in.Previous.Items[1].Hash
	b.want("policy gone", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1(Unclaimed)", 2)
	edit(m.templates[w], "x")
	edit(m.templates[cfg], "x")
	b.want("edits are not sent", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1(Unclaimed)", 2)
	if b.in.Previous.Items[1].Hash != hash {
		t.Error("a frozen item changed")
	}
	b.in.Intent = intent
	m.claims[w] = Mine
	b.want("policy back", "ConfigMap/cfg@2+ Deployment/web@1", 3)
	if b.in.Previous.Items[1].Hash == hash {
		t.Error("the edit made while frozen is not sent")
	}
	delete(m.claims, w)
	b.plan()
	m.deleting(w)
	b.want("deleted while frozen", "-ConfigMap/cfg@2:Unused[] -Deployment/web@1:Deleted[]", 5)
}

func TestDependencies(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg, sec, sa, pvc := obj("Deployment", "web"), obj("ConfigMap", "cfg"), obj("Secret", "sec"), obj("ServiceAccount", "sa"), obj("PersistentVolumeClaim", "pvc")
	m.put(w, "1", "ConfigMap/cfg", "Secret/sec", "ServiceAccount/sa", "PersistentVolumeClaim/pvc")
	m.claims[w] = Mine
	out := b.want("none exist", "Deployment/web@1", 1)
	if len(out.Wants) != 4 {
		t.Errorf("wants %v, want four", out.Wants)
	}
	m.put(cfg, "2")
	m.put(sec, "3")
	m.put(sa, "4")
	m.put(pvc, "5")
	b.want("all exist", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+ Secret/sec@3+ ServiceAccount/sa@4+ Deployment/web@1", 2)
	m.put(w, "1", "ConfigMap/cfg").SetGeneration(2)
	b.want("most are not used any more", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+(Unclaimed) Deployment/web@1 -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[]", 3)
	m.put(w, "1", "ConfigMap/cfg", "Secret/sec").SetGeneration(3)
	b.want("used again before it was confirmed", "ConfigMap/cfg@2+ PersistentVolumeClaim/pvc@5+(Unclaimed) Secret/sec@3+ Deployment/web@1 -ServiceAccount/sa@4:Unused[]", 4)
	m.holders[cfg] = []string{"other"}
	m.deleting(w)
	b.want("the user goes; another bundle has one of them", "PersistentVolumeClaim/pvc@5+(Unclaimed) -ConfigMap/cfg@2:Unused[other] -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[] -Deployment/web@1:Deleted[]", 5)
	m.deleting(pvc)
	b.want("a user deletes the volume claim", "-ConfigMap/cfg@2:Unused[other] -PersistentVolumeClaim/pvc@5:Deleted[] -Secret/sec@3:Unused[] -ServiceAccount/sa@4:Unused[] -Deployment/web@1:Deleted[]", 6)
}

func TestTheHubsOwnSecretsComeAlongWithNothing(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, sec := obj("Deployment", "web"), obj("Secret", "push-oslo")
	m.put(w, "1", "Secret/push-oslo")
	m.put(sec, "2").Object["type"] = "atoll.dev/push"
	m.claims[w] = Mine
	b.want("credentials of a member", "Deployment/web@1", 1)
}

func TestDefinitionsFollowTheirObjects(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	widget := atoll.ItemKey{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"}
	crd := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
	m.put(widget, "1")
	m.put(crd, "2")
	m.crds[widget] = crd
	m.claims[widget] = Mine
	b.want("with its CRD", "CustomResourceDefinition/widgets.example.com@2+ Widget/w@1", 1)
	m.deleting(widget)
	b.want("the CRD stays", "CustomResourceDefinition/widgets.example.com@2+(Unclaimed) -Widget/w@1:Deleted[]", 2)
}

func TestDependenciesSwitchedOff(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w] = Mine
	b.plan()
	b.in.Intent.Spec.PropagateDeps = false
	b.want("switched off", "ConfigMap/cfg@2+(Unclaimed) Deployment/web@1", 2)
	m.deleting(w)
	b.want("the user goes", "-ConfigMap/cfg@2:Unused[] -Deployment/web@1:Deleted[]", 3)
}

func TestMoves(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w] = Mine
	b.plan()
	m.claims[w] = Others
	out := b.want("the other bundle does not have it yet", "ConfigMap/cfg@2+ Deployment/web@1", 1)
	if fmt.Sprint(out.Waiting) != fmt.Sprint([]atoll.ItemKey{w}) {
		t.Errorf("waiting %v, want the deployment", out.Waiting)
	}
	m.held[w] = true
	m.holders[w], m.holders[cfg] = []string{"other"}, []string{"other"}
	b.want("it has it", "-ConfigMap/cfg@2:Unused[other] -Deployment/web@1:Moved[other]", 2)
	m.claims[w], m.held[w] = Mine, false
	b.want("and back", "ConfigMap/cfg@2+ Deployment/web@1", 3)
}

func TestChosenAndNeeded(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w], m.claims[cfg] = Mine, Mine
	b.want("both chosen", "ConfigMap/cfg@2 Deployment/web@1", 1)
	m.claims[cfg], m.held[cfg] = Others, true
	m.holders[cfg] = []string{"other"}
	b.want("chosen elsewhere, needed here", "ConfigMap/cfg@2+ Deployment/web@1", 2)
	m.deleting(cfg)
	b.want("deleted", "Deployment/web@1 -ConfigMap/cfg@2:Deleted[]", 3)
}

func TestOrphanRemoval(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	a := obj("ConfigMap", "a")
	m.put(a, "1")
	m.claims[a] = Mine
	b.in.Intent.Spec.Removal.Mode = v1alpha1.RemoveOrphan
	b.plan()
	b.in.Intent = nil
	m.deleting(a)
	out := b.plan()
	if len(out.Content.Tombstones) != 1 || !out.Content.Tombstones[0].Orphan {
		t.Errorf("tombstones %+v, want one that orphans", out.Content.Tombstones)
	}
}

func TestFinalizerFirst(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg").SetFinalizers(nil)
	m.put(cfg, "2").SetFinalizers([]string{"example.com/other"})
	m.claims[w] = Mine
	if out := b.plan(); fmt.Sprint(out.Finalize) != fmt.Sprint([]atoll.ItemKey{w, cfg}) {
		t.Errorf("to finalize: %v, want both", out.Finalize)
	}
}

func TestDividedAndItsEnd(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w] = Mine
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.plan()
	if items := b.in.Previous.Items; items[0].Divided || !items[1].Divided {
		t.Errorf("divided: %v %v, want the deployment alone", items[0].Divided, items[1].Divided)
	}
	if b.in.Previous.Items[1].ReplicaOverrides {
		t.Error("replicas are handed over without a word")
	}
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaOverrides = v1alpha1.AllowReplicaOverrides
	b.plan()
	if items := b.in.Previous.Items; items[0].ReplicaOverrides || !items[1].ReplicaOverrides {
		t.Errorf("handed over: %v %v, want the deployment's alone", items[0].ReplicaOverrides, items[1].ReplicaOverrides)
	}
	b.in.Intent.Spec.Placement.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}
	b.want("duplicated again", "ConfigMap/cfg@2+ Deployment/web@1", 3)
}

// A hub that learned of a kind divides nothing of what is there by itself: only what comes
// anew, or is edited.
func TestAKindThatIsKnownSinceDividesNothingByItself(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, false)
	key := atoll.ItemKey{Group: "argoproj.io", Kind: "Rollout", Namespace: "shop", Name: "web"}
	b.in.Fingerprint = func(o *unstructured.Unstructured) string { return fmt.Sprint(o.Object["spec"]) }
	o := m.put(key, "1")
	o.Object["spec"] = map[string]any{"replicas": int64(3)}
	m.claims[key] = Mine
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.plan()
	if it := b.in.Previous.Items[0]; !it.Divided || it.Kinds != atoll.KnownKinds {
		t.Errorf("new: %+v", it)
	}
	b.in.Previous.Items[0].Divided, b.in.Previous.Items[0].Kinds = false, 0 // as an older hub has it
	if out := b.plan(); out.Cut || out.Content.Items[0].Divided {
		t.Errorf("untouched: cut %v, %+v", out.Cut, out.Content.Items[0])
	}
	edited := o.DeepCopy()
	edited.Object["spec"] = map[string]any{"replicas": int64(4)}
	m.templates[key] = edited
	if out := b.plan(); !out.Cut || !out.Content.Items[0].Divided {
		t.Errorf("edited: cut %v, %+v", out.Cut, out.Content.Items[0])
	}
}

// failing has no defaults for one object.
type failing struct{ name string }

func (f failing) Default(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.GetName() == f.name {
		return nil, errors.New("broken")
	}
	return o, nil
}

func TestUnreadableTemplateStopsNoOther(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	a, c := obj("ConfigMap", "a"), obj("ConfigMap", "c")
	m.put(a, "1")
	m.put(c, "2")
	m.claims[a], m.claims[c] = Mine, Mine
	b.plan()
	edit(m.templates[a], "x")
	b.in.Defaults = failing{"a"}
	edit(m.templates[c], "x")
	out := b.want("one is unreadable", "ConfigMap/a@1 ConfigMap/c@2", 2)
	if len(out.Problems) != 1 || out.Problems[0].Key != a {
		t.Errorf("problems %v", out.Problems)
	}
}

// What members are told of the namespace is content like any other; that it is not known
// changes nothing.
func TestANamespacesLabelsAreContent(t *testing.T) {
	m := newMemory()
	c := obj("ConfigMap", "c")
	m.put(c, "1")
	labelled := func(team string) *atoll.NamespaceMeta {
		return &atoll.NamespaceMeta{Labels: map[string]string{"team": team}}
	}
	in := PlanInput{Claimed: []atoll.ItemKey{c}, Intent: &Intent{}, Namespace: labelled("red"), World: m}
	red := Plan(in).Content
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
		if out := Plan(in); out.Cut != step.cut || out.Content.Namespace.Labels["team"] != step.want {
			t.Errorf("%s: cut %t, %v", step.what, out.Cut, out.Content.Namespace)
		}
	}
}
