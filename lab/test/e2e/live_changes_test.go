package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// undoneDeployment runs in two clusters by its own annotation.
const undoneDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2", editor: me}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1", resources: {requests: {cpu: 10m, memory: 16Mi}}}]}
`

// undoneToo has a history of another kind.
const undoneToo = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: "registry.example/db:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// undoneOtherwise has a history of a third kind, and makes of all of them something else in each
// of the clusters.
const undoneOtherwise = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec: {terminationGracePeriodSeconds: 0, serviceAccountName: default, containers: [{name: log, image: "registry.example/log:1", env: [{name: AS, value: stated}]}]}
---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: otherwise, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: apps/v1, kind: StatefulSet}, {apiVersion: apps/v1, kind: DaemonSet}]
  overrideRules:
  - targetCluster: {clusterNames: [member1]}
    overriders: {imageOverrider: [{component: Registry, operator: replace, value: member1.example}]}
  - targetCluster: {clusterNames: [member2]}
    overriders:
      imageOverrider: [{component: Registry, operator: replace, value: member2.example}]
      envOverrider: [{operator: add, value: [{name: WHERE, value: member2}]}]
`

// TestRollingBackOnTheHub: kubectl finds the history of what was stated, not of what overrides
// made of it in clusters; what it goes back to is what was stated, stays placed, and gets there.
func TestRollingBackOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "undone")
	in := " -n " + ns
	apply(t, ns, undoneOtherwise+"---"+undoneDeployment+"---"+undoneToo)
	runs := func(what, name, tag string) {
		t.Helper()
		testwait.UntilNil(t, what+" runs "+tag, func(ctx context.Context) error {
			for _, m := range []string{"member1", "member2"} {
				if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath(m), "", "get "+what+in+" -o jsonpath={.spec.template.spec.containers[0].image}"); out != m+".example/"+name+":"+tag {
					return fmt.Errorf("%s: the image is %q", m, out)
				}
			}
			return nil
		})
		mustKubectl(t, "", "rollout status "+what+in+" --timeout 60s")
	}
	stated := func(what string) string { return mustKubectl(t, "", "get "+what+in+" -o jsonpath={.spec.template}") }
	revisions := func() int {
		return strings.Count(mustKubectl(t, "", "get revisions.engine.atoll.dev --no-headers -o custom-columns=IN:.spec.bundle.namespace"), ns+"\n")
	}
	for what, name := range map[string]string{"deploy/web": "web", "sts/db": "db", "ds/log": "log"} {
		runs(what, name, "1")
		first := stated(what)
		mustKubectl(t, "", "set image "+what+" "+name+"=registry.example/"+name+":2"+in)
		mustKubectl(t, "", "annotate "+what+in+" kubernetes.io/change-cause=second")
		runs(what, name, "2")
		for _, m := range []string{"member1", "member2"} { // whose Revision is not to count among those of going back
			testwait.UntilNil(t, "the annotation is in "+m, logSays(func() string { return kubectlAt(t, sharedWorld.lab.KubeconfigPath(m), "", "get "+what+in+" -o yaml") }, "change-cause: second"))
		}
		second := stated(what)
		history := mustKubectl(t, "", "rollout history "+what+in)
		if strings.Count(history, "<none>") != 1 || strings.Count(history, "second") != 1 {
			t.Errorf("%s has not two revisions: %s", what, history)
		}
		lines := strings.Fields(history[strings.Index(history, "CHANGE-CAUSE"):])
		earlier, latest := lines[1], lines[3]
		if out := mustKubectl(t, "", "rollout history "+what+in+" --revision "+earlier); !strings.Contains(out, "registry.example/"+name+":1") || strings.Contains(out, "WHERE") {
			t.Errorf("%s was at revision %s: %s", what, earlier, out)
		}
		expectOutput(t, "going back to what it is", mustKubectl(t, "", "rollout undo "+what+in+" --to-revision "+latest), "skipped rollback")
		before := revisions()
		expectOutput(t, "rollout undo", mustKubectl(t, "", "rollout undo "+what+in), "rolled back")
		runs(what, name, "1")
		if got := stated(what); got != first {
			t.Errorf("%s was gone back to %s, stated was %s", what, got, first)
		}
		if n := revisions() - before; n != 1 {
			t.Errorf("going back with %s cut %d revisions", what, n)
		}
		expectOutput(t, "rollout undo", mustKubectl(t, "", "rollout undo "+what+in+" --to-revision "+latest), "rolled back")
		if got := stated(what); got != second {
			t.Errorf("%s was gone back to %s, stated was %s", what, got, second)
		}
		mustKubectl(t, "", "rollout undo "+what+in) // as it was, in no Revision for a moment
		if got := stated(what); got != first {
			t.Errorf("%s was at once gone back to %s, stated was %s", what, got, first)
		}
		runs(what, name, "1")
		expectOutput(t, "annotations", mustKubectl(t, "", "get "+what+in+" -o jsonpath={.metadata.annotations}"), `"atoll.dev/clusters":"member1,member2"`)
	}
	expectOutput(t, "annotations", mustKubectl(t, "", "get deploy web -o jsonpath={.metadata.annotations}"+in), `"editor":"me"`)

	// The shown state is the state in the members.
	for _, m := range []string{"member1", "member2"} {
		out := mustKubectl(t, "", "get rs"+in+" -o jsonpath={.items[*].spec.template.spec.containers[0].image} -l atoll.dev/cluster="+m)
		if !strings.Contains(out, m+".example/web:1") || strings.Contains(out, "registry.example") {
			t.Errorf("%s has ReplicaSets of %s", m, out)
		}
	}
	for line := range strings.Lines(mustKubectl(t, "", "get rs,controllerrevisions -o name"+in)) {
		if !strings.Contains(line, ".member") {
			t.Errorf("what was stated is said to run: %s", line)
		}
	}
	expectOutput(t, "describe", mustKubectl(t, "", "describe deploy web"+in), "(0/0 replicas created)\nNewReplicaSet:", "(1/1 replicas created)")
	mustKubectl(t, "", "rollout restart deploy/web"+in)
	mustKubectl(t, "", "rollout status deploy/web --timeout 60s"+in)
}

// TestRunningObjectsAreChangedOnTheHub: evictions, resizing and applying reach the member,
// its refusals reach the user, and the watch of changes reaches the hub.
func TestRunningObjectsAreChangedOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "changed")
	in := " -n " + ns
	for _, m := range []string{"member1", "member2"} {
		grantRole(t, m, "changed", "--clusterrole cluster-admin --group atoll:masters")
	}
	apply(t, ns, undoneDeployment+"---"+undoneToo)
	hub := sharedWorld.lab.KubeconfigPath("hub")
	mustKubectl(t, "", "rollout status deploy/web --timeout 60s"+in)
	slices := runKubectl(t, hub, "get endpointslices -w --output-watch-events -l kubernetes.io/service-name=web"+in)
	slices.waitForOutput(t, ".member1")
	slices.waitForOutput(t, ".member2")
	var pod, there string
	testwait.UntilNil(t, "its pod is seen", func(context.Context) error {
		pod = strings.TrimPrefix(strings.TrimSpace(kubectlAt(t, hub, "", "get pods -o name -l app=web,atoll.dev/cluster=member1"+in)), "pod/")
		name, ok := strings.CutSuffix(pod, ".member1")
		if there = name; !ok {
			return fmt.Errorf("the first pod is %q", pod)
		}
		return nil
	})
	member := sharedWorld.lab.KubeconfigPath("member1")

	// Fake nodes resize nothing; the member answers so.
	kubectlFails(t, "", "patch pod "+pod+in+` --subresource resize -p {"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"20m"}}}]}}`,
		"Pod running on node without support for resize")
	mustKubectl(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+pod+", namespace: "+ns+", labels: {applied: \"yes\"}}}", "apply --server-side -f -")
	expectOutput(t, "what is applied", kubectlAt(t, member, "", "get pod "+there+in+" -o jsonpath={.metadata.labels.applied}"), "yes")

	evict := func(more string) string {
		return kubectlAt(t, hub, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+pod+`","namespace":"`+ns+`"}`+more+`}`,
			"create --raw /api/v1/namespaces/"+ns+"/pods/"+pod+"/eviction -f -")
	}
	expectOutput(t, "an eviction that is not meant", evict(`,"deleteOptions":{"dryRun":["All"]}`), `"status":"Success"`)
	expectOutput(t, "the pod that was not evicted", kubectlAt(t, member, "", "get pod "+there+in+" -o name"), there)
	expectOutput(t, "a pod of another UID", evict(`,"deleteOptions":{"preconditions":{"uid":"no"}}`), "Conflict")
	apply(t, ns, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: member1}}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n")
	testwait.UntilNil(t, "a budget forbids it", func(context.Context) error {
		if out := evict(`,"deleteOptions":{"dryRun":["All"]}`); !strings.Contains(out, "disruption budget") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	mustKubectl(t, "", "delete pdb web"+in)
	testwait.UntilNil(t, "the eviction is done", func(context.Context) error {
		if out := evict(""); !strings.Contains(out, `"status":"Success"`) && !strings.Contains(out, "not found") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	mustKubectl(t, "", "wait --for=delete pod/"+pod+" --timeout 60s"+in)
	before := strings.Count(printedSoFar(t, slices), "MODIFIED")
	mustKubectl(t, "", "scale deploy/web --replicas 2"+in)
	testwait.UntilNil(t, "the watch tells of what the slices have now", func(context.Context) error {
		if out := printedSoFar(t, slices); strings.Count(out, "MODIFIED") == before {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	mustKubectl(t, "", "wait --for=condition=Ready pod -l app=web --timeout 60s"+in)
}
