package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// kyvernoTraits are for policies of Kyverno. Old versions report a boolean, later ones the condition
// Ready, and some report both. The condition counts where there is one.
func kyvernoTraits(readyPath string) kindTraits {
	at := parsePath(readyPath)
	byCondition := newHealthFunc(healthReader{requiredConditions: []string{"Ready"}})
	return kindTraits{readyPath: at, health: func(obj *unstructured.Unstructured) (atoll.Health, string, string) {
		st := statusOf(obj)
		ready, stated := valueAt(st, at).(bool)
		switch {
		case len(conditionsOf(st)) > 0, hasUnreadableStatus(obj):
			return byCondition(obj)
		case !stated:
			return notReportedResult()
		case ready:
			return healthyResult()
		}
		return atoll.Progressing, "NotReady", orElse(stringField(nestedMap(st, at[:len(at)-1]...), "message"), "status."+at.String()+" is false")
	}}
}

// kyvernoKinds: policies of Kyverno, by rules and by expressions.
var kyvernoKinds = customKinds{
	{Group: "kyverno.io", Kind: "ClusterPolicy"}:                  kyvernoTraits("ready"),
	{Group: "kyverno.io", Kind: "Policy"}:                         kyvernoTraits("ready"),
	{Group: "policies.kyverno.io", Kind: "ValidatingPolicy"}:      kyvernoTraits("conditionStatus.ready"),
	{Group: "policies.kyverno.io", Kind: "ImageValidatingPolicy"}: kyvernoTraits("conditionStatus.ready"),
	{Group: "policies.kyverno.io", Kind: "MutatingPolicy"}:        kyvernoTraits("conditionStatus.ready"),
	{Group: "policies.kyverno.io", Kind: "GeneratingPolicy"}:      kyvernoTraits("conditionStatus.ready"),
	{Group: "policies.kyverno.io", Kind: "DeletingPolicy"}:        kyvernoTraits("conditionStatus.ready"),
	{Group: "kyverno.io", Kind: "PolicyException"}:                configTraits,
	{Group: "policies.kyverno.io", Kind: "PolicyException"}:       configTraits,
}
