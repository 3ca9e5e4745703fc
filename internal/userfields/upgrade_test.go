package userfields_test

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
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/userfields"
)

// servedTemplates is a hub's templates, all placed by one Bundle.
type servedTemplates map[atoll.ItemKey]*unstructured.Unstructured

func (s servedTemplates) TemplateOf(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := s[key]
	return t, ok
}
func (s servedTemplates) PlacedBy(atoll.ItemKey) (bundlecontent.PlacedBy, bool) {
	return bundlecontent.PlacedByThis, false
}
func (s servedTemplates) WasDeleted(atoll.ItemKey, string) bool                   { return false }
func (s servedTemplates) OtherHolderUIDs(atoll.ItemKey) []string                  { return nil }
func (s servedTemplates) SelectedKeys(atoll.Selection) []atoll.ItemKey            { return nil }
func (servedTemplates) IsHubOnly(*unstructured.Unstructured) bool                 { return false }
func (s servedTemplates) DefinitionOf(atoll.ItemKey) (key atoll.ItemKey, ok bool) { return key, false }

// nextContent the Bundle on a hub with these defaults, from the content of its last Revision.
func (s servedTemplates) nextContent(previous *atoll.Content, defaults userfields.Defaulter) bundlecontent.Output {
	in := bundlecontent.Input{Templates: s, Holders: s, Previous: previous, Defaulter: defaults, Intent: &policymatch.Intent{}}
	in.Intent.Spec.ConflictResolution, in.Intent.Spec.Removal.Mode = v1alpha1.ConflictAbort, v1alpha1.RemoveDelete
	for key := range s {
		in.Chosen = append(in.Chosen, key)
	}
	return bundlecontent.NextContent(in)
}

// templatesWrittenBy returns the goldens' live objects by the way in which they were written.
func templatesWrittenBy(t *testing.T, how string) servedTemplates {
	t.Helper()
	golden := how
	if how == "update" {
		golden = "create"
	}
	files, err := filepath.Glob("testdata/*-" + golden + ".in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := servedTemplates{}
	for _, file := range files {
		obj := loadObject(t, file)
		obj.SetFinalizers(append(obj.GetFinalizers(), atoll.Finalizer))
		if how == "update" {
			addUpdateOwners(obj)
		}
		gk := obj.GroupVersionKind().GroupKind()
		s[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	}
	if len(s) < 20 {
		t.Fatalf("only %d objects were written by %s", len(s), how)
	}
	return s
}

// addUpdateOwners makes it an object that a controller has sent back whole: the API server
// Notes that its Update entries own what they sent, defaults that it had read included.
func addUpdateOwners(obj *unstructured.Unstructured) {
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

// servedByNewerHub returns the objects as a newer Kubernetes serves them: with new defaults that
// have no owner.
func (s servedTemplates) servedByNewerHub() servedTemplates {
	out := servedTemplates{}
	for key, old := range s {
		obj := old.DeepCopy()
		obj.Object["introducedLater"] = "by a newer hub"
		if spec, ok := obj.Object["spec"].(map[string]any); ok {
			spec["introducedLater"] = map[string]any{"seconds": int64(30)}
		}
		for _, path := range kinds.PodSpecPaths(obj) {
			pod, _ := kinds.LookupPath(obj.Object, path)
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
	old := newRealDefaulter(t)
	other := shiftedDefaulter{old}
	for _, how := range []string{"apply", "lastapplied", "create", "update"} {
		t.Run(how, func(t *testing.T) {
			templates := templatesWrittenBy(t, how)
			first := templates.nextContent(nil, old)
			if !first.NeedsRevision || len(first.Problems) > 0 {
				t.Fatalf("the first plan: cut %t, problems %v", first.NeedsRevision, first.Problems)
			}
			upgraded := templates.servedByNewerHub()
			next := upgraded.nextContent(&first.Content, other)
			if next.NeedsRevision || len(next.Problems) > 0 || len(next.NeedFinalizer) > 0 {
				t.Errorf("after the upgrade: cut %t, problems %v, to finalize %v", next.NeedsRevision, next.Problems, next.NeedFinalizer)
			}
			if a, b := formatSentItems(&first.Content), formatSentItems(&next.Content); a != b {
				t.Errorf("members are sent\n%s\nafter the upgrade\n%s", a, b)
			}
			// It is the memory of what was pruned from what that does this: a hub
			// without it would send other things.
			forgetful := first.Content
			forgetful.Items = append([]atoll.Item(nil), first.Content.Items...)
			for i := range forgetful.Items {
				forgetful.Items[i].SourceFingerprint = ""
			}
			if !upgraded.nextContent(&forgetful, other).NeedsRevision && (how == "create" || how == "update") {
				t.Error("the other defaults would have made no difference: the test proves nothing")
			}
		})
	}
}

// formatSentItems is what an agent gets: the manifest's hash and each object's.
func formatSentItems(c *atoll.Content) string {
	items, _ := manifest.RenderItems(c, manifest.RenderInput{})
	m := manifest.BuildManifest(manifest.ManifestInput{
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
	old := newRealDefaulter(t)
	templates := templatesWrittenBy(t, "create")
	first := templates.nextContent(nil, old)
	upgraded := templates.servedByNewerHub()
	edited := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop-create", Name: "web"}
	obj := upgraded[edited]
	if obj == nil {
		t.Fatalf("no %s among the goldens", edited)
	}
	obj.SetLabels(map[string]string{"edited": "yes"})
	obj.SetGeneration(obj.GetGeneration() + 1)
	next := upgraded.nextContent(&first.Content, shiftedDefaulter{old})
	if !next.NeedsRevision {
		t.Error("the edit makes no revision")
	}
	for i, item := range next.Content.Items {
		if same := item.Hash == first.Content.Items[i].Hash; same == (item.Key == edited) {
			t.Errorf("%s: same content %t", item.Key, same)
		}
	}
}
