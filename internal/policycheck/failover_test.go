package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// A failover that could not be honoured is refused by the path of its field.
func TestFieldsOfAFailover(t *testing.T) {
	type terms = v1alpha1.ApplicationFailover
	after := func(n int32) terms {
		return terms{DecisionConditions: &v1alpha1.FailoverConditions{TolerationSeconds: &n}}
	}
	for name, c := range map[string]struct {
		is      terms
		refused string
	}{
		"nothing stated":               {terms{}, ""},
		"all":                          {terms{DecisionConditions: &v1alpha1.FailoverConditions{TolerationSeconds: new(int32(10))}, PurgeMode: "Gracefully", GracePeriodSeconds: new(int32(1)), BackoffSeconds: new(int32(60)), MaxAvoidedClusters: new(int32(16))}, ""},
		"the older words":              {terms{PurgeMode: "Graciously", GracePeriodSeconds: new(int32(30))}, ""},
		"at once, in older words":      {terms{PurgeMode: "Immediately"}, ""},
		"a short toleration":           {after(9), "spec.failover.application.decisionConditions.tolerationSeconds: Invalid"},
		"a long toleration":            {after(604801), "spec.failover.application.decisionConditions.tolerationSeconds: Invalid"},
		"another mode":                 {terms{PurgeMode: "Later"}, "spec.failover.application.purgeMode: Unsupported"},
		"a grace period of none":       {terms{PurgeMode: "Never", GracePeriodSeconds: new(int32(30))}, "spec.failover.application.gracePeriodSeconds: Forbidden"},
		"a grace period at once":       {terms{PurgeMode: "Immediately", GracePeriodSeconds: new(int32(30))}, "spec.failover.application.gracePeriodSeconds: Forbidden"},
		"no grace":                     {terms{GracePeriodSeconds: new(int32(0))}, "spec.failover.application.gracePeriodSeconds: Invalid"},
		"a short backoff":              {terms{BackoffSeconds: new(int32(59))}, "spec.failover.application.backoffSeconds: Invalid"},
		"no avoided cluster":           {terms{MaxAvoidedClusters: new(int32(0))}, "spec.failover.application.maxAvoidedClusters: Invalid"},
		"more than the status has":     {terms{MaxAvoidedClusters: new(int32(17))}, "spec.failover.application.maxAvoidedClusters: Invalid"},
		"a negative number of seconds": {terms{GracePeriodSeconds: new(int32(-5))}, "spec.failover.application.gracePeriodSeconds: Invalid"},
	} {
		got := fmt.Sprint(checkFailover(&v1alpha1.Failover{Application: &c.is}, field.NewPath("spec", "failover")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
	if errs := checkFailover(nil, nil); errs != nil {
		t.Error(errs)
	}
	if errs := checkFailover(&v1alpha1.Failover{}, nil); errs != nil {
		t.Error(errs)
	}
}

// A policy with a failover that cannot be honoured is refused as a whole.
func TestAFailoverIsCheckedWithItsPolicy(t *testing.T) {
	spec := &v1alpha1.PropagationSpec{Failover: &v1alpha1.Failover{Application: &v1alpha1.ApplicationFailover{PurgeMode: "Later"}}}
	if got := fmt.Sprint(CheckPropagation(spec, "shop", nil, field.NewPath("spec")).ToAggregate()); !strings.Contains(got, "spec.failover.application.purgeMode") {
		t.Error(got)
	}
}
