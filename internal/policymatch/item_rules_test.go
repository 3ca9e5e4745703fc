package policymatch

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestTreatmentOfAnObject(t *testing.T) {
	selector := func(apiVersion, kind string) v1alpha1.ResourceSelector {
		return v1alpha1.ResourceSelector{APIVersion: apiVersion, Kind: kind}
	}
	named := selector("v1", "ConfigMap")
	named.Name = "other"
	labelled := selector("v1", "*")
	labelled.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}
	elsewhere := selector("v1", "ConfigMap")
	elsewhere.Namespace = "elsewhere"
	rule := func(update v1alpha1.UpdateMode, selectors ...v1alpha1.ResourceSelector) v1alpha1.ItemRule {
		return v1alpha1.ItemRule{ResourceSelectors: selectors, Update: update}
	}
	createOnly := &atoll.Treatment{Update: v1alpha1.UpdateCreateOnly}
	for name, c := range map[string]struct {
		rules       []v1alpha1.ItemRule
		annotations map[string]string
		want        *atoll.Treatment
	}{
		"nothing stated":         {},
		"for all":                {rules: []v1alpha1.ItemRule{rule("CreateOnly")}, want: createOnly},
		"by kind":                {rules: []v1alpha1.ItemRule{rule("CreateOnly", selector("v1", "ConfigMap"))}, want: createOnly},
		"by all kinds of groups": {rules: []v1alpha1.ItemRule{rule("CreateOnly", selector("*", "*"))}, want: createOnly},
		"by labels":              {rules: []v1alpha1.ItemRule{rule("CreateOnly", labelled)}, want: createOnly},
		"another kind, name or namespace": {rules: []v1alpha1.ItemRule{
			rule("CreateOnly", selector("apps/v1", "Deployment"), named, elsewhere),
		}},
		"the first rule with the field counts": {
			rules: []v1alpha1.ItemRule{
				{Removal: "Orphan"}, rule("Apply", selector("v1", "ConfigMap")), rule("CreateOnly"),
				{Removal: "Delete", IgnoreFields: []string{"/data/z", "/data/a"}},
			},
			want: &atoll.Treatment{Removal: "Orphan", IgnoreFields: []string{"/data/a", "/data/z"}},
		},
		"annotations win": {
			rules: []v1alpha1.ItemRule{{Update: "CreateOnly", Removal: "Orphan", IgnoreFields: []string{"/data/a"}}},
			annotations: map[string]string{
				"atoll.dev/update": "Apply", "atoll.dev/removal": "Delete", "atoll.dev/ignore-fields": " /data/c, /data/b,/data/c",
			},
			want: &atoll.Treatment{Removal: "Delete", IgnoreFields: []string{"/data/b", "/data/c"}},
		},
		"feedback, health and completion": {
			rules: []v1alpha1.ItemRule{
				{Feedback: []v1alpha1.FeedbackRule{{Name: "a", JSONPath: ".a", Type: "String"}}},
				{Feedback: []v1alpha1.FeedbackRule{{Name: "b", JSONPath: ".b", Type: "String"}}, Health: []v1alpha1.HealthRule{{Expression: "true"}}},
				{Health: []v1alpha1.HealthRule{{Expression: "false"}}, Completion: &v1alpha1.CompletionRule{Expression: "has(object.c)"}},
			},
			want: &atoll.Treatment{Assessment: &atoll.Assessment{
				Feedback: []v1alpha1.FeedbackRule{{Name: "a", JSONPath: ".a", Type: "String"}}, Health: []v1alpha1.HealthRule{{Expression: "true"}}, Completion: "has(object.c)",
			}},
		},
		"ttlSecondsAfterFinished of what never runs to completion": {
			rules: []v1alpha1.ItemRule{{TTLSecondsAfterFinished: new(int32)}, {Removal: "Orphan"}}, want: &atoll.Treatment{Removal: "Orphan"},
		},
		"ttlSecondsAfterFinished of what a rule completes": {
			rules: []v1alpha1.ItemRule{{TTLSecondsAfterFinished: new(int32)}, {Completion: &v1alpha1.CompletionRule{Expression: "true"}}},
			want:  &atoll.Treatment{Assessment: &atoll.Assessment{Completion: "true", TTLSecondsAfterFinished: new(int32)}},
		},
		"a removal to confirm": {
			rules: []v1alpha1.ItemRule{{Removal: "Confirm"}}, annotations: map[string]string{"atoll.dev/removal": "Confirm"}, want: &atoll.Treatment{Removal: "Confirm"},
		},
		"a resolution of conflicts": {
			rules: []v1alpha1.ItemRule{{ConflictResolution: "AdoptIfSame"}, {ConflictResolution: "Overwrite"}}, want: &atoll.Treatment{ConflictResolution: "AdoptIfSame"},
		},
		"a resolution of conflicts by an annotation": {
			rules: []v1alpha1.ItemRule{{ConflictResolution: "Overwrite"}}, annotations: map[string]string{"atoll.dev/conflict-resolution": "Abort"},
			want: &atoll.Treatment{ConflictResolution: "Abort"},
		},
		"the first ServiceAccount": {
			rules: []v1alpha1.ItemRule{{ServiceAccount: "deployer"}, {ServiceAccount: "shop/other"}}, want: &atoll.Treatment{ServiceAccount: "deployer"},
		},
		"no annotation of an object names a ServiceAccount": {
			rules: []v1alpha1.ItemRule{{ServiceAccount: "deployer"}}, annotations: map[string]string{"atoll.dev/service-account": "other"},
			want: &atoll.Treatment{ServiceAccount: "deployer"},
		},
		"drift is reported": {
			rules: []v1alpha1.ItemRule{{Drift: "Report"}, {Drift: "Correct"}}, want: &atoll.Treatment{Drift: "Report"},
		},
		"recreated":          {annotations: map[string]string{"atoll.dev/update": "Recreate"}, want: &atoll.Treatment{Update: "Recreate"}},
		"nothing is written": {rules: []v1alpha1.ItemRule{rule("ReadOnly")}, want: &atoll.Treatment{Update: "ReadOnly"}},
		"drift waits for an approval": {
			rules: []v1alpha1.ItemRule{{Drift: "Report"}}, annotations: map[string]string{"atoll.dev/drift": "Approve"}, want: &atoll.Treatment{Drift: "Approve"},
		},
		"drift by an annotation": {
			rules: []v1alpha1.ItemRule{{Drift: "Report"}}, annotations: map[string]string{"atoll.dev/drift": "Correct"},
		},
		"nothing is written, by an annotation": {
			annotations: map[string]string{"atoll.dev/update": "ReadOnly", "atoll.dev/drift": "Report"}, want: &atoll.Treatment{Update: "ReadOnly", Drift: "Report"},
		},
		"a wave":                               {annotations: map[string]string{"atoll.dev/wave": "-5"}, want: &atoll.Treatment{Wave: -5}},
		"a wave of Argo CD":                    {annotations: map[string]string{"argocd.argoproj.io/sync-wave": "1000000"}, want: &atoll.Treatment{Wave: atoll.MaxWave}},
		"Atoll's wave comes first":             {annotations: map[string]string{"atoll.dev/wave": "0", "argocd.argoproj.io/sync-wave": "3"}},
		"a malformed wave of Argo CD is 0":     {annotations: map[string]string{"argocd.argoproj.io/sync-wave": "1.5"}},
		"a malformed wave that does not count": {annotations: map[string]string{"atoll.dev/wave": "4", "argocd.argoproj.io/sync-wave": "late"}, want: &atoll.Treatment{Wave: 4}},
		"a hook":                               {annotations: map[string]string{"atoll.dev/hook": "PreInstall,PostSync", "atoll.dev/hook-delete-policy": "HookFailed", "argocd.argoproj.io/hook": "Skip"}, want: &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{"PreInstall", "PostSync"}, DeletePolicies: []atoll.HookDeletePolicy{"HookFailed"}}}},
		"a hook of Argo CD":                    {annotations: map[string]string{"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "HookSucceeded", "argocd.argoproj.io/sync-wave": "2"}, want: &atoll.Treatment{Wave: 2, Hook: &atoll.Hook{Events: []atoll.HookEvent{"PreSync"}, DeletePolicies: []atoll.HookDeletePolicy{"HookSucceeded"}}}},
		"an unknown hook of Argo CD":           {annotations: map[string]string{"argocd.argoproj.io/hook": "Before"}, want: &atoll.Treatment{Hook: &atoll.Hook{}}},
		"Atoll's empty hook comes first":       {annotations: map[string]string{"atoll.dev/hook": "", "argocd.argoproj.io/hook": "PreSync"}},
		"a hook of Helm that no chart brought": {annotations: map[string]string{"helm.sh/hook": "pre-install", "helm.sh/hook-weight": "3"}},
		"an annotation without fields": {
			rules:       []v1alpha1.ItemRule{{IgnoreFields: []string{"/data/a"}}},
			annotations: map[string]string{"atoll.dev/ignore-fields": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}, Labels: map[string]string{"tier": "edge"}, Annotations: c.annotations}
			got, err := CompileItemRules(c.rules).TreatmentOf(s)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// TreatmentAnnotations returns only the annotations that state how members treat an object.
func TestTreatmentAnnotations(t *testing.T) {
	treatment := map[string]string{
		"atoll.dev/update": "CreateOnly", "atoll.dev/ignore-fields": "/data/a", "atoll.dev/drift": "Report", "atoll.dev/conflict-resolution": "Overwrite", "atoll.dev/removal": "",
		"atoll.dev/wave": "1", "argocd.argoproj.io/sync-wave": "2",
		"atoll.dev/hook": "Sync", "atoll.dev/hook-delete-policy": "HookFailed", "argocd.argoproj.io/hook": "Sync", "argocd.argoproj.io/hook-delete-policy": "x",
	}
	all := maps.Clone(treatment)
	all["atoll.dev/clusters"], all["team"] = "*", "red"
	if got := TreatmentAnnotations(all); !maps.Equal(got, treatment) {
		t.Errorf("%v, want %v", got, treatment)
	}
	if got := TreatmentAnnotations(map[string]string{"team": "red"}); len(got) != 0 {
		t.Errorf("without a treatment: %v", got)
	}
}

// A malformed wave of Argo CD is accepted, because Argo CD and a plain cluster accept it. Atoll's own wave hides it.
func TestAMalformedWaveOfArgoCDIsAccepted(t *testing.T) {
	for value, unread := range map[string]bool{"": true, "1.5": true, "first": true, "1000001": true, "0": false, "-3": false} {
		annotations := map[string]string{"argocd.argoproj.io/sync-wave": value}
		if err := CheckAtollKeys(nil, annotations); err != nil {
			t.Errorf("%q is refused: %v", value, err)
		}
		if err := CheckArgoCDWave(annotations); (err != nil) != unread {
			t.Errorf("%q: %v", value, err)
		}
		annotations["atoll.dev/wave"] = "1"
		if err := CheckArgoCDWave(annotations); err != nil {
			t.Errorf("%q hidden by Atoll's own: %v", value, err)
		}
	}
	if err := CheckArgoCDWave(nil); err != nil {
		t.Errorf("without the annotation: %v", err)
	}
}

// A warning names what is not read of a hook of Argo CD, and what follows. Atoll's own annotation hides it.
func TestAnUnreadHookOfArgoCDIsAccepted(t *testing.T) {
	for _, c := range []struct{ events, policies, want string }{
		{"PreSync,Sync", "HookFailed", ""},
		{"Skip", "", ""},
		{"", "", ""},
		{"PreDelete,PostDelete", "", ""},
		{"Before", "", `annotation argocd.argoproj.io/hook: "Before": `},
		{"Sync,late", "never", `annotations argocd.argoproj.io/hook and argocd.argoproj.io/hook-delete-policy: "late", "never": `},
	} {
		annotations := map[string]string{"argocd.argoproj.io/hook": c.events, "argocd.argoproj.io/hook-delete-policy": c.policies}
		if err := CheckAtollKeys(nil, annotations); err != nil {
			t.Errorf("%q is refused: %v", c.events, err)
		}
		if err := CheckArgoCDHook(annotations); (err != nil) != (c.want != "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v", c.events, err)
		}
		annotations["atoll.dev/hook"] = "Sync"
		if err := CheckArgoCDHook(annotations); err != nil {
			t.Errorf("%q hidden by Atoll's own: %v", c.events, err)
		}
	}
}

func TestTreatmentAnnotationsWithoutAMeaning(t *testing.T) {
	for annotation, value := range map[string]string{
		"atoll.dev/update": "Replace", "atoll.dev/removal": "", "atoll.dev/drift": "Ignore", "atoll.dev/conflict-resolution": "overwrite", "atoll.dev/ignore-fields": "spec.replicas",
		"atoll.dev/wave": "first", "atoll.dev/hook": "Before",
	} {
		annotations := map[string]string{annotation: value}
		if err := CheckAtollKeys(nil, annotations); err == nil || !strings.Contains(err.Error(), annotation) {
			t.Errorf("%s: %q: %v", annotation, value, err)
		}
		if _, err := CompileItemRules(nil).TreatmentOf(Subject{Annotations: annotations}); err == nil {
			t.Errorf("%s: %q has a meaning", annotation, value)
		}
	}
	many := strings.Repeat("/data/a,", MaxIgnoredFields+1)
	if err := CheckAtollKeys(nil, map[string]string{"atoll.dev/ignore-fields": many}); err == nil {
		t.Error("the number of fields has no bound")
	}
}

func TestFieldsThatNoMemberCanOwn(t *testing.T) {
	for path, want := range map[string]bool{
		"/spec": true, "/spec/replicas": true, "/data/a~1b": true, "/metadata/labels/app": true, "/spec/ports/0/nodePort": true,
		"spec": false, "": false, "/": false, "/spec/": false, "/spec//a": false, "/a~2": false, "/kind": false, "/metadata": false,
		"/metadata/name": false, "/metadata/labels": false, "/status": false, "/status/phase": false,
	} {
		if err := CheckIgnoredField(path); (err == nil) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestItemRulesThatAreRefused(t *testing.T) {
	errs := CheckIgnoredFieldsOfRules([]v1alpha1.ItemRule{{IgnoreFields: []string{"/spec/a"}}, {IgnoreFields: []string{"/spec/a", "/kind"}}}, field.NewPath("spec", "itemRules"))
	if len(errs) != 1 || errs[0].Field != "spec.itemRules[1].ignoreFields[1]" {
		t.Errorf("%v", errs)
	}
}

// Rules for all objects assess no Secret.
func TestSecretsAreNotAssessed(t *testing.T) {
	rules := CompileItemRules([]v1alpha1.ItemRule{{Removal: "Orphan", Health: []v1alpha1.HealthRule{{Expression: "true"}}}})
	for kind, want := range map[string]bool{"ConfigMap": true, "Secret": false} {
		got, err := rules.TreatmentOf(Subject{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: "a"}})
		if err != nil || got.Removal != "Orphan" || (got.Assessment != nil) != want {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}
