package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	deployments "k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"

	"atoll.dev/atoll/internal/kinds"
)

// memberJob simulates the life of a Job in a member.
type memberJob struct {
	start, completion       int64
	active, succeeded, fail int64
	end                     string
}

func (m *memberJob) advanceJob(rng *rand.Rand, now int64) {
	switch {
	case m.end != "":
	case m.start == 0:
		m.start, m.active = now, 2
	case rng.IntN(3) == 0 && m.active > 0:
		m.active--
		m.succeeded++
	case rng.IntN(6) == 0:
		m.fail++
		if m.fail > 2 {
			m.end, m.active = "Failed", 0
		}
	}
	if m.end == "" && m.succeeded == 2 {
		m.end, m.completion = "Complete", now
	}
}

func (m *memberJob) buildObject() *unstructured.Unstructured {
	at := func(unix int64) any {
		if unix == 0 {
			return nil
		}
		return time.Unix(unix, 0).UTC().Format(time.RFC3339)
	}
	st := map[string]any{
		"startTime": at(m.start), "completionTime": at(m.completion),
		"active": m.active, "ready": m.active, "succeeded": m.succeeded, "failed": m.fail,
	}
	if m.end != "" {
		st["conditions"] = []any{map[string]any{"type": m.end, "status": "True", "reason": "Because"}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "seed", "generation": int64(1)}, "status": st,
	}}
}

// updateStrategies are the API server's rules for status updates.
var updateStrategies = map[string]rest.RESTUpdateStrategy{
	"Deployment": deployments.StatusStrategy, "StatefulSet": statefulset.StatusStrategy,
	"DaemonSet": daemonset.StatusStrategy, "ReplicaSet": replicaset.StatusStrategy,
	"Job": job.StatusStrategy, "CronJob": cronjob.StatusStrategy,
	"Pod": pod.StatusStrategy, "Service": service.StatusStrategy, "Ingress": ingress.StatusStrategy,
	"PersistentVolumeClaim": persistentvolumeclaim.StatusStrategy, "PersistentVolume": persistentvolume.StatusStrategy,
	"PodDisruptionBudget": poddisruptionbudget.StatusStrategy, "HorizontalPodAutoscaler": horizontalpodautoscaler.StatusStrategy,
}

func toInternal(t *testing.T, obj *unstructured.Unstructured) runtime.Object {
	t.Helper()
	obj = obj.DeepCopy()
	obj.SetNamespace("default")
	obj.SetUID("u")
	obj.SetResourceVersion("1")
	decoded, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), []byte(asJSON(obj.Object)))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// writeStatus aggregates the rows into the template. It fails the test if the API server would
// refuse the status.
func writeStatus(t *testing.T, tpl *unstructured.Unstructured, divided bool, rows []kinds.RowItem, now int64) {
	t.Helper()
	st, ok := kinds.AggregateStatus(tpl, divided, rows, tpl.GetGeneration(), 0)
	if !ok {
		return
	}
	kinds.FillTimePlaceholders(st, time.Unix(now, 0))
	validateStatus(t, tpl, st)
	tpl.Object["status"] = st
}

// validateStatus fails the test if the API server would refuse the status.
func validateStatus(t *testing.T, tpl *unstructured.Unstructured, st map[string]any) {
	t.Helper()
	next := tpl.DeepCopy()
	next.Object["status"] = st
	strategy := updateStrategies[tpl.GetKind()]
	ctx := genericapirequest.WithRequestInfo(genericapirequest.NewDefaultContext(), &genericapirequest.RequestInfo{
		APIGroup: tpl.GroupVersionKind().Group, APIVersion: tpl.GroupVersionKind().Version,
	})
	if refusal := strategy.ValidateUpdate(ctx, toInternal(t, next), toInternal(t, tpl)); len(refusal) > 0 {
		t.Errorf("refused: %v\nold %s\nnew %s", refusal, asJSON(tpl.Object["status"]), asJSON(st))
	}
}

// The status of an object that is nowhere is accepted too, also after a status of clusters, and so is theirs after it.
func TestNowhereStatusesAreAccepted(t *testing.T) {
	accepted := map[string]bool{}
	for _, c := range aggregateCases {
		tpl := parseObject(t, c.template)
		if updateStrategies[tpl.GetKind()] == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				st, ok := kinds.NowhereStatus(tpl, "NoClusterFits", "no cluster has the label env=prod")
				if ok {
					kinds.FillTimePlaceholders(st, time.Unix(1_700_000_000, 0))
					validateStatus(t, tpl, st)
					tpl.Object["status"] = st
					accepted[tpl.GetKind()] = true
				}
				writeStatus(t, tpl, c.divided, c.buildRows(t), 1_800_000_000)
			}
		})
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "Pod", "PodDisruptionBudget", "HorizontalPodAutoscaler"} {
		if !accepted[kind] {
			t.Errorf("%s has no case", kind)
		}
	}
}

func TestStatusesAreAccepted(t *testing.T) {
	for _, c := range aggregateCases {
		tpl := parseObject(t, c.template)
		if updateStrategies[tpl.GetKind()] == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			writeStatus(t, tpl, c.divided, c.buildRows(t), 1_800_000_000)
		})
	}
}

func TestDeploymentStatusesAreAccepted(t *testing.T) {
	forEachSeed(t, func(t *testing.T, rng *rand.Rand) {
		n := 1 + rng.Int64N(4)
		rows := randomRows(rng, func() int64 { return rng.Int64N(n + 1) })
		writeStatus(t, newTemplate(n, 7), rng.IntN(2) == 0, rows, 1_800_000_000)
	})
}

// The API server accepts every status of the template while clusters connect, disconnect and
// finish, and the Job ends.
func TestJobTransitionsAreAccepted(t *testing.T) {
	forEachSeed(t, func(t *testing.T, rng *rand.Rand) {
		tpl := parseObject(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, generation: 1}\nspec: {completions: 2, parallelism: 2, backoffLimit: 2, template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}")
		members := make([]memberJob, 1+rng.IntN(4))
		now := int64(1_800_000_000)
		step := func(away int) {
			var rows []kinds.RowItem
			for i := range members {
				now++
				if rng.IntN(2) == 0 {
					members[i].advanceJob(rng, now)
				}
				row := reportRow(fmt.Sprintf("c%d", i), members[i].buildObject())
				row.Disconnected = rng.IntN(100) < away
				rows = append(rows, row)
			}
			writeStatus(t, tpl, false, rows, now)
		}
		for range 60 {
			step(10)
		}
		for range 60 {
			step(0)
		}
		if !kinds.HasFinished(tpl) {
			t.Errorf("the job never ended: %s", asJSON(tpl.Object["status"]))
		}
	})
}
