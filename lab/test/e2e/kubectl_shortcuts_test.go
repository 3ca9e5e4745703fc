package e2e

import (
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestKubectlMakesObjectsOfOthers checks the commands of kubectl that make or change an object by another
// one: the objects reach the clusters of the policy, and a Job those of its CronJob.
func TestKubectlMakesObjectsOfOthers(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "shortcuts")
	in := " -n " + ns
	apply(t, ns, policyForKinds("apps/v1 Deployment", "v1 Service", "autoscaling/v2 HorizontalPodAutoscaler")+"---"+webDeployment+`---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: $NS, annotations: {atoll.dev/clusters: member2}}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: job, image: "registry.example/job:1"}]
`)
	inMembers := func(o objectName, path, want string) {
		t.Helper()
		testwait.UntilNil(t, o.kind+" "+path, fieldShows(memberNames, o, path, want))
	}
	mustKubectl(t, "", "expose deploy/web --port=80 --target-port=8080"+in)
	inMembers(objectName{"v1", "Service", ns, "web"}, "spec.selector.app", "web")
	mustKubectl(t, "", "autoscale deploy/web --min=2 --max=5"+in)
	inMembers(objectName{"autoscaling/v2", "HorizontalPodAutoscaler", ns, "web"}, "spec.maxReplicas", "5")

	mustKubectl(t, "", "set image deploy/web web=registry.example/web:2"+in)
	testwait.UntilNil(t, "the image", containerField(ns, "image", "registry.example/web:2"))
	mustKubectl(t, "", "set env deploy/web MODE=fast"+in)
	testwait.UntilNil(t, "the variable", containerField(ns, "env", "[map[name:MODE value:fast]]"))
	mustKubectl(t, "", "set resources deploy/web --limits=memory=64Mi"+in)
	testwait.UntilNil(t, "the limit", containerField(ns, "resources", "map[limits:map[memory:64Mi]]"))
	mustKubectl(t, "", "rollout restart deploy/web"+in)
	mustKubectl(t, "", "rollout status deploy/web --timeout=120s"+in)

	testwait.UntilNil(t, "the CronJob", existsIn("batch/v1", "CronJob", ns, "nightly", "member2"))
	mustKubectl(t, "", "create job now --from=cronjob/nightly"+in)
	testwait.UntilNil(t, "the Job goes where its CronJob is", existsIn("batch/v1", "Job", ns, "now", "member2"))
	testwait.UntilNil(t, "explain names the CronJob", explanationMatches("job/now -n "+ns, `CronJob/?.*nightly`))
}
