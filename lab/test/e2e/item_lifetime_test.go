package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const lifetimeObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: lifetimes, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: once}]
    completion: {expression: "'result' in object.data"}
    ttlSecondsAfterFinished: 0
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: deleted}, {apiVersion: v1, kind: ConfigMap, name: bound}], removal: WithBundle}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: once, namespace: $NS}
data: {edition: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: deleted, namespace: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bound, namespace: $NS}
`

// A cluster deletes an object after it finished, and makes it again for other content. An object that is removed with its
// Bundle stays when its template is deleted, and goes when its namespace on the hub does.
func TestClustersDeleteObjectsAtTheirTime(t *testing.T) {
	t.Parallel()
	const ns = "lifetimes"
	member := sharedWorld.lab.KubeconfigPath("member1")
	kubectlAt(t, member, "", "create namespace "+ns) // so that Atoll does not delete it, with all that it has
	kubectlAtEnd(t, "member1", "delete namespace "+ns+" --wait=false")
	createNamespace(t, ns)
	exists := func(name string, want bool) func(context.Context) error {
		return inCluster("member1", "v1", "ConfigMap", ns, name, want)
	}
	explained := func(name, want string) func(context.Context) error {
		return func(context.Context) error {
			if out := runCLI(t, "explain", "cm/"+name, "-n", ns); !strings.Contains(out, want) {
				return fmt.Errorf("explain %s lacks %q:\n%s", name, want, out)
			}
			return nil
		}
	}
	mustKubectl(t, strings.ReplaceAll(lifetimeObjects, "$NS", ns), "apply -f -")
	testwait.UntilNil(t, "all are there", allChecks(exists("once", true), exists("deleted", true), exists("bound", true),
		explained("once", "Clusters delete it 0 s after it has run to completion (ttlSecondsAfterFinished)."), explained("bound", "(removal: WithBundle)")))

	kubectlAt(t, member, "", "patch cm once -n "+ns+` --type=merge -p={"data":{"result":"42"}}`)
	testwait.UntilNil(t, "what has finished is deleted", allChecks(exists("once", false), explained("once", "ran to completion")))
	mustKubectl(t, "", "patch cm once -n "+ns+` --type=merge -p={"data":{"edition":"2"}}`)
	testwait.UntilNil(t, "it runs again", exists("once", true))

	mustKubectl(t, "", "delete cm deleted -n "+ns)
	mustKubectl(t, "", "delete namespace "+ns+" --wait=false")
	testwait.UntilNil(t, "the namespace is gone", func(ctx context.Context) error {
		if o, err := get(ctx, "hub", "v1", "Namespace", "", ns); err != nil || o != nil {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	testwait.UntilNil(t, "what goes with its Bundle is gone", allChecks(exists("bound", false), exists("once", false)))
	if o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "deleted"); err != nil || o == nil || len(o.GetLabels()) > 0 {
		t.Errorf("what was taken out before is %v (%v)", o, err)
	}
}
