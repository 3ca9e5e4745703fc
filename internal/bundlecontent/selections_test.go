package bundlecontent

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
)

// dependencyTest is a Bundle with a Trainer whose dependencies a script tells.
type dependencyTest struct {
	*bundleTest
	trainer *unstructured.Unstructured
}

// on the objects named Kind/name, with UIDs from 2 on; rule is Lua that ends in a list.
func newDependencyTest(t *testing.T, rule string, names ...string) dependencyTest {
	m := newFakeHub()
	d := dependencyTest{bundleTest: newBundleTest(t, m, true)}
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	d.trainer = m.putTemplate(key, "1")
	d.trainer.Object["spec"] = map[string]any{"reads": []any{"a", "b"}, "set": "x"}
	m.placers[key] = PlacedByThis
	for i, name := range names {
		m.putTemplate(keyFromText(name), string(rune('2'+i)))
	}
	d.setInterpreter(rule)
	return d
}

func keyFromText(text string) atoll.ItemKey {
	for i := range text {
		if text[i] == '/' {
			return shopKey(text[:i], text[i+1:])
		}
	}
	return atoll.ItemKey{}
}

// setInterpreter another edition; none for "".
func (d dependencyTest) setInterpreter(rule string) {
	d.in.Interpreters = nil
	if rule != "" {
		d.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newInterpreter("a", v1alpha1.ResourceInterpreterSpec{Dependencies: luaRule(rule)})})
	}
}

func (d dependencyTest) setReads(names ...any) {
	d.trainer.Object["spec"].(map[string]any)["reads"] = names
	d.trainer.SetGeneration(d.trainer.GetGeneration() + 1)
}

func (d dependencyTest) setLabels(name string, labels map[string]string) {
	d.m.templates[keyFromText(name)].SetLabels(labels)
}

func (d dependencyTest) itemHash(name string) string {
	for _, i := range d.in.Previous.Items {
		if i.Key == keyFromText(name) {
			return i.Hash
		}
	}
	d.t.Fatalf("there is no %s", name)
	return ""
}

const (
	readsByName = `function GetDependencies(obj)
		local out = {}
		for i, name in ipairs(obj.spec.reads) do out[i] = {apiVersion = "v1", kind = "ConfigMap", namespace = "shop", name = name} end
		return out
	end`
	readsA      = `function GetDependencies(obj) return {{apiVersion = "v1", kind = "ConfigMap", namespace = "shop", name = "a"}} end`
	readsNone   = `function GetDependencies(obj) return {} end`
	readsSilent = `function GetDependencies(obj) return nil end`
	readsLabels = `function GetDependencies(obj) return {{apiVersion = "v1", kind = "ConfigMap", namespace = "shop", labelSelector = {matchLabels = {set = obj.spec.set}}}} end`
)

// A user's edit of the template removes dependencies, as an edit of a Deployment does. An edit of
// the interpreter, and a missing answer, do not.
func TestFewerDependencies(t *testing.T) {
	both := "ConfigMap/a@2+ ConfigMap/b@3+ Trainer/cats@1"
	one := "ConfigMap/a@2+ ConfigMap/b@3+(Unnamed) Trainer/cats@1"
	gone := "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Unused[]"
	type step struct {
		what string
		do   func(dependencyTest)
		want string
	}
	steps := func(s ...step) []step { return s }
	for name, then := range map[string][]step{
		"the template names fewer": steps(
			step{"edited", func(d dependencyTest) { d.setReads("a") }, gone}),
		"the template names none": steps(
			step{"edited", func(d dependencyTest) { d.setReads() }, "Trainer/cats@1 -ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[]"}),
		"another interpreter names fewer": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"what is kept is edited", func(d dependencyTest) { editTemplate(d.m.templates[shopKey("ConfigMap", "b")], "v") }, one},
			step{"taught again", func(d dependencyTest) { d.setInterpreter(readsA + " -- again") }, one},
			step{"the template is edited", func(d dependencyTest) { d.setReads("a", "b") }, gone}),
		"another interpreter names none": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsNone) }, "ConfigMap/a@2+(Unnamed) ConfigMap/b@3+(Unnamed) Trainer/cats@1"},
			step{"and the first again", func(d dependencyTest) { d.setInterpreter(readsByName) }, both}),
		"another interpreter names fewer, and goes": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"gone", func(d dependencyTest) { d.setInterpreter("") }, one},
			step{"no interpreter answers, and the template is edited", func(d dependencyTest) { d.setReads("b") }, one}),
		"another interpreter names fewer, and the user of them goes": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"deleted", func(d dependencyTest) { d.m.markDeleting(policymatch.ItemKeyOf(d.trainer)) }, "-ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[] -Trainer/cats@1:Deleted[]"}),
		"another interpreter names fewer, and what is kept goes": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"deleted", func(d dependencyTest) { d.m.markDeleting(shopKey("ConfigMap", "b")) }, "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Deleted[]"}),
		"the interpreter goes": steps(
			step{"gone", func(d dependencyTest) { d.setInterpreter("") }, both},
			step{"the template is edited", func(d dependencyTest) { d.setReads() }, both},
			step{"another one names fewer", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"and the template is edited", func(d dependencyTest) { d.setReads("a") }, gone}),
		"the script says nothing": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsSilent) }, both},
			step{"edited", func(d dependencyTest) { d.setReads() }, both}),
		"the script fails": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(`function GetDependencies(obj) return obj.spec.no.such end`) }, both},
			step{"edited", func(d dependencyTest) { d.setReads() }, both}),
		"dependencies are switched off": steps(
			step{"taught", func(d dependencyTest) { d.setInterpreter(readsA) }, one},
			step{"off", func(d dependencyTest) { d.in.Intent.Spec.PropagateDeps = false }, "ConfigMap/a@2+(Unclaimed) ConfigMap/b@3+(Unnamed) Trainer/cats@1"}),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDependencyTest(t, readsByName, "ConfigMap/a", "ConfigMap/b")
			d.wantContent("at first", both, 1)
			for _, s := range then {
				s.do(d)
				if got := formatContent(d.planNext().Content); got != s.want {
					t.Errorf("%s: %s\nwant %s", s.what, got, s.want)
				}
			}
		})
	}
}

// A kind of which Atoll itself knows the dependencies does not lose them to an interpreter
// that tells fewer, and an edit of the template takes them out, interpreter or not.
func TestFewerDependenciesThanAtollKnows(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	web, acc := shopKey("Deployment", "web"), shopKey("ServiceAccount", "acc")
	m.putTemplate(web, "1", "ConfigMap/cfg", "ServiceAccount/acc")
	m.putTemplate(shopKey("ConfigMap", "cfg"), "2")
	m.putTemplate(acc, "3").Object["imagePullSecrets"] = []any{map[string]any{"name": "pull"}}
	m.putTemplate(shopKey("Secret", "pull"), "4")
	m.placers[web] = PlacedByThis
	b.wantContent("at first", "ConfigMap/cfg@2+ Secret/pull@4+ ServiceAccount/acc@3+ Deployment/web@1", 1)
	x := newInterpreter("a", v1alpha1.ResourceInterpreterSpec{Dependencies: luaRule(readsNone)})
	x.Spec.Target = v1alpha1.InterpreterTarget{APIVersion: "apps/v1", Kinds: []string{"Deployment"}}
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{x})
	b.wantContent("taught", "ConfigMap/cfg@2+(Unnamed) Secret/pull@4+(Unnamed) ServiceAccount/acc@3+(Unnamed) Deployment/web@1", 2)
	m.putTemplate(web, "1", "ConfigMap/cfg").SetGeneration(2)
	b.wantContent("edited", "Deployment/web@1 -ConfigMap/cfg@2:Unused[] -Secret/pull@4:Unused[] -ServiceAccount/acc@3:Unused[]", 3)
}

// Objects that match a selection are added at any time. An object whose own labels no longer match
// stays as it was sent. An object that an edit of the template leaves out goes.
func TestDependenciesByLabels(t *testing.T) {
	d := newDependencyTest(t, readsLabels, "ConfigMap/a", "ConfigMap/b", "ConfigMap/c")
	x, y := map[string]string{"set": "x"}, map[string]string{"set": "y"}
	d.setLabels("ConfigMap/a", x)
	d.setLabels("ConfigMap/b", y)
	out := d.wantContent("what matches", "ConfigMap/a@2+ Trainer/cats@1", 1)
	if len(out.Selections) != 1 || out.Selections[0] != (atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "set=x"}) || len(out.Dependencies) != 1 {
		t.Errorf("selections %+v, wants %v", out.Selections, out.Dependencies)
	}
	d.setLabels("ConfigMap/c", x)
	d.wantContent("what matches later", "ConfigMap/a@2+ ConfigMap/c@4+ Trainer/cats@1", 2)
	d.setLabels("ConfigMap/c", nil)
	d.wantContent("what does not any more", "ConfigMap/a@2+ ConfigMap/c@4+(Unnamed) Trainer/cats@1", 3)
	sent := d.itemHash("ConfigMap/c")
	editTemplate(d.m.templates[shopKey("ConfigMap", "c")], "v")
	editTemplate(d.trainer, "unrelated")
	d.wantContent("edits of both", "ConfigMap/a@2+ ConfigMap/c@4+(Unnamed) Trainer/cats@1", 4)
	if d.itemHash("ConfigMap/c") != sent {
		t.Error("a frozen item changed")
	}
	d.setLabels("ConfigMap/c", x)
	d.wantContent("it matches again", "ConfigMap/a@2+ ConfigMap/c@4+ Trainer/cats@1", 5)
	d.setLabels("ConfigMap/c", y)
	d.planNext()
	d.trainer.Object["spec"].(map[string]any)["set"] = "y"
	d.trainer.SetGeneration(9)
	d.wantContent("the template asks for others", "ConfigMap/b@3+ ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 7)
	d.setInterpreter(readsNone)
	d.wantContent("the interpreter for none", "ConfigMap/b@3+(Unnamed) ConfigMap/c@4+(Unnamed) Trainer/cats@1 -ConfigMap/a@2:Unused[]", 8)
	d.setInterpreter(readsLabels)
	d.wantContent("and for these again", "ConfigMap/b@3+ ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 9)
	d.setLabels("ConfigMap/b", nil)
	d.wantContent("one is lost", "ConfigMap/b@3+(Unnamed) ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 10)
	d.m.markDeleting(policymatch.ItemKeyOf(d.trainer))
	d.wantContent("and what they came with is deleted", "-ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[] -ConfigMap/c@4:Unused[] -Trainer/cats@1:Deleted[]", 11)
}

// A Bundle that is frozen takes nothing up that begins to match.
func TestFrozenItemsGainNoDependencies(t *testing.T) {
	d := newDependencyTest(t, readsLabels, "ConfigMap/a", "ConfigMap/b")
	x := map[string]string{"set": "x"}
	d.setLabels("ConfigMap/a", x)
	other := shopKey("ConfigMap", "other")
	d.m.putTemplate(other, "9")
	d.m.placers[other] = PlacedByThis
	d.planNext()
	delete(d.m.placers, policymatch.ItemKeyOf(d.trainer))
	d.setLabels("ConfigMap/b", x)
	if out := d.wantContent("frozen", "ConfigMap/a@2+ ConfigMap/other@9 Trainer/cats@1(Unclaimed)", 2); len(out.Selections) > 0 {
		t.Errorf("asks for %v", out.Selections)
	}
}

// Labels do not reach what the machinery of a hub made, which a name does; nor other
// namespaces, or the object itself.
func TestSelectionsLeaveOutUnselectableObjects(t *testing.T) {
	all := `function GetDependencies(obj) return {
		{apiVersion = "v1", kind = "ConfigMap", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
		{apiVersion = "v1", kind = "Secret", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
		{apiVersion = "ai.example/v1", kind = "Trainer", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
	} end`
	d := newDependencyTest(t, all, "ConfigMap/kube-root-ca.crt", "ConfigMap/a", "Secret/token", "Secret/key")
	d.m.templates[shopKey("Secret", "token")].Object["type"] = "kubernetes.io/service-account-token"
	far := atoll.ItemKey{Kind: "ConfigMap", Namespace: "far", Name: "a"}
	d.m.putTemplate(far, "9")
	out := d.wantContent("at first", "ConfigMap/a@3+ Secret/key@5+ Trainer/cats@1", 1)
	if len(out.Dependencies) != 2 {
		t.Errorf("wants %v", out.Dependencies)
	}
}

// A Bundle that takes an object over takes along what was kept for it.
func TestHandedOverItemsKeepFormerDependencies(t *testing.T) {
	d := newDependencyTest(t, readsByName, "ConfigMap/a", "ConfigMap/b")
	d.planNext()
	d.setInterpreter(readsA)
	d.planNext()
	was := *d.findItem("Trainer")
	next := newDependencyTest(t, readsA, "ConfigMap/a", "ConfigMap/b")
	next.in.HandedOver = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	next.wantContent("taken over", "ConfigMap/a@2+ ConfigMap/b@3+ Trainer/cats@1", 1)
	next.setReads("a")
	next.wantContent("edited there", "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Unused[]", 2)
}
