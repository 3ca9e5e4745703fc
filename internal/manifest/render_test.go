package manifest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

func TestRulesByCluster(t *testing.T) {
	c := newContent(
		atoll.Rule{Policy: "p", Index: 0, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}}},
		atoll.Rule{Policy: "p", Index: 1},
		atoll.Rule{Policy: "p", Index: 2, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}}},
	)
	variants := map[string]string{}
	for name, tc := range map[string]struct {
		view atoll.ClusterView
		want []int
	}{
		"a prod": {atoll.ClusterView{Name: "a", Labels: map[string]string{"env": "prod"}}, []int{0, 1, 2}},
		"b prod": {atoll.ClusterView{Name: "b", Labels: map[string]string{"env": "prod"}}, []int{0, 1}},
		"c prod": {atoll.ClusterView{Name: "c", Labels: map[string]string{"env": "prod"}}, []int{0, 1}},
		"d":      {atoll.ClusterView{Name: "d"}, []int{1}},
	} {
		got, variant := manifest.MatchRules(c, tc.view)
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: rules %v, want %v", name, got, tc.want)
		}
		variants[name] = variant
	}
	if variants["b prod"] != variants["c prod"] || variants["a prod"] == variants["b prod"] || variants["d"] == variants["b prod"] {
		t.Errorf("variants do not tell clusters by their rules: %v", variants)
	}
	if got, variant := manifest.MatchRules(newContent(), atoll.ClusterView{Name: "a"}); got != nil || variant != "" {
		t.Errorf("without rules: %v %q", got, variant)
	}
}

func TestAssignedReplicas(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{Replicas: pointerOf(int32(5))}, webKey))
	c.Items[1].Divided = true
	r, notes := renderedItem(t, c, manifest.RenderInput{Assigned: map[string]int64{webKey.String(): 0}}, webKey)
	if !strings.Contains(string(r.Object), `"replicas":0`) || len(notes) != 1 || notes[0].Policy != overrides.PolicyPlacement {
		t.Errorf("assigned replicas: %s %v", r.Object, notes)
	}
	if r, _ := renderedItem(t, c, manifest.RenderInput{}, webKey); r.Error == "" {
		t.Errorf("divided without an assignment: %s", r.Object)
	}
	if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !strings.Contains(r.Error, "divides") {
		t.Errorf("an override of divided replicas passed: %+v", r)
	}
	c.Rules[0].Overriders = plaintextOverriders("replace", "/spec/replicas", "4")
	if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !strings.Contains(r.Error, "divides") {
		t.Errorf("a patch of divided replicas passed: %+v", r)
	}
}

// If the placement allows replica overrides, an override sets the cluster's share. The override is
// the Provenance until the placement assigns another number.
func TestOverriddenReplicas(t *testing.T) {
	for name, o := range map[string]v1alpha1.Overriders{
		"replicas":         {Replicas: pointerOf(int32(5))},
		"plaintext":        plaintextOverriders("replace", "/spec/replicas", "5"),
		"the whole spec's": plaintextOverriders("add", "/spec/replicas", "5"),
	} {
		c := newContent(newRule("OverridePolicy/shop/p", o, webKey))
		c.Items[1].Divided = true
		if got := manifest.OverriddenReplicas(c, []int{0}, nil); got != nil || manifest.AllowsReplicaOverrides(c) {
			t.Errorf("%s: not handed over, and yet %v", name, got)
		}
		c.Items[1].ReplicaOverrides = true
		if got := manifest.OverriddenReplicas(c, []int{0}, nil); !manifest.AllowsReplicaOverrides(c) || len(got) != 1 || got[webKey.String()] != 5 {
			t.Errorf("%s: handed %v", name, got)
		}
		if got := manifest.OverriddenReplicas(c, nil, nil); got != nil {
			t.Errorf("%s: without the rule %v", name, got)
		}
		in := manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 5}}
		r, notes := renderedItem(t, c, in, webKey)
		if !strings.Contains(string(r.Object), `"replicas":5`) || len(notes) != 1 || notes[0].Policy != "OverridePolicy/shop/p" {
			t.Errorf("%s: %s %s %+v", name, r.Object, r.Error, notes)
		}
		in.Assigned[webKey.String()] = 3
		r, notes = renderedItem(t, c, in, webKey)
		if !strings.Contains(string(r.Object), `"replicas":3`) || len(notes) != 2 || notes[1].Policy != overrides.PolicyPlacement {
			t.Errorf("%s, while the share grows: %s %s %+v", name, r.Object, r.Error, notes)
		}
	}
}

// A StatefulSet whose ordinals are ranged gets its own range, with the placement as its Provenance.
func TestOrdinals(t *testing.T) {
	db := atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{}, db))
	set := newItem(db, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":9,"ordinals":{"start":5}}}`)
	set.Divided = true
	c.Items = append(c.Items, set)
	in := manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{db.String(): 3}, Ordinals: map[string]int64{db.String(): 2005}}
	r, notes := renderedItem(t, c, in, db)
	if !strings.Contains(string(r.Object), `"spec":{"ordinals":{"start":2005},"replicas":3}`) {
		t.Errorf("%s %s", r.Object, r.Error)
	}
	if len(notes) != 2 || notes[1].Path != "/spec/ordinals/start" || notes[1].Policy != overrides.PolicyPlacement || notes[1].Value != int64(2005) {
		t.Errorf("%+v", notes)
	}
	in.Ordinals = nil
	if r, _ := renderedItem(t, c, in, db); !strings.Contains(string(r.Object), `"ordinals":{"start":5},"replicas":3`) {
		t.Errorf("whole: %s", r.Object)
	}
	in.Ordinals = map[string]int64{db.String(): 0}
	c.Rules[0].Overriders = plaintextOverriders("replace", "/spec/ordinals/start", "7")
	if r, _ := renderedItem(t, c, in, db); !strings.Contains(r.Error, "the placement ranges this object's ordinals") {
		t.Errorf("an override of ranged ordinals passed: %s %s", r.Object, r.Error)
	}
}

// A new object starts with the replicas that are this cluster's; afterwards they are
// the autoscaler's.
func TestAutoscaledReplicasAreLeftToMembers(t *testing.T) {
	hpa := atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "web"}
	for _, divided := range []bool{false, true} {
		c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"a": "b"}}}}, webKey))
		c.Items[1].Divided = divided
		c.Items = append(c.Items, newItem(hpa, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","namespace":"shop"},"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`))
		r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey)
		if strings.Contains(string(r.Object), "replicas") == divided || fmt.Sprint(r.MemberOwned) != "[/spec/replicas]" || r.Error != "" {
			t.Errorf("divided %v: object %s, leave %v, error %q", divided, r.Object, r.MemberOwned, r.Error)
		}
		assigned := manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}
		if r, _ := renderedItem(t, c, assigned, webKey); divided && !strings.Contains(string(r.Object), `"replicas":2`) || r.Error != "" {
			t.Errorf("divided %v, 2 assigned: object %s, error %q", divided, r.Object, r.Error)
		}
		without, _ := renderedItem(t, newContent(c.Rules...), manifest.RenderInput{Rules: []int{0}}, webKey)
		if without.Hash == r.Hash {
			t.Error("leaving a field did not change the hash")
		}
	}
}

// The identity of an object stays under any rules, equal input gives equal bytes, and hashes tell
// contents apart.
func TestRenderProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/spec/replicas", "/spec", "/metadata/labels", "/metadata/labels/app", "/metadata/name", "/kind", "/spec/template/spec/containers/0/image", "/spec/template/spec/containers/-", "/data/p", "/metadata/finalizers", "/"}
	values := []string{"1", `"nginx:2"`, `{}`, `[]`, `null`, `{"name":"x","image":"y"}`}
	ops := []v1alpha1.OverriderOperator{"add", "remove", "replace"}
	hashes := map[string]string{}
	for range 3000 {
		var rules []atoll.Rule
		var in manifest.RenderInput
		for i := range rnd.IntN(4) {
			rules = append(rules, newRule("ClusterOverridePolicy/p", plaintextOverriders(ops[rnd.IntN(3)], paths[rnd.IntN(len(paths))], values[rnd.IntN(len(values))]), webKey, jobKey, secretKey))
			in.Rules = append(in.Rules, i)
		}
		c := newContent(rules...)
		got, _ := manifest.RenderItems(c, in)
		again, _ := manifest.RenderItems(c, in)
		for i, r := range got {
			if r.Hash != again[i].Hash || string(r.Object) != string(again[i].Object) {
				t.Fatalf("rendered twice: %s and %s", r.Object, again[i].Object)
			}
			content := string(r.Object) + r.Error
			if other, ok := hashes[r.Hash]; ok && other != content {
				t.Fatalf("one hash for %s and %s", other, content)
			}
			hashes[r.Hash] = content
			if r.Error != "" {
				continue
			}
			var o struct {
				APIVersion, Kind string
				Metadata         struct {
					Name, Namespace             string
					Finalizers, OwnerReferences []any
				}
			}
			if err := json.Unmarshal(r.Object, &o); err != nil {
				t.Fatalf("%s: %v", r.Object, err)
			}
			if o.Kind != r.Key.Kind || o.Metadata.Name != r.Key.Name || o.Metadata.Namespace != r.Key.Namespace || o.APIVersion != r.APIVersion || len(o.Metadata.Finalizers)+len(o.Metadata.OwnerReferences) > 0 {
				t.Fatalf("rules %+v made %s of %s", rules, r.Object, r.Key)
			}
		}
	}
}

func TestBuildManifest(t *testing.T) {
	c := newContent()
	c.Tombstones = []atoll.Tombstone{{Key: jobKey, UID: "old", Cause: atoll.CauseMoved, MovedTo: []string{"b1", "b2"}}}
	items, _ := manifest.RenderItems(c, manifest.RenderInput{})
	in := manifest.ManifestInput{
		Bundle: enginev1.BundleRef{UID: "b0", Namespace: "shop", Name: "web"}, Content: c, Items: items,
		Row:          atoll.RowSpec{Generation: 7, Phase: atoll.RowActive},
		HasActiveRow: func(uid string) bool { return uid == "b2" },
		Namespaces: map[string]atoll.NamespaceMeta{
			"shop":  manifest.UserNamespaceMeta(map[string]string{"team": "a", "kubernetes.io/metadata.name": "shop", "atoll.dev/x": "y"}, map[string]string{"atoll.dev/clusters": "*"}),
			"other": {Labels: map[string]string{"a": "b"}},
		},
	}
	m := manifest.BuildManifest(in)
	if m.Bundle != "b0" || m.Generation != 7 || len(m.Items) != 4 || fmt.Sprint(m.Tombstones[0].MovedTo) != "[b2]" {
		t.Errorf("manifest %+v", m)
	}
	if fmt.Sprint(m.Namespaces) != "map[shop:{map[team:a] map[] }]" {
		t.Errorf("namespaces %v", m.Namespaces)
	}
	alone := in
	alone.Items, alone.Content = nil, &atoll.Content{NamespaceAlone: true}
	if next := manifest.BuildManifest(alone); fmt.Sprint(next.Namespaces) != "map[shop:{map[team:a] map[] }]" {
		t.Errorf("a content that is its namespace has the namespaces %v", next.Namespaces)
	}
	if alone.Content = (&atoll.Content{}); manifest.BuildManifest(alone).Namespaces != nil {
		t.Error("a content without items needs a namespace")
	}
	none := alone
	if none.Items = []atoll.RenderedItem{}; manifest.BuildManifest(none).Content != manifest.BuildManifest(alone).Content {
		t.Error("an empty list of items changed the content's hash")
	}
	if len(c.Tombstones[0].MovedTo) != 2 {
		t.Error("BuildManifest changed the content")
	}
	in.Row.Generation = 8
	if next := manifest.BuildManifest(in); next.Content != m.Content || next.Generation != 8 {
		t.Error("the generation changed the content's hash")
	}
	in.HasActiveRow = nil
	if next := manifest.BuildManifest(in); next.Content == m.Content || next.Tombstones[0].MovedTo != nil {
		t.Error("where an item moved to is no part of the content's hash")
	}
	in.Row.Phase, in.Row.Orphan = atoll.RowRemoving, true
	keyed := in
	keyed.HashKey = []byte("the hub's")
	if a, b := manifest.BuildManifest(in), manifest.BuildManifest(keyed); a.Content == b.Content || b.Content != manifest.BuildManifest(keyed).Content {
		t.Errorf("content is hashed to %s and, under a key, to %s", a.Content, b.Content)
	}
	if gone := manifest.BuildManifest(in); !gone.Remove || gone.Items != nil || gone.Removal != v1alpha1.RemoveOrphan || gone.Content == m.Content {
		t.Errorf("a row that is Removing: %+v", gone)
	}
}
