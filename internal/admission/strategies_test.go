package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// A strategy is refused as the rollout of a policy is: by its fields, and when a gate names a Secret that the writer may not get.
func TestStrategiesThatAreRefused(t *testing.T) {
	strategy := func(namespace, spec string) *unstructured.Unstructured {
		if spec == "" {
			return nil
		}
		kind, meta := "ClusterRolloutStrategy", "{name: careful}"
		if namespace != "" {
			kind, meta = "RolloutStrategy", "{name: careful, namespace: "+namespace+"}"
		}
		return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: "+meta+", spec: "+spec+"}")
	}
	gated := func(secret string) string {
		return "{type: Staged, stages: [{name: canary, clusters: {names: [oslo]}, gatesAfter: [{name: ci, webhook: {url: 'https://ci/gate', secretRef: {" + secret + "}}}]}]}"
	}
	many := "{type: Staged, stages: [{name: canary, clusters: {names: [" + strings.Repeat("a-cluster-of-a-long-name, ", strategyLimit/26) + "oslo]}}]}"
	const gate = "spec.stages[0].gatesAfter[0].webhook.secretRef"
	for name, c := range map[string]struct {
		namespace, now, before, right, want string
		reason                              atoll.Reason
	}{
		"all at once":                 {namespace: "shop", now: "{type: All}"},
		"of all namespaces":           {now: "{type: All}"},
		"enforced for all namespaces": {now: "{type: All, enforcedFor: {namespaceSelector: {}}}"},
		"enforced by a label":         {now: "{type: All, enforcedFor: {namespaceSelector: {matchLabels: {tier: prod}}}}"},
		"enforced by a malformed one": {now: "{type: All, enforcedFor: {namespaceSelector: {matchLabels: {'a b': prod}}}}", want: "spec.enforcedFor.namespaceSelector.matchLabels: Invalid value", reason: atoll.ReasonInvalidField},
		"no stages":                   {namespace: "shop", now: "{type: Staged}", want: "spec.type: Invalid value", reason: atoll.ReasonInvalidField},
		"a number that is too large":  {namespace: "shop", now: "{maxUnavailable: 4294967297}", want: "spec.maxUnavailable: Invalid value: 4294967297", reason: atoll.ReasonInvalidField},
		"too large":                   {namespace: "shop", now: many, want: fmt.Sprintf("and %d are allowed", strategyLimit), reason: atoll.ReasonInvalidField},
		"a Secret":                    {namespace: "shop", now: gated("name: s"), right: "ann get secrets shop/s"},
		"a Secret without the right":  {namespace: "shop", now: gated("name: s"), want: gate + `: the right to get the Secret "s" is needed`, reason: atoll.ReasonPermissionMissing},
		"of another namespace":        {namespace: "shop", now: gated("name: s, namespace: ops"), right: "ann get secrets ops/s", want: gate + ".namespace: Forbidden", reason: atoll.ReasonInvalidField},
		"for all namespaces":          {now: gated("name: s, namespace: ops"), right: "ann get secrets ops/s"},
		"for all, without the right":  {now: gated("name: s, namespace: ops"), right: "ann get secrets shop/s", want: gate + `: the right to get the Secret "s" is needed`, reason: atoll.ReasonPermissionMissing},
		"for all, of no namespace":    {now: gated("name: s"), right: "ann get secrets /s", want: gate + ".namespace: Required", reason: atoll.ReasonInvalidField},
		"an edit that keeps a Secret": {namespace: "shop", now: gated("name: s"), before: gated("name: s")},
		"an edit to another Secret":   {namespace: "shop", now: gated("name: s"), before: gated("name: t"), want: gate + `: the right to get the Secret "s" is needed`, reason: atoll.ReasonPermissionMissing},
		"an edit of the enforcement":  {now: strings.Replace(gated("name: s, namespace: ops"), "{type", "{enforcedFor: {namespaceSelector: {}}, type", 1), before: gated("name: s, namespace: ops")},
	} {
		err := newGrantingPlugin(Hub{}, c.right).Validate(t.Context(), requestOf("ann", strategy(c.namespace, c.now), strategy(c.namespace, c.before)), nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: refused: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || refusal.ReasonOf(err, "") != c.reason):
			t.Errorf("%s: %v (%s), want %s: %s", name, err, refusal.ReasonOf(err, ""), c.reason, c.want)
		}
	}
	gone := strategy("shop", "{type: Staged}")
	if err := unstructured.SetNestedField(gone.Object, "2020-01-01T00:00:00Z", "metadata", "deletionTimestamp"); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "one that is being deleted", newGrantingPlugin(Hub{}).Validate(t.Context(), requestOf("ann", gone, gone), nil), "", "")
}
