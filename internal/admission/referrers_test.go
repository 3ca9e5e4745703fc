package admission

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/state"
)

// referrersOf is what refers to objects, by kind, namespace and name.
type referrersOf map[string][]state.Referrers

func (r referrersOf) FindReferrers(kind string, key types.NamespacedName) []state.Referrers {
	return r[kind+" "+key.String()]
}

func TestDeletionsOfNamedObjectsWarn(t *testing.T) {
	table := referrersOf{
		"Placement shop/web":             {{Kind: "PropagationPolicy", Count: 2}},
		"ClusterSet /eu":                 {{Kind: "ClusterSetBinding", Count: 1}, {Kind: "Placement", Count: 3}},
		"RolloutStrategy shop/careful":   {{Kind: "PropagationPolicy", Count: 2}},
		"ClusterRolloutStrategy /all":    {{Kind: "PropagationPolicy", Count: 1}, {Kind: "ClusterPropagationPolicy", Count: 1}, {Kind: "Namespace", Count: 3}},
		"ClusterRolloutStrategy /others": {{Kind: "Namespace", Count: 1}},
		"PropagationPolicy shop/":        {{Kind: "Placement", Count: 1}},
	}
	p := New(Options{Hub: func() (Hub, bool) { return Hub{References: table}, true }})
	for name, test := range map[string]struct {
		op                         admission.Operation
		group, kind, namespace, at string
		sub                        string
		dryRun                     bool
		want                       []string
	}{
		"a Placement":        {kind: "Placement", namespace: "shop", at: "web", want: []string{"still named by PropagationPolicy (2): what they place stays in its clusters, and nothing new is placed until it exists again"}},
		"a ClusterSet":       {kind: "ClusterSet", at: "eu", want: []string{"still named by ClusterSetBinding (1), Placement (3): without it they reach fewer clusters; `kubectl delete --dry-run=server` shows what would leave"}},
		"a RolloutStrategy":  {kind: "RolloutStrategy", namespace: "shop", at: "careful", want: []string{"still named by PropagationPolicy (2): what they place keeps its rollout, and nothing new is placed until it exists again"}},
		"enforced and named": {kind: "ClusterRolloutStrategy", at: "all", want: []string{"was enforced in 3 namespaces: Bundles there get the rollout that their policies state", "still named by PropagationPolicy (1), ClusterPropagationPolicy (1): what they place keeps its rollout, and nothing new is placed until it exists again"}},
		"enforced alone":     {kind: "ClusterRolloutStrategy", at: "others", want: []string{"was enforced in 1 namespace: Bundles there get the rollout that their policies state"}},
		"of another name":    {kind: "Placement", namespace: "shop", at: "api"},
		"another kind":       {kind: "PropagationPolicy", namespace: "shop"},
		"of another group":   {group: "example.com", kind: "Placement", namespace: "shop", at: "web"},
		"a dry run":          {kind: "ClusterSet", at: "eu", dryRun: true},
		"an update":          {op: admission.Update, kind: "ClusterSet", at: "eu"},
		"of its subresource": {kind: "ClusterSet", at: "eu", sub: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			op, group := test.op, test.group
			if op == "" {
				op = admission.Delete
			}
			if group == "" {
				group = "atoll.dev"
			}
			a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: test.kind}, test.namespace, test.at,
				schema.GroupVersionResource{Group: group, Version: "v1alpha1"}, test.sub, op, nil, test.dryRun, &user.DefaultInfo{Name: "anna"})
			var said heard
			p.warnOfReferrers(warning.WithWarningRecorder(t.Context(), &said), a)
			if !slices.Equal([]string(said), test.want) {
				t.Errorf("%q", said)
			}
		})
	}
	early := New(Options{Hub: func() (Hub, bool) { return Hub{}, false }})
	var said heard
	early.warnOfReferrers(warning.WithWarningRecorder(t.Context(), &said), admission.NewAttributesRecord(nil, nil,
		schema.GroupVersionKind{Group: "atoll.dev", Kind: "ClusterSet"}, "", "eu", schema.GroupVersionResource{}, "", admission.Delete, nil, false, nil))
	if len(said) != 0 {
		t.Errorf("before the tables are read: %q", said)
	}
}
