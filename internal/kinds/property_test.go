package kinds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/kinds"
)

// rounds of each property; every failure prints its seed.
const rounds = 400

func forEachSeed(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	for seed := range uint64(rounds) {
		f(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// randomDeployment is a Deployment of a member at some moment of a rollout.
func randomDeployment(rng *rand.Rand, replicas int64) *unstructured.Unstructured {
	surge := rng.Int64N(3)
	total := rng.Int64N(replicas+1) + surge
	updated := rng.Int64N(total + 1)
	ready := rng.Int64N(total + 1)
	available := rng.Int64N(ready + 1)
	observed := 2 - rng.Int64N(2)
	if rng.IntN(3) == 0 {
		total, updated, ready, available, observed = replicas, replicas, replicas, replicas, 2
	}
	done := updated >= replicas && total == updated && available >= updated
	reason := "ReplicaSetUpdated"
	if done {
		reason = "NewReplicaSetAvailable"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "generation": int64(2)},
		"spec":     map[string]any{"replicas": replicas},
		"status": map[string]any{
			"observedGeneration": observed, "replicas": total, "updatedReplicas": updated,
			"readyReplicas": ready, "availableReplicas": available,
			"conditions": []any{
				map[string]any{"type": "Available", "status": boolText(available >= replicas)},
				map[string]any{"type": "Progressing", "status": "True", "reason": reason},
			},
		},
	}}
}

func boolText(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func randomRows(rng *rand.Rand, share func() int64) []kinds.RowItem {
	rows := make([]kinds.RowItem, 1+rng.IntN(6))
	for i := range rows {
		name := fmt.Sprintf("c%d", i)
		rows[i] = reportRow(name, randomDeployment(rng, share()))
		if rng.IntN(8) == 0 {
			rows[i] = kinds.RowItem{Cluster: name}
		}
		rows[i].Disconnected = rng.IntN(6) == 0
		rows[i].Stale = rng.IntN(6) == 0
	}
	return rows
}

func newTemplate(replicas, generation int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "generation": generation},
		"spec":     map[string]any{"replicas": replicas},
	}}
}

func TestOrderOfRowsDoesNotMatter(t *testing.T) {
	forEachSeed(t, func(t *testing.T, rng *rand.Rand) {
		n := 1 + rng.Int64N(4)
		rows := randomRows(rng, func() int64 { return n })
		divided := rng.IntN(2) == 0
		want, wantOK := kinds.AggregateStatus(newTemplate(n, 7), divided, rows, 7, 0)
		for range 5 {
			rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			got, ok := kinds.AggregateStatus(newTemplate(n, 7), divided, rows, 7, 0)
			if ok != wantOK || asJSON(got) != asJSON(want) {
				t.Errorf("permuted rows give %s, before %s", asJSON(got), asJSON(want))
			}
		}
	})
}

func TestDividedSumsAreExact(t *testing.T) {
	names := []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}
	forEachSeed(t, func(t *testing.T, rng *rand.Rand) {
		want := map[string]int64{}
		var rows []kinds.RowItem
		for i := range 1 + rng.IntN(6) {
			member := randomDeployment(rng, rng.Int64N(5))
			row := reportRow(fmt.Sprintf("c%d", i), member)
			if row.Disconnected = rng.IntN(4) == 0; !row.Disconnected {
				for _, name := range names {
					n, _, _ := unstructured.NestedInt64(member.Object, "status", name)
					want[name] += n
				}
			}
			rows = append(rows, row)
		}
		got, ok := kinds.AggregateStatus(newTemplate(9, 7), true, rows, 7, 0)
		if reachable := slices.ContainsFunc(rows, func(r kinds.RowItem) bool { return !r.Disconnected }); ok != reachable {
			t.Errorf("ok = %v with a reachable cluster: %v", ok, reachable)
		}
		for _, name := range names {
			if n, _ := got[name].(int64); ok && n != want[name] {
				t.Errorf("%s = %d, the clusters sum to %d", name, n, want[name])
			}
		}
	})
}

// A template is never finished before every connected cluster has finished.
func TestDoneMeansEveryReachableClusterIsDone(t *testing.T) {
	forEachSeed(t, func(t *testing.T, rng *rand.Rand) {
		n := 1 + rng.Int64N(3)
		divided := rng.IntN(2) == 0
		rows := randomRows(rng, func() int64 { return n })
		want, some := true, false
		for _, r := range rows {
			if !r.Disconnected {
				some = true
				want = want && r.Health == "Healthy" && !r.Stale
			}
		}
		tpl := newTemplate(n, 7)
		if divided {
			tpl = newTemplate(n*int64(len(rows)-countAway(rows)), 7)
		}
		st, ok := kinds.AggregateStatus(tpl, divided, rows, 7, 0)
		if ok {
			tpl.Object["status"] = st
		}
		if got := isRolledOut(t, tpl); got != (want && some) {
			t.Errorf("rollout status is %v, clusters are done: %v\n%s", got, want && some, asJSON(tpl.Object))
		}
	})
}

func countAway(rows []kinds.RowItem) int {
	n := 0
	for _, r := range rows {
		if r.Disconnected {
			n++
		}
	}
	return n
}

// checkAmounts fails the test where an amount of the object is negative.
func checkAmounts(t *testing.T, obj *unstructured.Unstructured) {
	n, each := kinds.PodSetsOf(obj)
	r := kinds.ReplicaRequests(obj)
	all := []int64{n, r.CPU, r.Memory, r.Pods}
	for _, s := range append(each, kinds.ComponentsOf(obj)...) {
		all = append(all, s.Count)
		for _, amount := range s.Requests {
			all = append(all, amount)
		}
	}
	if slices.Min(all) < 0 {
		t.Errorf("an amount is below zero: %v", all)
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":"x"},"status":{"conditions":[1,{"type":"Ready"}]}}`)
	f.Add(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"status":{"startTime":7,"conditions":{}}}`)
	f.Add(`{"apiVersion":"example.com/v1","kind":"Toy","metadata":{"name":"a"},"spec":[{"containers":[{"name":"a","env":[{"valueFrom":[]}]}]}],"status":{"conditions":[{"type":"a","status":"b"}]}}`)
	f.Add(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"1"},{"hostname":2}]}}}`)
	f.Add(`{"apiVersion":"ray.io/v1","kind":"RayCluster","metadata":{"name":"a"},"spec":{"headGroupSpec":{},"workerGroupSpecs":[{"replicas":4611686018427387904,"numOfHosts":-3}]}}`)
	f.Add(`{"apiVersion":"sparkoperator.k8s.io/v1beta2","kind":"SparkApplication","metadata":{"name":"a"},"spec":{"memoryOverheadFactor":"NaN","driver":{"cores":-1,"memory":"9223372036854775807p","gpu":{"name":"g","quantity":-4}}}}`)
	f.Add(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","metadata":{"name":"a"},"spec":{"replicas":-9,"strategy":{"canary":{"steps":[1]}}},"status":{"currentStepIndex":0,"pauseConditions":[{"reason":"CanaryPauseStep"},7]}}`)
	f.Add(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a"},"spec":{"sources":{},"syncPolicy":[]},"status":{"conditions":[3],"sync":{"comparedTo":{}},"operationState":{"phase":"Failed","syncResult":2}}}`)
	f.Add(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a"},"status":{"parents":[3,{"parentRef":{"name":[1],"group":{}},"conditions":[{"type":"Accepted","status":"x"}]},{"parentRef":{}}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		obj := &unstructured.Unstructured{}
		if obj.UnmarshalJSON([]byte(text)) != nil || obj.IsList() {
			t.Skip()
		}
		before := asJSON(obj.Object)
		row := reportRow("a", obj)
		kinds.HasFinished(obj)
		kinds.DependenciesOf(obj)
		kinds.ReplicasOf(obj)
		kinds.NeedsOneClusterForVolumes(obj)
		kinds.NeverEnds(obj)
		checkAmounts(t, obj)
		for _, divided := range []bool{false, true} {
			first, ok := kinds.AggregateStatus(obj, divided, []kinds.RowItem{row}, 1, 0)
			again, _ := kinds.AggregateStatus(obj, divided, []kinds.RowItem{row}, 1, 0)
			if ok && asJSON(first) != asJSON(again) {
				t.Errorf("not deterministic: %s, %s", asJSON(first), asJSON(again))
			}
		}
		if asJSON(obj.Object) != before {
			t.Errorf("the object changed")
		}
	})
}
