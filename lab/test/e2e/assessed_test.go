package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const assessedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: assessed, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: app}]
    feedback:
    - {name: version, jsonPath: .data.version, type: String}
    - {name: edition, jsonPath: .data.edition, type: Integer}
    health: [{expression: "object.data.?state.orValue('') == 'ready'", message: the app has not started}]
  - resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: once}]
    completion: {expression: "'result' in object.data"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: $NS}
data: {edition: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: once, namespace: $NS}
data: {edition: "1"}
`

// The policy says what clusters report of an object, when it is healthy, and when it has run to completion.
func TestClustersAssessObjectsAsStated(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "assessed")
	applied := func(text string) { mustKubectl(t, strings.ReplaceAll(text, "$NS", ns), "apply -f -") }
	patched := func(name, data string) {
		kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "patch cm "+name+" -n "+ns+` --type=merge -p={"data":`+data+`}`)
	}
	explained := func(name string, wants ...string) func(context.Context) error {
		return func(context.Context) error {
			out := runCLI(t, "explain", "cm/"+name, "-n", ns)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					return fmt.Errorf("explain %s lacks %q:\n%s", name, want, out)
				}
			}
			return nil
		}
	}
	applied(assessedObjects)
	testwait.UntilNil(t, "neither is ready", allChecks(
		explained("app", "the app has not started", "Clusters report version, edition of it", "edition has no value (it is a string, and no Integer)"),
		explained("once", "NotCompleted", "It has run to completion where"),
	))
	patched("app", `{"state":"ready","version":"1.7"}`)
	patched("once", `{"result":"42"}`)
	testwait.UntilNil(t, "both are ready", allChecks(
		explained("app", "feedback: version=1.7, edition has no value"),
		explained("once", "ran to completion"),
		func(context.Context) error {
			out := mustKubectl(t, "", "get bundles -o wide -n "+ns)
			if !strings.Contains(out, "1/1") || !strings.Contains(out, "version: 1.7") {
				return fmt.Errorf("the table of Bundles is:\n%s", out)
			}
			return nil
		},
	))

	// The object that ran to completion and is deleted in the member comes back for other content alone.
	kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "delete cm once -n "+ns)
	patched("app", `{"version":"1.8"}`)
	testwait.UntilNil(t, "the next value", explained("app", "version=1.8"))
	if err := allChecks(inCluster("member1", "v1", "ConfigMap", ns, "once", false), explained("once", "ran to completion"))(t.Context()); err != nil {
		t.Error(err)
	}
	applied(strings.ReplaceAll(assessedObjects, `edition: "1"`, `edition: "2"`))
	testwait.UntilNil(t, "it runs again", allChecks(
		fieldShows([]string{"member1"}, objectName{"v1", "ConfigMap", ns, "once"}, "data.edition", "2"), explained("once", "NotCompleted"),
	))

	// Without rules the kind decides again.
	_, rules, _ := strings.Cut(assessedObjects, "  itemRules:")
	rules, _, _ = strings.Cut(rules, "---")
	applied(strings.ReplaceAll(assessedObjects, "  itemRules:"+rules, ""))
	testwait.UntilNil(t, "ready by existence", func(context.Context) error {
		out := mustKubectl(t, "", "get bundles -o wide -n "+ns)
		if !strings.Contains(out, "1/1") || strings.Contains(out, "version") {
			return fmt.Errorf("the table of Bundles is:\n%s", out)
		}
		return nil
	})
}
