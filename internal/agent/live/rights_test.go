package live

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"atoll.dev/atoll/deploy"
)

// TestAgentsMayReadWhatTheyShow: what the manifests give an agent that is installed is enough
// for all that the hub asks.
func TestAgentsMayReadWhatTheyShow(t *testing.T) {
	rules := rulesOf(t, deploy.Agent)
	may := func(group, resource, verb string) {
		t.Helper()
		if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return has(r.APIGroups, group) && has(r.Resources, resource) && has(r.Verbs, verb)
		}) {
			t.Errorf("deploy/agent.yaml lets no agent %s %s of %q", verb, resource, group)
		}
	}
	for _, k := range kinds {
		verbs := []string{"get", "list", "watch"}
		if k.Group == "metrics.k8s.io" {
			verbs = verbs[:2] // nothing there is watched
		}
		for _, verb := range verbs {
			may(k.Group, k.resource, verb)
		}
	}
	may("", "pods/log", "get")
}

func has(all []string, one string) bool {
	return slices.Contains(all, one) || slices.Contains(all, rbacv1.ResourceAll)
}

// rulesOf all ClusterRoles that make up the agent's.
func rulesOf(t *testing.T, manifest []byte) (out []rbacv1.PolicyRule) {
	t.Helper()
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var role rbacv1.ClusterRole
		switch err := documents.Decode(&role); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatal(err)
		case role.Kind == "ClusterRole" && role.Labels["rbac.atoll.dev/aggregate-to-agent"] == "true":
			out = append(out, role.Rules...)
		}
	}
}
