package overrides_test

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

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
			rule: newRule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Registry", Operator: "replace", Value: "m.io"}}}, webKey),
			want: []string{`"m.io/nginx:1"`, `"m.io/b:1"`, `"m.io/busybox"`},
			notes: []string{"/spec/template/spec/containers/0/image=m.io/nginx:1", "/spec/template/spec/containers/1/image=m.io/b:1",
				"/spec/template/spec/initContainers/0/image=m.io/busybox"},
		},
		"image at a path": {
			rule: newRule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: "2",
				Predicate: &v1alpha1.ImagePredicate{Path: "/spec/template/spec/containers/1/image"}}}}, webKey),
			want: []string{`"nginx:1"`, `"r.io/b:2"`}, notes: []string{"/spec/template/spec/containers/1/image=r.io/b:2"},
		},
		"image at a path that is not there": {
			rule: newRule(op, v1alpha1.Overriders{ImageOverrider: []v1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: "2",
				Predicate: &v1alpha1.ImagePredicate{Path: "/spec/image"}}}}, webKey),
			err: "there is no image at /spec/image",
		},
		"labels and annotations": {
			rule: newRule(op, v1alpha1.Overriders{
				LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{
					{Operator: "add", Value: map[string]string{"app": "again", "tier": "front"}},
					{Operator: "replace", Value: map[string]string{"app": "web2", "absent": "ignored"}}},
				AnnotationsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"a.b/c": "d"}}},
			}, webKey),
			want:  []string{`"labels":{"app":"web2","tier":"front"}`, `"annotations":{"a.b/c":"d"}`},
			notes: []string{"/metadata/labels/app=again", "/metadata/labels/tier=front", "/metadata/labels/app=web2", "/metadata/annotations/a.b~1c=d"},
		},
		"labels gone": {
			rule: newRule(op, v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "remove", Value: map[string]string{"app": ""}}}}, webKey),
			want: []string{`"metadata":{"name":"web","namespace":"shop"}`}, notes: []string{"/metadata/labels/app=<nil>"},
		},
		"replicas": {
			rule: newRule(op, v1alpha1.Overriders{Replicas: pointerOf(int32(0))}, webKey), want: []string{`"replicas":0`}, notes: []string{"/spec/replicas=0"},
		},
		"parallelism": {
			rule: newRule(op, v1alpha1.Overriders{Replicas: pointerOf(int32(4))}, jobKey), key: jobKey, want: []string{`"parallelism":4`}, notes: []string{"/spec/parallelism=4"},
		},
		"replicas of what has none": {
			rule: newRule(cop, v1alpha1.Overriders{Replicas: pointerOf(int32(4))}, roleKey), key: roleKey, want: []string{`"rules":[]`},
		},
		"plaintext":            {rule: newRule(op, plaintextOverriders("add", "/spec/paused", "true"), webKey), want: []string{`"paused":true`}, notes: []string{"/spec/paused=true"}},
		"plaintext misses":     {rule: newRule(op, plaintextOverriders("replace", "/spec/paused", "true"), webKey), err: `there is no "paused" to replace`},
		"name":                 {rule: newRule(cop, plaintextOverriders("replace", "/metadata/name", `"x"`), webKey), err: "never touch"},
		"owners":               {rule: newRule(cop, plaintextOverriders("add", "/metadata/ownerReferences", `[]`), webKey), err: "never touch"},
		"finalizers":           {rule: newRule(cop, plaintextOverriders("add", "/metadata/finalizers/-", `"x"`), webKey), err: "never touch"},
		"all metadata":         {rule: newRule(cop, plaintextOverriders("replace", "/metadata", `{}`), webKey), err: "never touch"},
		"kind":                 {rule: newRule(cop, plaintextOverriders("replace", "/kind", `"Pod"`), webKey), err: "never touch"},
		"Atoll's own":          {rule: newRule(cop, plaintextOverriders("add", "/metadata/labels/atoll.dev~1bundle-uid", `"x"`), webKey), err: "Atoll's own"},
		"Atoll's own in a map": {rule: newRule(cop, plaintextOverriders("replace", "/metadata/labels", `{"atoll.dev/x":"y"}`), webKey), err: "Atoll's own"},
		"RBAC by a tenant":     {rule: newRule(op, plaintextOverriders("replace", "/rules", `[]`), roleKey), key: roleKey, err: "only a ClusterOverridePolicy"},
		"RBAC by an admin":     {rule: newRule(cop, plaintextOverriders("replace", "/rules", `[{"verbs":["get"]}]`), roleKey), key: roleKey, want: []string{`"get"`}, notes: []string{`/rules=[map[verbs:[get]]]`}},
		"Secret by a tenant":   {rule: newRule(op, plaintextOverriders("replace", "/data/p", `"eQ=="`), secretKey), key: secretKey, err: "only a ClusterOverridePolicy"},
		"Secret by an admin":   {rule: newRule(cop, plaintextOverriders("replace", "/data/p", `"eQ=="`), secretKey), key: secretKey, want: []string{`"p":"eQ=="`}, notes: []string{"/data/p=<nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			key := tc.key
			if key.Kind == "" {
				key = webKey
			}
			c := newContent(tc.rule)
			before := atoll.EncodeContentIdentity(c)
			r, notes := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, key)
			if string(atoll.EncodeContentIdentity(c)) != string(before) {
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

func TestFailedItemLeavesOthers(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", plaintextOverriders("replace", "/spec/replicas", "9"), webKey, jobKey))
	job, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, jobKey)
	web, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey)
	secret, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, secretKey)
	if job.Error == "" || web.Error != "" || secret.Error != "" {
		t.Errorf("errors: job %q, web %q, secret %q; want one of the job alone", job.Error, web.Error, secret.Error)
	}
	if string(secret.Object) != string(c.Items[0].Object) {
		t.Errorf("an item without rules changed: %s", secret.Object)
	}
}

func TestRulesApplyInOrder(t *testing.T) {
	c := newContent(
		newRule("ClusterOverridePolicy/a", v1alpha1.Overriders{Replicas: pointerOf(int32(1))}, webKey),
		newRule("OverridePolicy/shop/b", v1alpha1.Overriders{Replicas: pointerOf(int32(2))}, webKey),
		newRule("ClusterOverridePolicy/c", v1alpha1.Overriders{Replicas: pointerOf(int32(7))}, webKey),
	)
	r, notes := renderedItem(t, c, manifest.RenderInput{Rules: []int{0, 1, 2}}, webKey)
	if !strings.Contains(string(r.Object), `"replicas":7`) || len(notes) != 3 || notes[2].Policy != "ClusterOverridePolicy/c" {
		t.Errorf("the last rule has not the last word: %s %v", r.Object, notes)
	}
	if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0, 1}}, webKey); !strings.Contains(string(r.Object), `"replicas":2`) {
		t.Errorf("a rule that does not target the cluster applied: %s", r.Object)
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
	for _, p := range overrides.CheckOverriders(bad) {
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
		Plaintext:      plaintextOverriders("add", "/spec/x", "1").Plaintext,
	}
	if problems := overrides.CheckOverriders(good); len(problems) > 0 {
		t.Errorf("refused what is good: %v", problems)
	}
}
