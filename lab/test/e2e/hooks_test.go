package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// hookedObjects run ConfigMaps as hooks, which end when something in the member writes "yes" into them.
const hookedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: hooks, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: migrate}]
    ignoreFields: [/data/done]
    health: [{expression: "object.data.done == 'yes'", message: the migration runs}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: migrate, namespace: $NS, annotations: {argocd.argoproj.io/hook: PreSync}}
data: {done: "no"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: $NS}
data: {release: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: notify
  namespace: $NS
  annotations: {argocd.argoproj.io/hook: PostSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: skipped, namespace: $NS, annotations: {argocd.argoproj.io/hook: Skip}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: chart, namespace: $NS, annotations: {helm.sh/hook: post-install}}
`

// Hooks run before and after what they belong to, once for each content, also without the hub and over a restart of the agent.
func TestHooksInsideACluster(t *testing.T) {
	ns := createNamespace(t, "hooks")
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
	uidOf := func(name string) string {
		o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, name)
		if err != nil || o == nil {
			t.Fatalf("%s is %v (%v)", name, o, err)
		}
		return string(o.GetUID())
	}
	member := sharedWorld.lab.KubeconfigPath("member1")
	finishMigration := func() {
		t.Helper()
		kubectlAt(t, member, "", "patch cm migrate -n "+ns+` --type=merge -p={"data":{"done":"yes"}}`)
	}

	mustKubectl(t, strings.ReplaceAll(hookedObjects, "$NS", ns), "apply -f -")
	testwait.UntilNil(t, "the hook runs", exists("migrate", true))
	testwait.UntilNil(t, "what follows waits", allChecks(
		rowsShow(`"WaitsForHook"`), rowsShow("it waits until the hook ConfigMap "+ns+"/migrate succeeds in PreSync"),
		explanationMatches("cm/migrate -n "+ns, `^ +It is a hook: clusters run it once for each content of the Bundle, in PreSync, and delete it by BeforeHookCreation\.`)))
	first := uidOf("migrate")

	takeDown(t, "hub")
	takeDown(t, "agent/member1")
	if err := exists("app", false)(t.Context()); err != nil {
		t.Errorf("it does not wait for the hook: %v", err)
	}
	bringBack(t, "agent/member1")
	finishMigration()
	testwait.UntilNil(t, "the others follow without the hub", allChecks(exists("app", true), exists("chart", true)))
	if uidOf("migrate") != first {
		t.Error("the restart runs the hook again")
	}
	bringBack(t, "hub")
	testwait.UntilNil(t, "all is ready, and the last hook is deleted", allChecks(
		explanationMatches("cm/app -n "+ns, "is in 1 cluster and ready there"), explanationMatches("cm/notify -n "+ns, "is in 1 cluster and ready there"),
		exists("notify", false), exists("skipped", false)))

	// Another content runs the hook again, and the new content waits for it.
	mustKubectl(t, "", "patch cm app -n "+ns+` --type=merge -p={"data":{"release":"2"}}`)
	testwait.UntilNil(t, "the hook runs again", func(ctx context.Context) error {
		o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "migrate")
		if err != nil || o == nil || string(o.GetUID()) == first {
			return fmt.Errorf("it is %v (%v)", o, err)
		}
		return nil
	})
	releaseIs := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "app")
			if err != nil || o == nil || fmt.Sprint(o.Object["data"]) != "map[release:"+want+"]" {
				return fmt.Errorf("it is %v (%v)", o, err)
			}
			return nil
		}
	}
	if err := releaseIs("1")(t.Context()); err != nil {
		t.Errorf("the new content does not wait: %v", err)
	}
	finishMigration()
	testwait.UntilNil(t, "the new content follows", releaseIs("2"))
}
