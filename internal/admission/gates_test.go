package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"
)

// The writer of a policy chooses the server to which a Secret is sent, and so needs the right to get it.
func TestGateSecretsThatAreRefused(t *testing.T) {
	query := func(server, secret string) string {
		return "{name: errors, prometheus: {server: '" + server + "', query: up, successCondition: result > 0.5, secretRef: {" + secret + "}}}"
	}
	hook := func(secret string) string {
		return "{name: tests, webhook: {url: 'https://ci/gate', secretRef: {" + secret + "}}}"
	}
	policy := func(gate string) runtime.Object {
		if gate == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		text := "{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: web}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], rollout: {type: Staged, stages: [{name: canary, clusters: {names: [oslo]}, gatesAfter: [" + gate + "]}]}}}"
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	const stage = "spec.rollout.stages[0].gatesAfter[0]."
	for name, c := range map[string]struct {
		namespace, now, before, right, want string
	}{
		"a Secret":                    {"shop", query("https://h", "name: s"), "", "ann get secrets shop/s", ""},
		"without the right":           {"shop", query("https://h", "name: s"), "", "ann get secrets shop/other", stage + `prometheus.secretRef: the right to get the Secret "s" is needed`},
		"an edit that keeps it":       {"shop", query("https://h", "name: s"), query("https://h", "name: s"), "", ""},
		"an edit of its server":       {"shop", query("https://other", "name: s"), query("https://h", "name: s"), "", `the right to get the Secret "s" is needed`},
		"over http":                   {"shop", query("http://h", "name: s"), "", "ann get secrets shop/s", stage + "prometheus.secretRef: Forbidden"},
		"of another namespace":        {"shop", query("https://h", "name: s, namespace: ops"), "", "ann get secrets ops/s", stage + "prometheus.secretRef.namespace: Forbidden"},
		"a key":                       {"shop", hook("name: s"), "", "ann get secrets shop/s", ""},
		"a key without the right":     {"shop", hook("name: s"), "", "", stage + `webhook.secretRef: the right to get the Secret "s" is needed`},
		"a cluster policy":            {"", hook("name: s, namespace: ops"), "", "ann get secrets ops/s", ""},
		"a cluster policy of nothing": {"", hook("name: s"), "", "ann get secrets /s", stage + "webhook.secretRef.namespace: Required"},
		"a Secret of others":          {"", hook("name: s, namespace: ops"), "", "ann get secrets shop/s", `the right to get the Secret "s" is needed`},
	} {
		op, before := admission.Create, policy(c.before)
		if before != nil {
			op = admission.Update
		}
		gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "PropagationPolicy"}
		a := admission.NewAttributesRecord(policy(c.now), before, gvk, c.namespace, "web", gvk.GroupVersion().WithResource("propagationpolicies"), "", op, nil, false, &user.DefaultInfo{Name: "ann"})
		err := newGrantingPlugin(Hub{}, c.right, "ann list configmaps "+c.namespace+"/").validatePropagation(t.Context(), a)
		if c.want == "" && err != nil && !strings.Contains(err.Error(), "must be able to read") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}
