package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const lastObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: last, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules: [{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: base}], removal: Last}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: base, namespace: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: $NS}
`

// An object that is removed last stays while a finalizer of the member holds another one that goes.
func TestTheLastObjectOutlivesTheOthers(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "last")
	mustKubectl(t, strings.ReplaceAll(lastObjects, "$NS", ns), "apply -f -")
	exists := func(name string, want bool) func(context.Context) error {
		return inCluster("member1", "v1", "ConfigMap", ns, name, want)
	}
	testwait.UntilNil(t, "both are there", allChecks(exists("base", true), exists("app", true)))
	member := sharedWorld.lab.KubeconfigPath("member1")
	kubectlAt(t, member, "", "patch cm app -n "+ns+` --type=merge -p={"metadata":{"finalizers":["example.org/held"]}}`)

	mustKubectl(t, "", "delete cm app --wait=false -n "+ns)
	testwait.UntilNil(t, "the other one is being deleted", func(ctx context.Context) error {
		o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "app")
		if err != nil || o == nil || o.GetDeletionTimestamp() == nil {
			return fmt.Errorf("it is %v (%v)", o, err)
		}
		return nil
	})
	mustKubectl(t, "", "delete cm base --wait=false -n "+ns)
	testwait.UntilNil(t, "the last one waits", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns, "-o", "json"); !strings.Contains(out, "it is removed last, after 1 other object of the Bundle") {
			return fmt.Errorf("the rows are:\n%s", out)
		}
		return nil
	})
	if err := exists("base", true)(t.Context()); err != nil {
		t.Errorf("the last object went first: %v", err)
	}
	kubectlAt(t, member, "", "patch cm app -n "+ns+` --type=merge -p={"metadata":{"finalizers":null}}`)
	testwait.UntilNil(t, "both are gone", allChecks(exists("base", false), exists("app", false)))
}
