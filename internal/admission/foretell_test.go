package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
)

// heard collects warnings.
type heard []string

func (h *heard) AddWarning(_, text string) { *h = append(*h, text) }

func TestDryRunsForetell(t *testing.T) {
	policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy", "metadata": map[string]any{"name": "web", "namespace": "shop"}}}
	for name, tc := range map[string]struct {
		kind, group, sub string
		op               admission.Operation
		real             bool
		manager          string
		options          runtime.Object // nil: of an update by the manager
		said             int
		want             int
	}{
		"a policy":             {said: 3, want: 3},
		"deleted":              {op: admission.Delete, said: 3, want: 3},
		"no dry run":           {real: true, said: 3},
		"its status":           {sub: "status", said: 3},
		"another kind":         {kind: "Bundle", said: 3},
		"a Placement":          {kind: "Placement", said: 3, want: 3},
		"a Cluster":            {kind: "Cluster", said: 3, want: 3},
		"of atoll plan":        {manager: "atoll-plan", said: 3},
		"created by plan":      {options: &metav1.CreateOptions{FieldManager: "atoll-plan"}, said: 3},
		"created":              {options: &metav1.CreateOptions{FieldManager: "kubectl"}, said: 3, want: 3},
		"patched by plan":      {options: &metav1.PatchOptions{FieldManager: "atoll-plan"}, said: 3},
		"patched":              {options: &metav1.PatchOptions{FieldManager: "kubectl"}, said: 3, want: 3},
		"of another group":     {group: "apps", said: 3},
		"more than fits":       {said: 100, want: warningsSaid},
		"just what fits":       {said: warningsSaid, want: warningsSaid},
		"nothing to say":       {},
		"a cluster's override": {kind: "ClusterOverridePolicy", said: 1, want: 1},
		"of a dialect":         {kind: "ResourceInterpreterCustomization", group: "config.karmada.io", said: 2, want: 2},
		"beside a dialect":     {kind: "ResourceInterpreterCustomization", group: "example.com", said: 2},
	} {
		t.Run(name, func(t *testing.T) {
			kind, group, op := tc.kind, tc.group, tc.op
			if kind == "" {
				kind = "PropagationPolicy"
			}
			if group == "" {
				group = "atoll.dev"
			}
			if op == "" {
				op = admission.Update
			}
			var h heard
			p := New(Options{Foretell: func(ctx context.Context, u user.Info, o *unstructured.Unstructured, deleted bool) []string {
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > foretellPatience {
					t.Error("it may take as long as it likes")
				}
				if u.GetName() != "ann" || o.GetName() != "web" || deleted != (op == admission.Delete) {
					t.Errorf("asked by %s about %s, deleted %t", u.GetName(), o.GetName(), deleted)
				}
				o.SetName("changed") // it is a copy
				return slices.Repeat([]string{strings.Repeat("x", 1000)}, tc.said)
			}})
			var obj, old runtime.Object = policy, policy
			if op == admission.Delete {
				obj = nil
			}
			options := tc.options
			if options == nil {
				options = &metav1.UpdateOptions{FieldManager: tc.manager}
			}
			gvk := schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}
			a := admission.NewAttributesRecord(obj, old, gvk, "shop", "web", schema.GroupVersionResource{}, tc.sub, op, options, !tc.real, &user.DefaultInfo{Name: "ann"})
			p.warnWithDryRunPlan(warning.WithWarningRecorder(t.Context(), &h), a)
			if len(h) != tc.want {
				t.Fatalf("%d warnings, want %d", len(h), tc.want)
			}
			for i, line := range h {
				if len(line) > warningSize || line == "" {
					t.Errorf("a warning of %d bytes", len(line))
				}
				if last := i == tc.want-1 && tc.said > warningsSaid; last != strings.Contains(line, "atoll plan") {
					t.Error(fmt.Sprint(i, ": ", line))
				}
			}
		})
	}
	if policy.GetName() != "web" {
		t.Error("the object was changed")
	}
}
