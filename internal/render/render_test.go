package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

var (
	webKey    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	secretKey = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}
	jobKey    = atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "j"}
	roleKey   = atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "Role", Namespace: "shop", Name: "r"}
)

const webObject = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web","namespace":"shop"},` +
	`"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"nginx:1","name":"a"},{"image":"r.io/b:1","name":"b"}],"initContainers":[{"image":"busybox","name":"i"}]}}}}`

func item(key atoll.ItemKey, object string) atoll.Item {
	return atoll.Item{Key: key, APIVersion: strings.TrimPrefix(key.Group+"/v1", "/"), UID: "u-" + key.Name, Object: json.RawMessage(object), Hash: atoll.Hash([]byte(object))}
}

func content(rules ...atoll.Rule) *atoll.Content {
	return &atoll.Content{
		Items: []atoll.Item{
			item(secretKey, `{"apiVersion":"v1","data":{"p":"eA=="},"kind":"Secret","metadata":{"name":"s","namespace":"shop"}}`),
			item(webKey, webObject),
			item(jobKey, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"image":"x","name":"c"}]}}}}`),
			item(roleKey, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r","namespace":"shop"},"rules":[]}`),
		},
		Rules: rules, ConflictResolution: v1alpha1.ConflictAbort, Removal: v1alpha1.RemoveDelete,
	}
}

func rule(policy string, o v1alpha1.Overriders, keys ...atoll.ItemKey) atoll.Rule {
	return atoll.Rule{Policy: policy, Items: keys, Overriders: o, Meaning: atoll.RuleMeaning}
}

func plain(op v1alpha1.OverriderOperator, path, value string) v1alpha1.Overriders {
	p := v1alpha1.PlaintextOverrider{Operator: op, Path: path}
	if value != "" {
		p.Value = &apiextensionsv1.JSON{Raw: []byte(value)}
	}
	return v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{p}}
}

func ptr[T any](v T) *T { return &v }

func rendered(t *testing.T, c *atoll.Content, in render.Input, key atoll.ItemKey) (atoll.Rendered, []render.Provenance) {
	t.Helper()
	items, notes := render.Render(c, in)
	var own []render.Provenance
	for _, n := range notes {
		if n.Item == key {
			own = append(own, n)
		}
	}
	for _, r := range items {
		if r.Key == key {
			return r, own
		}
	}
	t.Fatalf("no %s among %d items", key, len(items))
	return atoll.Rendered{}, nil
}

func TestOverriders(t *testing.T) {
	const cop, op = "ClusterOverridePolicy/p", "OverridePolicy/shop/p"
	for name, tc := range map[string]struct {
		rule  atoll.Rule
		key   atoll.ItemKey
		want  []string // pieces of the object
		err   string
		notes []string
	}{
		"image everywhere": {
			rule: rule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Registry", Operator: "replace", Value: "m.io"}}}, webKey),
			want: []string{`"m.io/nginx:1"`, `"m.io/b:1"`, `"m.io/busybox"`},
			notes: []string{"/spec/template/spec/containers/0/image=m.io/nginx:1", "/spec/template/spec/containers/1/image=m.io/b:1",
				"/spec/template/spec/initContainers/0/image=m.io/busybox"},
		},
		"image at a path": {
			rule: rule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: "2",
				Predicate: &v1alpha1.ImagePredicate{Path: "/spec/template/spec/containers/1/image"}}}}, webKey),
			want: []string{`"nginx:1"`, `"r.io/b:2"`}, notes: []string{"/spec/template/spec/containers/1/image=r.io/b:2"},
		},
		"image at a path that is not there": {
			rule: rule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: "2",
				Predicate: &v1alpha1.ImagePredicate{Path: "/spec/image"}}}}, webKey),
			err: "there is no image at /spec/image",
		},
		"labels and annotations": {
			rule: rule(op, v1alpha1.Overriders{
				LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{
					{Operator: "add", Value: map[string]string{"app": "again", "tier": "front"}},
					{Operator: "replace", Value: map[string]string{"app": "web2", "absent": "ignored"}}},
				AnnotationsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"a.b/c": "d"}}},
			}, webKey),
			want:  []string{`"labels":{"app":"web2","tier":"front"}`, `"annotations":{"a.b/c":"d"}`},
			notes: []string{"/metadata/labels/app=again", "/metadata/labels/tier=front", "/metadata/labels/app=web2", "/metadata/annotations/a.b~1c=d"},
		},
		"labels gone": {
			rule: rule(op, v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "remove", Value: map[string]string{"app": ""}}}}, webKey),
			want: []string{`"metadata":{"name":"web","namespace":"shop"}`}, notes: []string{"/metadata/labels/app=<nil>"},
		},
		"replicas": {
			rule: rule(op, v1alpha1.Overriders{Replicas: ptr(int32(0))}, webKey), want: []string{`"replicas":0`}, notes: []string{"/spec/replicas=0"},
		},
		"parallelism": {
			rule: rule(op, v1alpha1.Overriders{Replicas: ptr(int32(4))}, jobKey), key: jobKey, want: []string{`"parallelism":4`}, notes: []string{"/spec/parallelism=4"},
		},
		"replicas of what has none": {
			rule: rule(cop, v1alpha1.Overriders{Replicas: ptr(int32(4))}, roleKey), key: roleKey, want: []string{`"rules":[]`},
		},
		"plaintext":            {rule: rule(op, plain("add", "/spec/paused", "true"), webKey), want: []string{`"paused":true`}, notes: []string{"/spec/paused=true"}},
		"plaintext misses":     {rule: rule(op, plain("replace", "/spec/paused", "true"), webKey), err: `there is no "paused" to replace`},
		"name":                 {rule: rule(cop, plain("replace", "/metadata/name", `"x"`), webKey), err: "never touch"},
		"owners":               {rule: rule(cop, plain("add", "/metadata/ownerReferences", `[]`), webKey), err: "never touch"},
		"finalizers":           {rule: rule(cop, plain("add", "/metadata/finalizers/-", `"x"`), webKey), err: "never touch"},
		"all metadata":         {rule: rule(cop, plain("replace", "/metadata", `{}`), webKey), err: "never touch"},
		"kind":                 {rule: rule(cop, plain("replace", "/kind", `"Pod"`), webKey), err: "never touch"},
		"Atoll's own":          {rule: rule(cop, plain("add", "/metadata/labels/atoll.dev~1bundle-uid", `"x"`), webKey), err: "Atoll's own"},
		"Atoll's own in a map": {rule: rule(cop, plain("replace", "/metadata/labels", `{"atoll.dev/x":"y"}`), webKey), err: "Atoll's own"},
		"RBAC by a tenant":     {rule: rule(op, plain("replace", "/rules", `[]`), roleKey), key: roleKey, err: "only a ClusterOverridePolicy"},
		"RBAC by an admin":     {rule: rule(cop, plain("replace", "/rules", `[{"verbs":["get"]}]`), roleKey), key: roleKey, want: []string{`"get"`}, notes: []string{`/rules=[map[verbs:[get]]]`}},
		"Secret by a tenant":   {rule: rule(op, plain("replace", "/data/p", `"eQ=="`), secretKey), key: secretKey, err: "only a ClusterOverridePolicy"},
		"Secret by an admin":   {rule: rule(cop, plain("replace", "/data/p", `"eQ=="`), secretKey), key: secretKey, want: []string{`"p":"eQ=="`}, notes: []string{"/data/p=<nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			key := tc.key
			if key.Kind == "" {
				key = webKey
			}
			c := content(tc.rule)
			before := atoll.ContentIdentity(c)
			r, notes := rendered(t, c, render.Input{Rules: []int{0}}, key)
			if string(atoll.ContentIdentity(c)) != string(before) {
				t.Error("Render changed the content")
			}
			if tc.err != "" {
				if !strings.Contains(r.Error, tc.err) || !strings.HasPrefix(r.Error, tc.rule.Policy+" rule 0") || r.Object != nil || len(notes) > 0 {
					t.Errorf("error %q, object %s, notes %v; want an error of rule 0 with %q alone", r.Error, r.Object, notes, tc.err)
				}
				return
			}
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(r.Object), want) {
					t.Errorf("no %s in %s", want, r.Object)
				}
			}
			var got []string
			for _, n := range notes {
				got = append(got, fmt.Sprintf("%s=%v", n.Path, n.Value))
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.notes) {
				t.Errorf("provenance %q, want %q", got, tc.notes)
			}
		})
	}
}

func TestFailedItemStopsNoOther(t *testing.T) {
	c := content(rule("OverridePolicy/shop/p", plain("replace", "/spec/replicas", "9"), webKey, jobKey))
	job, _ := rendered(t, c, render.Input{Rules: []int{0}}, jobKey)
	web, _ := rendered(t, c, render.Input{Rules: []int{0}}, webKey)
	secret, _ := rendered(t, c, render.Input{Rules: []int{0}}, secretKey)
	if job.Error == "" || web.Error != "" || secret.Error != "" {
		t.Errorf("errors: job %q, web %q, secret %q; want one of the job alone", job.Error, web.Error, secret.Error)
	}
	if string(secret.Object) != string(c.Items[0].Object) {
		t.Errorf("an item without rules changed: %s", secret.Object)
	}
}

func TestRulesApplyInOrder(t *testing.T) {
	c := content(
		rule("ClusterOverridePolicy/a", v1alpha1.Overriders{Replicas: ptr(int32(1))}, webKey),
		rule("OverridePolicy/shop/b", v1alpha1.Overriders{Replicas: ptr(int32(2))}, webKey),
		rule("ClusterOverridePolicy/c", v1alpha1.Overriders{Replicas: ptr(int32(7))}, webKey),
	)
	r, notes := rendered(t, c, render.Input{Rules: []int{0, 1, 2}}, webKey)
	if !strings.Contains(string(r.Object), `"replicas":7`) || len(notes) != 3 || notes[2].Policy != "ClusterOverridePolicy/c" {
		t.Errorf("the last rule has not the last word: %s %v", r.Object, notes)
	}
	if r, _ := rendered(t, c, render.Input{Rules: []int{0, 1}}, webKey); !strings.Contains(string(r.Object), `"replicas":2`) {
		t.Errorf("a rule that does not target the cluster applied: %s", r.Object)
	}
}

func TestRulesByCluster(t *testing.T) {
	c := content(
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
		got, variant := render.Rules(c, tc.view)
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: rules %v, want %v", name, got, tc.want)
		}
		variants[name] = variant
	}
	if variants["b prod"] != variants["c prod"] || variants["a prod"] == variants["b prod"] || variants["d"] == variants["b prod"] {
		t.Errorf("variants do not tell clusters by their rules: %v", variants)
	}
	if got, variant := render.Rules(content(), atoll.ClusterView{Name: "a"}); got != nil || variant != "" {
		t.Errorf("without rules: %v %q", got, variant)
	}
}

func TestAssigned(t *testing.T) {
	c := content(rule("OverridePolicy/shop/p", v1alpha1.Overriders{Replicas: ptr(int32(5))}, webKey))
	c.Items[1].Divided = true
	r, notes := rendered(t, c, render.Input{Assigned: map[string]int64{webKey.String(): 0}}, webKey)
	if !strings.Contains(string(r.Object), `"replicas":0`) || len(notes) != 1 || notes[0].Policy != render.PolicyPlacement {
		t.Errorf("assigned replicas: %s %v", r.Object, notes)
	}
	if r, _ := rendered(t, c, render.Input{}, webKey); r.Error == "" {
		t.Errorf("divided without an assignment: %s", r.Object)
	}
	if r, _ := rendered(t, c, render.Input{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !strings.Contains(r.Error, "divides") {
		t.Errorf("an override of divided replicas passed: %+v", r)
	}
	c.Rules[0].Overriders = plain("replace", "/spec/replicas", "4")
	if r, _ := rendered(t, c, render.Input{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !strings.Contains(r.Error, "divides") {
		t.Errorf("a patch of divided replicas passed: %+v", r)
	}
}

// Where the placement hands replicas over, what an override sets is the cluster's share,
// and the override is named for it, until the placement assigns another.
func TestHandedReplicas(t *testing.T) {
	for name, o := range map[string]v1alpha1.Overriders{
		"replicas":         {Replicas: ptr(int32(5))},
		"plaintext":        plain("replace", "/spec/replicas", "5"),
		"the whole spec's": plain("add", "/spec/replicas", "5"),
	} {
		c := content(rule("OverridePolicy/shop/p", o, webKey))
		c.Items[1].Divided = true
		if got := render.Handed(c, []int{0}, nil); got != nil || render.Hands(c) {
			t.Errorf("%s: not handed over, and yet %v", name, got)
		}
		c.Items[1].ReplicaOverrides = true
		if got := render.Handed(c, []int{0}, nil); !render.Hands(c) || len(got) != 1 || got[webKey.String()] != 5 {
			t.Errorf("%s: handed %v", name, got)
		}
		if got := render.Handed(c, nil, nil); got != nil {
			t.Errorf("%s: without the rule %v", name, got)
		}
		in := render.Input{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 5}}
		r, notes := rendered(t, c, in, webKey)
		if !strings.Contains(string(r.Object), `"replicas":5`) || len(notes) != 1 || notes[0].Policy != "OverridePolicy/shop/p" {
			t.Errorf("%s: %s %s %+v", name, r.Object, r.Error, notes)
		}
		in.Assigned[webKey.String()] = 3
		r, notes = rendered(t, c, in, webKey)
		if !strings.Contains(string(r.Object), `"replicas":3`) || len(notes) != 2 || notes[1].Policy != render.PolicyPlacement {
			t.Errorf("%s, while the share grows: %s %s %+v", name, r.Object, r.Error, notes)
		}
	}
}

// A StatefulSet whose ordinals are ranged gets its own range, and says who gave it.
func TestOrdinals(t *testing.T) {
	db := atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	c := content(rule("OverridePolicy/shop/p", v1alpha1.Overriders{}, db))
	set := item(db, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":9,"ordinals":{"start":5}}}`)
	set.Divided = true
	c.Items = append(c.Items, set)
	in := render.Input{Rules: []int{0}, Assigned: map[string]int64{db.String(): 3}, Ordinals: map[string]int64{db.String(): 2005}}
	r, notes := rendered(t, c, in, db)
	if !strings.Contains(string(r.Object), `"spec":{"ordinals":{"start":2005},"replicas":3}`) {
		t.Errorf("%s %s", r.Object, r.Error)
	}
	if len(notes) != 2 || notes[1].Path != "/spec/ordinals/start" || notes[1].Policy != render.PolicyPlacement || notes[1].Value != int64(2005) {
		t.Errorf("%+v", notes)
	}
	in.Ordinals = nil
	if r, _ := rendered(t, c, in, db); !strings.Contains(string(r.Object), `"ordinals":{"start":5},"replicas":3`) {
		t.Errorf("whole: %s", r.Object)
	}
	in.Ordinals = map[string]int64{db.String(): 0}
	c.Rules[0].Overriders = plain("replace", "/spec/ordinals/start", "7")
	if r, _ := rendered(t, c, in, db); !strings.Contains(r.Error, "the placement ranges this object's ordinals") {
		t.Errorf("an override of ranged ordinals passed: %s %s", r.Object, r.Error)
	}
}

// A new object starts with the replicas that are this cluster's; afterwards they are
// the autoscaler's.
func TestReplicasOfAnAutoscalerAreLeft(t *testing.T) {
	hpa := atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "web"}
	for _, divided := range []bool{false, true} {
		c := content(rule("OverridePolicy/shop/p", v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"a": "b"}}}}, webKey))
		c.Items[1].Divided = divided
		c.Items = append(c.Items, item(hpa, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","namespace":"shop"},"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`))
		r, _ := rendered(t, c, render.Input{Rules: []int{0}}, webKey)
		if strings.Contains(string(r.Object), "replicas") == divided || fmt.Sprint(r.Leave) != "[/spec/replicas]" || r.Error != "" {
			t.Errorf("divided %v: object %s, leave %v, error %q", divided, r.Object, r.Leave, r.Error)
		}
		assigned := render.Input{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}
		if r, _ := rendered(t, c, assigned, webKey); divided && !strings.Contains(string(r.Object), `"replicas":2`) || r.Error != "" {
			t.Errorf("divided %v, 2 assigned: object %s, error %q", divided, r.Object, r.Error)
		}
		without, _ := rendered(t, content(c.Rules...), render.Input{Rules: []int{0}}, webKey)
		if without.Hash == r.Hash {
			t.Error("leaving a field did not change the hash")
		}
	}
}

// Whatever rules apply, the identity of an object stays, equal input gives equal
// bytes, and hashes tell contents apart.
func TestRenderProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/spec/replicas", "/spec", "/metadata/labels", "/metadata/labels/app", "/metadata/name", "/kind", "/spec/template/spec/containers/0/image", "/spec/template/spec/containers/-", "/data/p", "/metadata/finalizers", "/"}
	values := []string{"1", `"nginx:2"`, `{}`, `[]`, `null`, `{"name":"x","image":"y"}`}
	ops := []v1alpha1.OverriderOperator{"add", "remove", "replace"}
	hashes := map[string]string{}
	for range 3000 {
		var rules []atoll.Rule
		var in render.Input
		for i := range rnd.IntN(4) {
			rules = append(rules, rule("ClusterOverridePolicy/p", plain(ops[rnd.IntN(3)], paths[rnd.IntN(len(paths))], values[rnd.IntN(len(values))]), webKey, jobKey, secretKey))
			in.Rules = append(in.Rules, i)
		}
		c := content(rules...)
		got, _ := render.Render(c, in)
		again, _ := render.Render(c, in)
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
	c := content()
	c.Tombstones = []atoll.Tombstone{{Key: jobKey, UID: "old", Cause: atoll.CauseMoved, MovedTo: []string{"b1", "b2"}}}
	items, _ := render.Render(c, render.Input{})
	in := render.ManifestInput{
		Bundle: enginev1.BundleRef{UID: "b0", Namespace: "shop", Name: "web"}, Content: c, Items: items,
		Row:  atoll.RowSpec{Generation: 7, Phase: atoll.RowActive},
		Here: func(uid string) bool { return uid == "b2" },
		Namespaces: map[string]atoll.NamespaceMeta{
			"shop":  render.NamespaceMeta(map[string]string{"team": "a", "kubernetes.io/metadata.name": "shop", "atoll.dev/x": "y"}, map[string]string{"atoll.dev/clusters": "*"}),
			"other": {Labels: map[string]string{"a": "b"}},
		},
	}
	m := render.BuildManifest(in)
	if m.Bundle != "b0" || m.Generation != 7 || len(m.Items) != 4 || fmt.Sprint(m.Tombstones[0].MovedTo) != "[b2]" {
		t.Errorf("manifest %+v", m)
	}
	if fmt.Sprint(m.Namespaces) != "map[shop:{map[team:a] map[]}]" {
		t.Errorf("namespaces %v", m.Namespaces)
	}
	if len(c.Tombstones[0].MovedTo) != 2 {
		t.Error("BuildManifest changed the content")
	}
	in.Row.Generation = 8
	if next := render.BuildManifest(in); next.Content != m.Content || next.Generation != 8 {
		t.Error("the generation changed the content's hash")
	}
	in.Here = nil
	if next := render.BuildManifest(in); next.Content == m.Content || next.Tombstones[0].MovedTo != nil {
		t.Error("where an item moved to is no part of the content's hash")
	}
	in.Row.Phase, in.Row.Orphan = atoll.RowRemoving, true
	keyed := in
	keyed.Key = []byte("the hub's")
	if a, b := render.BuildManifest(in), render.BuildManifest(keyed); a.Content == b.Content || b.Content != render.BuildManifest(keyed).Content {
		t.Errorf("content is hashed to %s and, under a key, to %s", a.Content, b.Content)
	}
	if gone := render.BuildManifest(in); !gone.Remove || gone.Items != nil || gone.Removal != v1alpha1.RemoveOrphan || gone.Content == m.Content {
		t.Errorf("a row that is Removing: %+v", gone)
	}
}

func TestCheckOverriders(t *testing.T) {
	bad := v1alpha1.Overriders{
		ImageOverrider: []v1alpha1.ImageOverrider{
			{Component: "Registry", Operator: "replace", Value: "mirror"},
			{Component: "Repository", Operator: "remove"},
			{Component: "Tag", Operator: "add"},
			{Component: "Tag", Operator: "replace", Value: "1", Predicate: &v1alpha1.ImagePredicate{Path: "/metadata/name"}},
		},
		LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"atoll.dev/x": "y"}}},
		Plaintext: []v1alpha1.PlaintextOverrider{
			{Operator: "add", Path: "/spec/x"},
			{Operator: "remove", Path: "/metadata/finalizers"},
			{Operator: "add", Path: "/a~2", Value: &apiextensionsv1.JSON{Raw: []byte("1")}},
			{Operator: "replace", Path: "/spec/x", Value: &apiextensionsv1.JSON{Raw: []byte("{")}},
		},
	}
	var got []string
	for _, p := range render.CheckOverriders(bad) {
		if p.Reason == "" {
			t.Errorf("%s has no reason", p.Path)
		}
		got = append(got, p.Path)
	}
	want := "[imageOverrider[0].value imageOverrider[1].value imageOverrider[2].value imageOverrider[3].predicate.path labelsOverrider[0].value[atoll.dev/x] plaintext[0].value plaintext[1].path plaintext[2].path plaintext[3].value]"
	if fmt.Sprint(got) != want {
		t.Errorf("problems at %v\nwant %v", got, want)
	}
	good := v1alpha1.Overriders{
		ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Registry", Operator: "replace", Value: "m.io:5000/cache"}, {Component: "Tag", Operator: "remove"}},
		Plaintext:      plain("add", "/spec/x", "1").Plaintext,
	}
	if problems := render.CheckOverriders(good); len(problems) > 0 {
		t.Errorf("refused what is good: %v", problems)
	}
}
