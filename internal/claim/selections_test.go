package claim

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

// depending is a Bundle with a Trainer whose dependencies a script tells.
type depending struct {
	*bundle
	cats *unstructured.Unstructured
}

// on the objects named Kind/name, with UIDs from 2 on; rule is Lua that ends in a list.
func dependingOn(t *testing.T, rule string, names ...string) depending {
	m := newMemory()
	d := depending{bundle: newBundle(t, m, true)}
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	d.cats = m.put(key, "1")
	d.cats.Object["spec"] = map[string]any{"reads": []any{"a", "b"}, "set": "x"}
	m.claims[key] = Mine
	for i, name := range names {
		m.put(named(name), string(rune('2'+i)))
	}
	d.teach(rule)
	return d
}

func named(text string) atoll.ItemKey {
	for i := range text {
		if text[i] == '/' {
			return obj(text[:i], text[i+1:])
		}
	}
	return atoll.ItemKey{}
}

// teach another edition; none for "".
func (d depending) teach(rule string) {
	d.in.Interpreters = nil
	if rule != "" {
		d.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{interpreter("a", v1alpha1.ResourceInterpreterSpec{Dependencies: lua(rule)})})
	}
}

func (d depending) reads(names ...any) {
	d.cats.Object["spec"].(map[string]any)["reads"] = names
	d.cats.SetGeneration(d.cats.GetGeneration() + 1)
}

func (d depending) label(name string, labels map[string]string) {
	d.m.templates[named(name)].SetLabels(labels)
}

func (d depending) hash(name string) string {
	for _, i := range d.in.Previous.Items {
		if i.Key == named(name) {
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

// What makes dependencies fewer, and what becomes of them: a user's edit of the template
// takes them out, as an edit of a Deployment does; an edit of the interpreter, and silence,
// do not.
func TestFewerDependencies(t *testing.T) {
	both := "ConfigMap/a@2+ ConfigMap/b@3+ Trainer/cats@1"
	one := "ConfigMap/a@2+ ConfigMap/b@3+(Unnamed) Trainer/cats@1"
	gone := "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Unused[]"
	type step struct {
		what string
		do   func(depending)
		want string
	}
	steps := func(s ...step) []step { return s }
	for name, then := range map[string][]step{
		"the template names fewer": steps(
			step{"edited", func(d depending) { d.reads("a") }, gone}),
		"the template names none": steps(
			step{"edited", func(d depending) { d.reads() }, "Trainer/cats@1 -ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[]"}),
		"another interpreter names fewer": steps(
			step{"taught", func(d depending) { d.teach(readsA) }, one},
			step{"what is kept is edited", func(d depending) { edit(d.m.templates[obj("ConfigMap", "b")], "v") }, one},
			step{"taught again", func(d depending) { d.teach(readsA + " -- again") }, one},
			step{"the template is edited", func(d depending) { d.reads("a", "b") }, gone}),
		"another interpreter names none": steps(
			step{"taught", func(d depending) { d.teach(readsNone) }, "ConfigMap/a@2+(Unnamed) ConfigMap/b@3+(Unnamed) Trainer/cats@1"},
			step{"and the first again", func(d depending) { d.teach(readsByName) }, both}),
		"another interpreter names fewer, and goes": steps(
			step{"taught", func(d depending) { d.teach(readsA) }, one},
			step{"gone", func(d depending) { d.teach("") }, one},
			step{"nobody answers, and the template is edited", func(d depending) { d.reads("b") }, one}),
		"another interpreter names fewer, and the user of them goes": steps(
			step{"taught", func(d depending) { d.teach(readsA) }, one},
			step{"deleted", func(d depending) { d.m.deleting(KeyOf(d.cats)) }, "-ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[] -Trainer/cats@1:Deleted[]"}),
		"another interpreter names fewer, and what is kept goes": steps(
			step{"taught", func(d depending) { d.teach(readsA) }, one},
			step{"deleted", func(d depending) { d.m.deleting(obj("ConfigMap", "b")) }, "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Deleted[]"}),
		"the interpreter goes": steps(
			step{"gone", func(d depending) { d.teach("") }, both},
			step{"the template is edited", func(d depending) { d.reads() }, both},
			step{"another one names fewer", func(d depending) { d.teach(readsA) }, one},
			step{"and the template is edited", func(d depending) { d.reads("a") }, gone}),
		"the script says nothing": steps(
			step{"taught", func(d depending) { d.teach(readsSilent) }, both},
			step{"edited", func(d depending) { d.reads() }, both}),
		"the script fails": steps(
			step{"taught", func(d depending) { d.teach(`function GetDependencies(obj) return obj.spec.no.such end`) }, both},
			step{"edited", func(d depending) { d.reads() }, both}),
		"dependencies are switched off": steps(
			step{"taught", func(d depending) { d.teach(readsA) }, one},
			step{"off", func(d depending) { d.in.Intent.Spec.PropagateDeps = false }, "ConfigMap/a@2+(Unclaimed) ConfigMap/b@3+(Unnamed) Trainer/cats@1"}),
	} {
		t.Run(name, func(t *testing.T) {
			d := dependingOn(t, readsByName, "ConfigMap/a", "ConfigMap/b")
			d.want("at first", both, 1)
			for _, s := range then {
				s.do(d)
				if got := show(d.plan().Content); got != s.want {
					t.Errorf("%s: %s\nwant %s", s.what, got, s.want)
				}
			}
		})
	}
}

// A kind of which Atoll itself knows the dependencies does not lose them to an interpreter
// that tells fewer, and an edit of the template takes them out, interpreter or not.
func TestFewerDependenciesThanAtollKnows(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	web, acc := obj("Deployment", "web"), obj("ServiceAccount", "acc")
	m.put(web, "1", "ConfigMap/cfg", "ServiceAccount/acc")
	m.put(obj("ConfigMap", "cfg"), "2")
	m.put(acc, "3").Object["imagePullSecrets"] = []any{map[string]any{"name": "pull"}}
	m.put(obj("Secret", "pull"), "4")
	m.claims[web] = Mine
	b.want("at first", "ConfigMap/cfg@2+ Secret/pull@4+ ServiceAccount/acc@3+ Deployment/web@1", 1)
	x := interpreter("a", v1alpha1.ResourceInterpreterSpec{Dependencies: lua(readsNone)})
	x.Spec.Target = v1alpha1.InterpreterTarget{APIVersion: "apps/v1", Kinds: []string{"Deployment"}}
	b.in.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{x})
	b.want("taught", "ConfigMap/cfg@2+(Unnamed) Secret/pull@4+(Unnamed) ServiceAccount/acc@3+(Unnamed) Deployment/web@1", 2)
	m.put(web, "1", "ConfigMap/cfg").SetGeneration(2)
	b.want("edited", "Deployment/web@1 -ConfigMap/cfg@2:Unused[] -Secret/pull@4:Unused[] -ServiceAccount/acc@3:Unused[]", 3)
}

// What matches comes along, whenever it begins to; what does not match any more, by its own
// labels, stays as it was sent; what an edit of the template does not mean any more goes.
func TestDependenciesByLabels(t *testing.T) {
	d := dependingOn(t, readsLabels, "ConfigMap/a", "ConfigMap/b", "ConfigMap/c")
	x, y := map[string]string{"set": "x"}, map[string]string{"set": "y"}
	d.label("ConfigMap/a", x)
	d.label("ConfigMap/b", y)
	out := d.want("what matches", "ConfigMap/a@2+ Trainer/cats@1", 1)
	if len(out.Selections) != 1 || out.Selections[0] != (atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "set=x"}) || len(out.Wants) != 1 {
		t.Errorf("selections %+v, wants %v", out.Selections, out.Wants)
	}
	d.label("ConfigMap/c", x)
	d.want("what matches later", "ConfigMap/a@2+ ConfigMap/c@4+ Trainer/cats@1", 2)
	d.label("ConfigMap/c", nil)
	d.want("what does not any more", "ConfigMap/a@2+ ConfigMap/c@4+(Unnamed) Trainer/cats@1", 3)
	sent := d.hash("ConfigMap/c")
	edit(d.m.templates[obj("ConfigMap", "c")], "v")
	edit(d.cats, "unrelated")
	d.want("edits of both", "ConfigMap/a@2+ ConfigMap/c@4+(Unnamed) Trainer/cats@1", 4)
	if d.hash("ConfigMap/c") != sent {
		t.Error("a frozen item changed")
	}
	d.label("ConfigMap/c", x)
	d.want("it matches again", "ConfigMap/a@2+ ConfigMap/c@4+ Trainer/cats@1", 5)
	d.label("ConfigMap/c", y)
	d.plan()
	d.cats.Object["spec"].(map[string]any)["set"] = "y"
	d.cats.SetGeneration(9)
	d.want("the template asks for others", "ConfigMap/b@3+ ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 7)
	d.teach(readsNone)
	d.want("the interpreter for none", "ConfigMap/b@3+(Unnamed) ConfigMap/c@4+(Unnamed) Trainer/cats@1 -ConfigMap/a@2:Unused[]", 8)
	d.teach(readsLabels)
	d.want("and for these again", "ConfigMap/b@3+ ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 9)
	d.label("ConfigMap/b", nil)
	d.want("one is lost", "ConfigMap/b@3+(Unnamed) ConfigMap/c@4+ Trainer/cats@1 -ConfigMap/a@2:Unused[]", 10)
	d.m.deleting(KeyOf(d.cats))
	d.want("and what they came with is deleted", "-ConfigMap/a@2:Unused[] -ConfigMap/b@3:Unused[] -ConfigMap/c@4:Unused[] -Trainer/cats@1:Deleted[]", 11)
}

// A Bundle that is frozen takes nothing up that begins to match.
func TestNothingComesToWhatIsFrozen(t *testing.T) {
	d := dependingOn(t, readsLabels, "ConfigMap/a", "ConfigMap/b")
	x := map[string]string{"set": "x"}
	d.label("ConfigMap/a", x)
	other := obj("ConfigMap", "other")
	d.m.put(other, "9")
	d.m.claims[other] = Mine
	d.plan()
	delete(d.m.claims, KeyOf(d.cats))
	d.label("ConfigMap/b", x)
	if out := d.want("frozen", "ConfigMap/a@2+ ConfigMap/other@9 Trainer/cats@1(Unclaimed)", 2); len(out.Selections) > 0 {
		t.Errorf("asks for %v", out.Selections)
	}
}

// Labels do not reach what the machinery of a hub made, which a name does; nor other
// namespaces, or the object itself.
func TestWhatLabelsLeaveOut(t *testing.T) {
	all := `function GetDependencies(obj) return {
		{apiVersion = "v1", kind = "ConfigMap", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
		{apiVersion = "v1", kind = "Secret", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
		{apiVersion = "ai.example/v1", kind = "Trainer", namespace = "shop", labelSelector = {matchExpressions = {{key = "none", operator = "DoesNotExist"}}}},
	} end`
	d := dependingOn(t, all, "ConfigMap/kube-root-ca.crt", "ConfigMap/a", "Secret/token", "Secret/key")
	d.m.templates[obj("Secret", "token")].Object["type"] = "kubernetes.io/service-account-token"
	far := atoll.ItemKey{Kind: "ConfigMap", Namespace: "far", Name: "a"}
	d.m.put(far, "9")
	out := d.want("at first", "ConfigMap/a@3+ Secret/key@5+ Trainer/cats@1", 1)
	if len(out.Wants) != 2 {
		t.Errorf("wants %v", out.Wants)
	}
}

// A Bundle that takes an object over takes along what was kept for it.
func TestWhatIsHandedOverKeepsWhatWasKept(t *testing.T) {
	d := dependingOn(t, readsByName, "ConfigMap/a", "ConfigMap/b")
	d.plan()
	d.teach(readsA)
	d.plan()
	was := *d.item("Trainer")
	next := dependingOn(t, readsA, "ConfigMap/a", "ConfigMap/b")
	next.in.Handed = map[atoll.ItemKey]*atoll.Item{was.Key: &was}
	next.want("taken over", "ConfigMap/a@2+ ConfigMap/b@3+ Trainer/cats@1", 1)
	next.reads("a")
	next.want("edited there", "ConfigMap/a@2+ Trainer/cats@1 -ConfigMap/b@3:Unused[]", 2)
}
