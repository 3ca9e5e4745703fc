package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// wavedObjects become healthy in the first wave when something in the member writes "yes" into ConfigMap base.
const wavedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: waves, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: base}]
    ignoreFields: [/data/ready]
    health: [{expression: "object.data.ready == 'yes'", message: base is not ready}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: base, namespace: $NS, annotations: {atoll.dev/wave: "-1"}}
data: {ready: "no"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: middle, namespace: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: top, namespace: $NS, annotations: {argocd.argoproj.io/sync-wave: "3"}}
`

// Waves follow each other by health in the member, also without the hub and after a restart of the agent. They are
// removed in reverse.
func TestWavesInsideACluster(t *testing.T) {
	ns := createNamespace(t, "waves")
	exists := func(name string, want bool) func(context.Context) error {
		return inCluster("member1", "v1", "ConfigMap", ns, name, want)
	}
	rowsShow := func(text string) func(context.Context) error {
		return func(context.Context) error {
			if out := runCLI(t, "get", "rows", "-n", ns, "-o", "json"); !strings.Contains(out, text) {
				return fmt.Errorf("the rows lack %q:\n%s", text, out)
			}
			return nil
		}
	}
	malformed := "{apiVersion: v1, kind: ConfigMap, metadata: {name: base, namespace: " + ns + ", annotations: {atoll.dev/wave: first}}}"
	kubectlFails(t, malformed, "apply -f -",
		`annotation atoll.dev/wave: a wave is a whole number from -1000000 to 1000000, and not "first"`)
	mustKubectl(t, strings.ReplaceAll(wavedObjects, "$NS", ns), "apply -f -")
	testwait.UntilNil(t, "the first wave is there", exists("base", true))
	testwait.UntilNil(t, "the others wait", allChecks(
		rowsShow("wave 0 waits until wave -1 is applied and healthy, now for ConfigMap "+ns+"/base"),
		rowsShow("wave 3 waits until wave -1"), rowsShow(`"WaitsForWave"`),
		explanationMatches("cm/top -n "+ns, `^ +It is of wave 3: `, `WaitsForWave`)))

	takeDown(t, "hub")
	takeDown(t, "agent/member1")
	member := sharedWorld.lab.KubeconfigPath("member1")
	kubectlAt(t, member, "", "delete cm base -n "+ns)
	bringBack(t, "agent/member1")
	testwait.UntilNil(t, "the agent works again", exists("base", true))
	for _, name := range []string{"middle", "top"} {
		if err := exists(name, false)(t.Context()); err != nil {
			t.Errorf("after a restart it does not wait: %v", err)
		}
	}
	kubectlAt(t, member, "", "patch cm base -n "+ns+` --type=merge -p={"data":{"ready":"yes"}}`)
	testwait.UntilNil(t, "the others follow without the hub", allChecks(exists("middle", true), exists("top", true)))
	bringBack(t, "hub")
	testwait.UntilNil(t, "all is ready", explanationMatches("cm/top -n "+ns, "is in 1 cluster and ready there"))

	kubectlAt(t, member, "", "patch cm top -n "+ns+` --type=merge -p={"metadata":{"finalizers":["example.org/held"]}}`)
	mustKubectl(t, "", "delete cm top --wait=false -n "+ns)
	testwait.UntilNil(t, "the last wave is being removed", func(ctx context.Context) error {
		o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "top")
		if err != nil || o == nil || o.GetDeletionTimestamp() == nil {
			return fmt.Errorf("it is %v (%v)", o, err)
		}
		return nil
	})
	mustKubectl(t, "", "delete cm base middle --wait=false -n "+ns)
	testwait.UntilNil(t, "earlier waves wait for the last one", rowsShow("it is removed after 1 object of wave 3 of the Bundle"))
	if err := allChecks(exists("base", true), exists("middle", true))(t.Context()); err != nil {
		t.Errorf("earlier waves are removed first: %v", err)
	}
	kubectlAt(t, member, "", "patch cm top -n "+ns+` --type=merge -p={"metadata":{"finalizers":null}}`)
	testwait.UntilNil(t, "all are gone", allChecks(exists("base", false), exists("middle", false), exists("top", false)))
}
