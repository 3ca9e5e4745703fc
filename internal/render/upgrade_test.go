package render_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/render"
)

// served is a hub's templates, all placed by one Bundle.
type served map[atoll.ItemKey]*unstructured.Unstructured

func (s served) Template(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := s[key]
	return t, ok
}
func (s served) Claim(atoll.ItemKey) (claim.Claim, bool)               { return claim.Mine, false }
func (s served) Deleted(atoll.ItemKey, string) bool                    { return false }
func (s served) Holders(atoll.ItemKey) []string                        { return nil }
func (s served) Selected(atoll.Selection) []atoll.ItemKey              { return nil }
func (s served) Definition(atoll.ItemKey) (key atoll.ItemKey, ok bool) { return key, false }

// plan the Bundle on a hub with these defaults, from the content of its last Revision.
func (s served) plan(previous *atoll.Content, defaults render.Defaulter) claim.PlanOutput {
	in := claim.PlanInput{World: s, Previous: previous, Defaults: defaults, Intent: &claim.Intent{}}
	in.Intent.Spec.ConflictResolution, in.Intent.Spec.Removal.Mode = v1alpha1.ConflictAbort, v1alpha1.RemoveDelete
	for key := range s {
		in.Claimed = append(in.Claimed, key)
	}
	return claim.Plan(in)
}

// writtenBy gives the goldens' live objects by the way in which they were written.
func writtenBy(t *testing.T, how string) served {
	t.Helper()
	golden := how
	if how == "update" {
		golden = "create"
	}
	files, err := filepath.Glob("testdata/*-" + golden + ".in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := served{}
	for _, file := range files {
		obj := load(t, file)
		obj.SetFinalizers(append(obj.GetFinalizers(), atoll.Finalizer))
		if how == "update" {
			replaced(obj)
		}
		gk := obj.GroupVersionKind().GroupKind()
		s[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	}
	if len(s) < 20 {
		t.Fatalf("only %d objects were written by %s", len(s), how)
	}
	return s
}

// replaced makes it an object that a controller has sent back whole: the API server
// notes that its Update entries own what they sent, defaults that it had read included.
func replaced(obj *unstructured.Unstructured) {
	entries := obj.GetManagedFields()
	for _, e := range entries {
		if e.Manager != "kubectl-create" {
			continue
		}
		e.Manager, e.Operation = "some-operator", metav1.ManagedFieldsOperationUpdate
		entries = append(entries, e)
	}
	obj.SetManagedFields(entries)
}

// newer is the objects as a newer Kubernetes serves them: with defaults filled in that
// there were not when they were stored, which nobody owns.
func (s served) newer() served {
	out := served{}
	for key, old := range s {
		obj := old.DeepCopy()
		obj.Object["introducedLater"] = "by a newer hub"
		if spec, ok := obj.Object["spec"].(map[string]any); ok {
			spec["introducedLater"] = map[string]any{"seconds": int64(30)}
		}
		for _, path := range interpret.PodTemplates(obj) {
			pod, _ := interpret.Lookup(obj.Object, path)
			spec, ok := pod.(map[string]any)
			if !ok {
				continue
			}
			spec["introducedLater"] = "Always"
			containers, _ := spec["containers"].([]any)
			for _, c := range containers {
				c.(map[string]any)["introducedLater"] = true
			}
		}
		out[key] = obj
	}
	return out
}

// A hub of another version, with other defaults and new fields, cuts no Revision: what
// members get, to the bytes and hashes that agents compare, stays as it is. How users
// wrote makes no difference.
func TestAnotherHubVersionChangesNothing(t *testing.T) {
	old := realDefaults(t)
	other := otherDefaults{old}
	for _, how := range []string{"apply", "lastapplied", "create", "update"} {
		t.Run(how, func(t *testing.T) {
			templates := writtenBy(t, how)
			first := templates.plan(nil, old)
			if !first.Cut || len(first.Problems) > 0 {
				t.Fatalf("the first plan: cut %t, problems %v", first.Cut, first.Problems)
			}
			upgraded := templates.newer()
			next := upgraded.plan(&first.Content, other)
			if next.Cut || len(next.Problems) > 0 || len(next.Finalize) > 0 {
				t.Errorf("after the upgrade: cut %t, problems %v, to finalize %v", next.Cut, next.Problems, next.Finalize)
			}
			if a, b := sent(&first.Content), sent(&next.Content); a != b {
				t.Errorf("members are sent\n%s\nafter the upgrade\n%s", a, b)
			}
			// It is the memory of what was pruned from what that does this: a hub
			// without it would send other things.
			forgetful := first.Content
			forgetful.Items = append([]atoll.Item(nil), first.Content.Items...)
			for i := range forgetful.Items {
				forgetful.Items[i].Source = ""
			}
			if !upgraded.plan(&forgetful, other).Cut && (how == "create" || how == "update") {
				t.Error("the other defaults would have made no difference: the test proves nothing")
			}
		})
	}
}

// sent is what an agent gets: the manifest's hash and each object's.
func sent(c *atoll.Content) string {
	items, _ := render.Render(c, render.Input{})
	m := render.BuildManifest(render.ManifestInput{
		Bundle: enginev1.BundleRef{UID: "b"}, Content: c, Items: items, Row: atoll.RowSpec{Generation: 1, Phase: atoll.RowActive},
	})
	var out strings.Builder
	fmt.Fprintln(&out, m.Content)
	for _, r := range items {
		fmt.Fprintln(&out, r.Key, r.Hash, r.Error)
	}
	return out.String()
}

// When a user edits one template after the upgrade, the others still do not change.
func TestAnEditAfterAnUpgradeChangesOnlyItsItem(t *testing.T) {
	old := realDefaults(t)
	templates := writtenBy(t, "create")
	first := templates.plan(nil, old)
	upgraded := templates.newer()
	edited := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop-create", Name: "web"}
	obj := upgraded[edited]
	if obj == nil {
		t.Fatalf("no %s among the goldens", edited)
	}
	obj.SetLabels(map[string]string{"edited": "yes"})
	obj.SetGeneration(obj.GetGeneration() + 1)
	next := upgraded.plan(&first.Content, otherDefaults{old})
	if !next.Cut {
		t.Error("the edit makes no revision")
	}
	for i, item := range next.Content.Items {
		if same := item.Hash == first.Content.Items[i].Hash; same == (item.Key == edited) {
			t.Errorf("%s: same content %t", item.Key, same)
		}
	}
}
