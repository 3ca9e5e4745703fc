package bundlecontent

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

func luaRule(s string) *v1alpha1.InterpreterRule { return &v1alpha1.InterpreterRule{Lua: s} }

func newInterpreter(name string, spec v1alpha1.ResourceInterpreterSpec) *v1alpha1.ResourceInterpreter {
	spec.Target = v1alpha1.InterpreterTarget{Group: "ai.example", Kinds: []string{"Trainer"}}
	return &v1alpha1.ResourceInterpreter{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

var workersSpec = v1alpha1.ResourceInterpreterSpec{
	Replicas:     luaRule(`function GetReplicas(obj) return obj.spec.workers, {resourceRequest = {cpu = "100m"}} end`),
	Revise:       luaRule(`function ReviseReplica(obj, n) obj.spec.workers = n return obj end`),
	Dependencies: &v1alpha1.InterpreterRule{CEL: `[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'name': object.spec.data}]`},
}

// newTrainer is a Bundle with a Trainer of four workers under a placement that divides, and the
// ConfigMap that it reads.
func newTrainer(t *testing.T, objects ...*v1alpha1.ResourceInterpreter) (*bundleTest, *unstructured.Unstructured) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	o := m.putTemplate(key, "1")
	o.Object["spec"] = map[string]any{"workers": int64(4), "data": "pictures"}
	m.putTemplate(shopKey("ConfigMap", "pictures"), "2")
	m.placers[key] = PlacedByThis
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.in.Interpreters = script.NewLibrary(objects)
	return b, o
}

func (b *bundleTest) findItem(kind string) *atoll.Item {
	b.t.Helper()
	for i := range b.in.Previous.Items {
		if it := &b.in.Previous.Items[i]; it.Key.Kind == kind {
			return it
		}
	}
	b.t.Fatalf("there is no %s in %s", kind, formatContent(*b.in.Previous))
	return nil
}

func TestInterpretersDescribeItems(t *testing.T) {
	b, _ := newTrainer(t, newInterpreter("a", workersSpec))
	b.wantContent("with what it needs", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	it := b.findItem("Trainer")
	if !it.Divided || it.Interpreted == nil || *it.Interpreted.Replicas != 4 || it.Interpreted.Pods[0].Requests["cpu"] != 100 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	list := b.in.Previous.Interpreters
	if len(list) != 1 || list[0].Name != "a" || !strings.Contains(string(list[0].Spec), "ReviseReplica") || strings.Contains(string(list[0].Spec), "GetReplicas") {
		t.Errorf("what is asked later is not what the content has: %+v", list)
	}
	// A newer edition of what is asked now, with the same answers, is no new content.
	same := workersSpec
	same.Replicas = luaRule(`function GetReplicas(obj) local n = obj.spec.workers return n, {resourceRequest = {cpu = "0.1"}} end`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newInterpreter("a", same)})
	b.wantContent("the same answers", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	// One of what is asked later is.
	same.Health = luaRule(`return {status = "Healthy"}`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newInterpreter("a", same)})
	b.wantContent("another health", "ConfigMap/pictures@2+ Trainer/cats@1", 2)
	// One about other kinds is nothing to this Bundle.
	other := newInterpreter("b", same)
	other.Spec.Target.Kinds = []string{"Predictor"}
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newInterpreter("a", same), other})
	b.wantContent("another kind's", "ConfigMap/pictures@2+ Trainer/cats@1", 2)
}

// Replicas without a script that sets them are not divided.
func TestItemsWithoutReviseAreNotDivided(t *testing.T) {
	b, _ := newTrainer(t, newInterpreter("a", v1alpha1.ResourceInterpreterSpec{Replicas: workersSpec.Replicas}))
	b.planNext()
	if it := b.findItem("Trainer"); it.Divided || it.Interpreted == nil {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
}

// A script that fails stops its item where it is, and no other.
func TestAFailingInterpreterStopsItsItem(t *testing.T) {
	b, o := newTrainer(t, newInterpreter("a", workersSpec))
	b.planNext()
	bad := workersSpec
	bad.Replicas = luaRule(`function GetReplicas(obj) return obj.spec.no.such end`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newInterpreter("a", bad)})
	editTemplate(o, "newer")
	other := shopKey("ConfigMap", "other")
	b.m.putTemplate(other, "3")
	b.m.placers[other] = PlacedByThis
	out := b.wantContent("the others go on", "ConfigMap/other@3 ConfigMap/pictures@2+ Trainer/cats@1", 2)
	if len(out.Problems) != 1 || out.Problems[0].Key.Kind != "Trainer" || !strings.Contains(out.Problems[0].Err.Error(), "ResourceInterpreter a") {
		t.Errorf("problems: %v", out.Problems)
	}
	if it := b.findItem("Trainer"); !it.Divided || *it.Interpreted.Replicas != 4 || strings.Contains(string(it.Object), "newer") {
		t.Errorf("the item changed: %s", it.Object)
	}
	// One that is new is not sent without an answer: each cluster would run all of it.
	b, _ = newTrainer(t, newInterpreter("a", bad))
	if out := b.wantContent("a new one", "", 0); len(out.Problems) != 1 {
		t.Errorf("problems: %v", out.Problems)
	}
}

// A removed interpreter removes nothing: its answers stay until a user edits the template, and its
// dependencies stay even then.
func TestARemovedInterpreterRemovesNothing(t *testing.T) {
	b, o := newTrainer(t, newInterpreter("a", workersSpec))
	b.planNext()
	b.in.Interpreters = nil
	b.planNext()
	if it := b.findItem("Trainer"); !it.Divided || *it.Interpreted.Replicas != 4 || len(it.Interpreted.Dependencies) != 1 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	editTemplate(o, "newer")
	b.planNext()
	if got := formatContent(*b.in.Previous); got != "ConfigMap/pictures@2+ Trainer/cats@1" {
		t.Errorf("after an edit: %s", got)
	}
	if it := b.findItem("Trainer"); it.Divided || it.Interpreted.Replicas != nil {
		t.Errorf("after an edit: divided %v, %+v", it.Divided, it.Interpreted)
	}
}

// A Bundle that takes an item over goes on with what interpreters said of it, that are gone:
// else each cluster would run all of it, and what it needs would go.
func TestHandedOverItemsKeepTheirAnswers(t *testing.T) {
	b, _ := newTrainer(t, newInterpreter("a", workersSpec))
	b.planNext()
	was := *b.findItem("Trainer")
	next, o := newTrainer(t)
	next.in.HandedOver = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	next.wantContent("with what it needs", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	if it := next.findItem("Trainer"); !it.Divided || it.Interpreted == nil || *it.Interpreted.Replicas != 4 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	// Another object of that name was never asked about.
	other, _ := newTrainer(t)
	was.UID = "9"
	other.in.HandedOver = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	other.wantContent("alone", "Trainer/cats@1", 1)
	if it := other.findItem("Trainer"); it.Divided || it.Interpreted != nil {
		t.Errorf("another object: divided %v, %+v", it.Divided, it.Interpreted)
	}
	// Interpreters that are there say what they say.
	more := workersSpec
	more.Replicas = luaRule(`function GetReplicas(obj) return obj.spec.workers + 1 end`)
	asked, _ := newTrainer(t, newInterpreter("a", more))
	was.UID = string(o.GetUID())
	asked.in.HandedOver = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	asked.planNext()
	if it := asked.findItem("Trainer"); *it.Interpreted.Replicas != 5 {
		t.Errorf("%d replicas", *it.Interpreted.Replicas)
	}
}

// An object that comes from another Bundle brings its kept dependencies along, each once and in
// order.
func TestKeptDependenciesMoveWithTheirObject(t *testing.T) {
	a, b, c := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "b"), shopKey("ConfigMap", "c")
	m := newFakeHub()
	p := &contentBuilder{templates: m}
	object := m.putTemplate(shopKey("Deployment", "web"), "1")
	now := &atoll.InterpreterAnswers{DependenciesComplete: true, Dependencies: []atoll.ItemKey{b, c}}
	before := &atoll.InterpreterAnswers{KeptDependencies: []atoll.ItemKey{c, a}}
	got := p.keepFormerDependencies(before, now, object)
	if got == nil || !slices.Equal(got.Dependencies, []atoll.ItemKey{a, b, c}) || len(got.KeptDependencies) > 0 {
		t.Errorf("%+v, want dependencies a, b and c", got)
	}
	if !slices.Equal(now.Dependencies, []atoll.ItemKey{b, c}) {
		t.Errorf("the answers changed: %v", now.Dependencies)
	}
	if got := p.keepFormerDependencies(&atoll.InterpreterAnswers{}, now, object); got != now {
		t.Errorf("nothing was kept, but the answers are %+v", got)
	}
}
