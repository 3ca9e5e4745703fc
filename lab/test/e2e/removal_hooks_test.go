package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// removedObjects run Jobs before and after their removal. The Jobs are suspended until something in the member resumes them.
const removedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: app, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: batch/v1, kind: Job}]
  placement: {clusterAffinity: {clusterNames: [$CLUSTER]}}
  itemRules:
  - resourceSelectors: [{apiVersion: batch/v1, kind: Job}]
    ignoreFields: [/spec/suspend]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: $NS}
data: {release: "1"}
---
apiVersion: batch/v1
kind: Job
metadata: {name: backup, namespace: $NS, annotations: {argocd.argoproj.io/hook: PreDelete}}
spec:
  suspend: true
  template:
    spec: {restartPolicy: Never, containers: [{name: a, image: "registry.example/backup:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bye, namespace: $NS, annotations: {atoll.dev/hook: PostDelete}}
spec:
  suspend: true
  template:
    spec: {restartPolicy: Never, containers: [{name: a, image: "registry.example/bye:1"}]}
`

// Jobs run before and after the removal of their application from a cluster: once, also without the hub and over restarts of
// the agent. A failed one stops the removal until a person decides.
func TestHooksOfARemoval(t *testing.T) {
	ns := createNamespace(t, "goodbye")
	member := func(kind, name string, want bool) func(context.Context) error {
		apiVersion := map[string]string{"ConfigMap": "v1", "Job": "batch/v1"}[kind]
		return inCluster("member1", apiVersion, kind, ns, name, want)
	}
	app := func(cluster string, want bool) func(context.Context) error {
		return inCluster(cluster, "v1", "ConfigMap", ns, "app", want)
	}
	uidOf := func(name string) string {
		o, err := get(t.Context(), "member1", "batch/v1", "Job", ns, name)
		if err != nil || o == nil {
			t.Fatalf("%s is %v (%v)", name, o, err)
		}
		return string(o.GetUID())
	}
	atMember := func(args string) { t.Helper(); kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", args) }
	resume := func(name string) {
		t.Helper()
		atMember("patch job " + name + " -n " + ns + ` --type=merge -p={"spec":{"suspend":false}}`)
	}
	explains := func(text string) func(context.Context) error { return explanationMatches("cm/app -n "+ns, text) }
	in := func(cluster string) string {
		return strings.NewReplacer("$NS", ns, "$CLUSTER", cluster).Replace(removedObjects)
	}

	mustKubectl(t, in("member1"), "apply -f -")
	testwait.UntilNil(t, "the application runs, without the hooks of its removal", allChecks(explains("is in 1 cluster and ready there"), app("member1", true)))
	if err := allChecks(member("Job", "backup", false), member("Job", "bye", false))(t.Context()); err != nil {
		t.Error(err)
	}
	expectOutput(t, "the plan of the move", runCLI(t, "plan", "-f", writeManifest(t, "moved.yaml", ns, in("member2"))), "runs hooks: Job/backup (PreDelete), Job/bye (PostDelete)")

	// The removal waits for the first Job, also while the agent and the hub restart.
	placeOn(t, ns, "app", "member2")
	testwait.UntilNil(t, "the first hook runs", allChecks(app("member2", true), member("Job", "backup", true), explains("a hook of the removal, Job backup: the removal waits until the hook succeeds in PreDelete")))
	first := uidOf("backup")
	takeDown(t, "hub")
	takeDown(t, "agent/member1")
	if err := allChecks(app("member1", true), member("Job", "bye", false))(t.Context()); err != nil {
		t.Errorf("it does not wait for the hook: %v", err)
	}
	bringBack(t, "agent/member1")
	resume("backup")
	testwait.UntilNil(t, "the removal goes on without the hub", allChecks(app("member1", false), member("Job", "bye", true)))
	if uidOf("backup") != first {
		t.Error("the restart runs the hook again")
	}

	// The second one fails, because something deletes it. A person lets it run again.
	second := uidOf("bye")
	atMember("delete job bye -n " + ns)
	bringBack(t, "hub")
	testwait.UntilNil(t, "the removal stops", allChecks(explains("a hook of the removal, Job bye: the hook failed in PostDelete, and the removal waits: "), member("Job", "bye", false)))
	mustKubectl(t, "", "annotate bundle --all atoll.dev/removal-hooks=Retry -n "+ns)
	testwait.UntilNil(t, "the hook runs again", member("Job", "bye", true))
	if uidOf("bye") == second || uidOf("backup") != first {
		t.Error("another hook than the failed one runs again")
	}
	resume("bye")
	testwait.UntilNil(t, "nothing is left", allChecks(member("Job", "bye", false), member("Job", "backup", false), func(context.Context) error {
		for line := range strings.Lines(runCLI(t, "get", "rows", "-n", ns)) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "app" && fields[2] == "member1" {
				return fmt.Errorf("the application has the row %s", line)
			}
		}
		return nil
	}))

	// Templates that are deleted together are an application that is removed. Without its hooks, by order.
	mustKubectl(t, "", "delete cm/app job/backup job/bye --wait=false -n "+ns)
	testwait.UntilNil(t, "the first hook runs", inCluster("member2", "batch/v1", "Job", ns, "backup", true))
	if err := app("member2", true)(t.Context()); err != nil {
		t.Errorf("it does not wait for the hook: %v", err)
	}
	kubectlFails(t, "", "annotate bundle --all atoll.dev/removal-hooks=Never --overwrite -n "+ns, "is neither Skip nor Retry")
	mustKubectl(t, "", "annotate bundle --all atoll.dev/removal-hooks=Skip --overwrite -n "+ns)
	testwait.UntilNil(t, "all is gone", allChecks(app("member2", false), app("hub", false), inCluster("hub", "batch/v1", "Job", ns, "bye", false), inCluster("member2", "batch/v1", "Job", ns, "backup", false)))
}
