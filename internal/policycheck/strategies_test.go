package policycheck

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// rolloutRef names a strategy by kind and name that the policy can use, and stands in place of rollout.
func TestFieldsOfARolloutRef(t *testing.T) {
	ref := func(kind, name string) *v1alpha1.RolloutRef { return &v1alpha1.RolloutRef{Kind: kind, Name: name} }
	for name, c := range map[string]struct {
		namespace string
		ref       *v1alpha1.RolloutRef
		rollout   *v1alpha1.Rollout
		refused   string
	}{
		"none":                   {"shop", nil, &v1alpha1.Rollout{}, "<nil>"},
		"of its namespace":       {"shop", ref("", "careful"), nil, "<nil>"},
		"of a kind":              {"shop", ref("RolloutStrategy", "careful"), nil, "<nil>"},
		"of all namespaces":      {"shop", ref("ClusterRolloutStrategy", "careful.v2"), nil, "<nil>"},
		"of a cluster policy":    {"", ref("", "careful"), nil, "<nil>"},
		"not of a namespace":     {"", ref("RolloutStrategy", "careful"), nil, "spec.rolloutRef.kind: Forbidden: a policy without a namespace uses a ClusterRolloutStrategy"},
		"of another kind":        {"shop", ref("Placement", "careful"), nil, `spec.rolloutRef.kind: Unsupported value: "Placement"`},
		"beside a rollout":       {"shop", ref("", "careful"), &v1alpha1.Rollout{}, "spec.rolloutRef: Forbidden: rollout and rolloutRef exclude each other: give one of them"},
		"no name":                {"shop", ref("", ""), nil, "spec.rolloutRef.name: Invalid value"},
		"with a namespace in it": {"shop", ref("", "rival/careful"), nil, "spec.rolloutRef.name: Invalid value"},
	} {
		spec := &v1alpha1.PropagationSpec{Rollout: c.rollout, RolloutRef: c.ref}
		if got := fmt.Sprint(CheckPropagation(spec, c.namespace, nil, field.NewPath("spec")).ToAggregate()); !strings.HasPrefix(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}

// A strategy is checked as a rollout of a policy is, with the Secrets of its gates. enforcedFor.namespaceSelector is a selector of labels, which
// may be empty.
func TestFieldsOfAStrategy(t *testing.T) {
	bound := intstr.FromString("some")
	gated := func(namespace string) v1alpha1.Rollout {
		return v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"oslo"}}, GatesAfter: []v1alpha1.RolloutGate{{
			Name: "ci", Webhook: &v1alpha1.WebhookGate{URL: "https://ci.example/gate", SecretRef: v1alpha1.GateSecretRef{Name: "ci", Namespace: namespace}},
		}}}}}
	}
	selects := func(s metav1.LabelSelector) *v1alpha1.StrategyEnforcement {
		return &v1alpha1.StrategyEnforcement{NamespaceSelector: s}
	}
	for name, c := range map[string]struct {
		namespace string
		spec      v1alpha1.ClusterRolloutStrategySpec
		refused   string
	}{
		"all at once":               {"shop", v1alpha1.ClusterRolloutStrategySpec{Rollout: v1alpha1.Rollout{Type: v1alpha1.RolloutAll}}, "<nil>"},
		"a bound":                   {"shop", v1alpha1.ClusterRolloutStrategySpec{Rollout: v1alpha1.Rollout{MaxUnavailable: &bound}}, "spec.maxUnavailable: Invalid value"},
		"no stages":                 {"", v1alpha1.ClusterRolloutStrategySpec{Rollout: v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}}, "spec.type: Invalid value"},
		"windows":                   {"shop", v1alpha1.ClusterRolloutStrategySpec{Rollout: v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{{Type: "Allow", Schedule: "0 22 31 2 *"}}}}, "spec.windows[0]"},
		"a Secret of its namespace": {"shop", v1alpha1.ClusterRolloutStrategySpec{Rollout: gated("")}, "<nil>"},
		"a Secret of another":       {"shop", v1alpha1.ClusterRolloutStrategySpec{Rollout: gated("ops")}, "spec.stages[0].gatesAfter[0].webhook.secretRef.namespace: Forbidden"},
		"a Secret of a namespace":   {"", v1alpha1.ClusterRolloutStrategySpec{Rollout: gated("ops")}, "<nil>"},
		"a Secret of none":          {"", v1alpha1.ClusterRolloutStrategySpec{Rollout: gated("")}, "spec.stages[0].gatesAfter[0].webhook.secretRef.namespace: Required"},
		"all namespaces":            {"", v1alpha1.ClusterRolloutStrategySpec{EnforcedFor: selects(metav1.LabelSelector{})}, "<nil>"},
		"a label":                   {"", v1alpha1.ClusterRolloutStrategySpec{EnforcedFor: selects(metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}})}, "<nil>"},
		"a malformed label":         {"", v1alpha1.ClusterRolloutStrategySpec{EnforcedFor: selects(metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}})}, "spec.enforcedFor.namespaceSelector.matchLabels"},
		"an unknown operator":       {"", v1alpha1.ClusterRolloutStrategySpec{EnforcedFor: selects(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}})}, "spec.enforcedFor.namespaceSelector.matchExpressions[0].operator"},
	} {
		if got := fmt.Sprint(CheckRolloutStrategy(&c.spec, c.namespace, field.NewPath("spec")).ToAggregate()); !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}
