package claim

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

func lua(s string) *v1alpha1.InterpreterRule { return &v1alpha1.InterpreterRule{Lua: s} }

func interpreter(name string, spec v1alpha1.ResourceInterpreterSpec) *v1alpha1.ResourceInterpreter {
	spec.Target = v1alpha1.InterpreterTarget{Group: "ai.example", Kinds: []string{"Trainer"}}
	return &v1alpha1.ResourceInterpreter{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

var workers = v1alpha1.ResourceInterpreterSpec{
	Replicas:     lua(`function GetReplicas(obj) return obj.spec.workers, {resourceRequest = {cpu = "100m"}} end`),
	Revise:       lua(`function ReviseReplica(obj, n) obj.spec.workers = n return obj end`),
	Dependencies: &v1alpha1.InterpreterRule{CEL: `[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'name': object.spec.data}]`},
}

// trainer is a Bundle with a Trainer of four workers under a placement that divides, and the
// ConfigMap that it reads.
func trainer(t *testing.T, objects ...*v1alpha1.ResourceInterpreter) (*bundle, *unstructured.Unstructured) {
	m := newMemory()
	b := newBundle(t, m, true)
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	o := m.put(key, "1")
	o.Object["spec"] = map[string]any{"workers": int64(4), "data": "pictures"}
	m.put(obj("ConfigMap", "pictures"), "2")
	m.claims[key] = Mine
	b.in.Intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	b.in.Interpreters = script.NewLibrary(objects)
	return b, o
}

func (b *bundle) item(kind string) *atoll.Item {
	b.t.Helper()
	for i := range b.in.Previous.Items {
		if it := &b.in.Previous.Items[i]; it.Key.Kind == kind {
			return it
		}
	}
	b.t.Fatalf("there is no %s in %s", kind, show(*b.in.Previous))
	return nil
}

func TestAnInterpreterSaysWhatAnItemIs(t *testing.T) {
	b, _ := trainer(t, interpreter("a", workers))
	b.want("with what it needs", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	it := b.item("Trainer")
	if !it.Divided || it.Interpreted == nil || *it.Interpreted.Replicas != 4 || it.Interpreted.Pods[0].Requests["cpu"] != 100 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	list := b.in.Previous.Interpreters
	if len(list) != 1 || list[0].Name != "a" || !strings.Contains(string(list[0].Spec), "ReviseReplica") || strings.Contains(string(list[0].Spec), "GetReplicas") {
		t.Errorf("what is asked later is not what the content has: %+v", list)
	}
	// A newer edition of what is asked now, with the same answers, is no new content.
	same := workers
	same.Replicas = lua(`function GetReplicas(obj) local n = obj.spec.workers return n, {resourceRequest = {cpu = "0.1"}} end`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{interpreter("a", same)})
	b.want("the same answers", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	// One of what is asked later is.
	same.Health = lua(`return {status = "Healthy"}`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{interpreter("a", same)})
	b.want("another health", "ConfigMap/pictures@2+ Trainer/cats@1", 2)
	// One about other kinds is nothing to this Bundle.
	other := interpreter("b", same)
	other.Spec.Target.Kinds = []string{"Predictor"}
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{interpreter("a", same), other})
	b.want("another kind's", "ConfigMap/pictures@2+ Trainer/cats@1", 2)
}

// Replicas that nobody can set are not divided.
func TestWhatCannotBeRevisedIsNotDivided(t *testing.T) {
	b, _ := trainer(t, interpreter("a", v1alpha1.ResourceInterpreterSpec{Replicas: workers.Replicas}))
	b.plan()
	if it := b.item("Trainer"); it.Divided || it.Interpreted == nil {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
}

// A script that fails stops its item where it is, and no other.
func TestAFailingInterpreterStopsItsItem(t *testing.T) {
	b, o := trainer(t, interpreter("a", workers))
	b.plan()
	bad := workers
	bad.Replicas = lua(`function GetReplicas(obj) return obj.spec.nobody.knows end`)
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{interpreter("a", bad)})
	edit(o, "newer")
	other := obj("ConfigMap", "other")
	b.m.put(other, "3")
	b.m.claims[other] = Mine
	out := b.want("the others go on", "ConfigMap/other@3 ConfigMap/pictures@2+ Trainer/cats@1", 2)
	if len(out.Problems) != 1 || out.Problems[0].Key.Kind != "Trainer" || !strings.Contains(out.Problems[0].Err.Error(), "ResourceInterpreter a") {
		t.Errorf("problems: %v", out.Problems)
	}
	if it := b.item("Trainer"); !it.Divided || *it.Interpreted.Replicas != 4 || strings.Contains(string(it.Object), "newer") {
		t.Errorf("the item changed: %s", it.Object)
	}
	// One that is new is not sent without an answer: each cluster would run all of it.
	b, _ = trainer(t, interpreter("a", bad))
	if out := b.want("a new one", "", 0); len(out.Problems) != 1 {
		t.Errorf("problems: %v", out.Problems)
	}
}

// That an interpreter is gone takes nothing away: what it said stays until a user edits the
// template, and what it named stays then, too.
func TestAnInterpreterThatIsGoneTakesNothing(t *testing.T) {
	b, o := trainer(t, interpreter("a", workers))
	b.plan()
	b.in.Interpreters = nil
	b.plan()
	if it := b.item("Trainer"); !it.Divided || *it.Interpreted.Replicas != 4 || len(it.Interpreted.Dependencies) != 1 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	edit(o, "newer")
	b.plan()
	if got := show(*b.in.Previous); got != "ConfigMap/pictures@2+ Trainer/cats@1" {
		t.Errorf("after an edit: %s", got)
	}
	if it := b.item("Trainer"); it.Divided || it.Interpreted.Replicas != nil {
		t.Errorf("after an edit: divided %v, %+v", it.Divided, it.Interpreted)
	}
}

// A Bundle that takes an item over goes on with what interpreters said of it, that are gone:
// else each cluster would run all of it, and what it needs would go.
func TestWhatIsHandedOverKeepsItsAnswers(t *testing.T) {
	b, _ := trainer(t, interpreter("a", workers))
	b.plan()
	was := *b.item("Trainer")
	next, o := trainer(t)
	next.in.Handed = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	next.want("with what it needs", "ConfigMap/pictures@2+ Trainer/cats@1", 1)
	if it := next.item("Trainer"); !it.Divided || it.Interpreted == nil || *it.Interpreted.Replicas != 4 {
		t.Errorf("divided %v, %+v", it.Divided, it.Interpreted)
	}
	// Another object of that name was never asked about.
	other, _ := trainer(t)
	was.UID = "9"
	other.in.Handed = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	other.want("alone", "Trainer/cats@1", 1)
	if it := other.item("Trainer"); it.Divided || it.Interpreted != nil {
		t.Errorf("another object: divided %v, %+v", it.Divided, it.Interpreted)
	}
	// Interpreters that are there say what they say.
	more := workers
	more.Replicas = lua(`function GetReplicas(obj) return obj.spec.workers + 1 end`)
	asked, _ := trainer(t, interpreter("a", more))
	was.UID = string(o.GetUID())
	asked.in.Handed = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	asked.plan()
	if it := asked.item("Trainer"); *it.Interpreted.Replicas != 5 {
		t.Errorf("%d replicas", *it.Interpreted.Replicas)
	}
}
