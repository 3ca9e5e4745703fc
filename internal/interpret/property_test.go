package interpret_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/interpret"
)

// rounds of each property; every failure prints its seed.
const rounds = 400

func each(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	for seed := range uint64(rounds) {
		f(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// deployment as a member might have it at any moment of a rollout.
func deployment(rng *rand.Rand, replicas int64) *unstructured.Unstructured {
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
				map[string]any{"type": "Available", "status": truth(available >= replicas)},
				map[string]any{"type": "Progressing", "status": "True", "reason": reason},
			},
		},
	}}
}

func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func randomRows(rng *rand.Rand, share func() int64) []interpret.RowItem {
	rows := make([]interpret.RowItem, 1+rng.IntN(6))
	for i := range rows {
		name := fmt.Sprintf("c%d", i)
		rows[i] = report(name, deployment(rng, share()))
		if rng.IntN(8) == 0 {
			rows[i] = interpret.RowItem{Cluster: name}
		}
		rows[i].Away = rng.IntN(6) == 0
		rows[i].Stale = rng.IntN(6) == 0
	}
	return rows
}

func template(replicas, generation int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "generation": generation},
		"spec":     map[string]any{"replicas": replicas},
	}}
}

func TestOrderOfRowsDoesNotMatter(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand) {
		n := 1 + rng.Int64N(4)
		rows := randomRows(rng, func() int64 { return n })
		divided := rng.IntN(2) == 0
		want, wantOK := interpret.Aggregate(template(n, 7), divided, rows, 7)
		for range 5 {
			rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			got, ok := interpret.Aggregate(template(n, 7), divided, rows, 7)
			if ok != wantOK || asJSON(got) != asJSON(want) {
				t.Errorf("permuted rows give %s, before %s", asJSON(got), asJSON(want))
			}
		}
	})
}

func TestDividedSumsAreExact(t *testing.T) {
	names := []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}
	each(t, func(t *testing.T, rng *rand.Rand) {
		want := map[string]int64{}
		var rows []interpret.RowItem
		for i := range 1 + rng.IntN(6) {
			member := deployment(rng, rng.Int64N(5))
			row := report(fmt.Sprintf("c%d", i), member)
			if row.Away = rng.IntN(4) == 0; !row.Away {
				for _, name := range names {
					n, _, _ := unstructured.NestedInt64(member.Object, "status", name)
					want[name] += n
				}
			}
			rows = append(rows, row)
		}
		got, ok := interpret.Aggregate(template(9, 7), true, rows, 7)
		if reachable := slices.ContainsFunc(rows, func(r interpret.RowItem) bool { return !r.Away }); ok != reachable {
			t.Errorf("ok = %v with a reachable cluster: %v", ok, reachable)
		}
		for _, name := range names {
			if n, _ := got[name].(int64); ok && n != want[name] {
				t.Errorf("%s = %d, the clusters sum to %d", name, n, want[name])
			}
		}
	})
}

// A finished template never says so before every reachable cluster has finished.
func TestDoneMeansEveryReachableClusterIsDone(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand) {
		n := 1 + rng.Int64N(3)
		divided := rng.IntN(2) == 0
		rows := randomRows(rng, func() int64 { return n })
		want, some := true, false
		for _, r := range rows {
			if !r.Away {
				some = true
				want = want && r.Health == "Healthy" && !r.Stale
			}
		}
		tpl := template(n, 7)
		if divided {
			tpl = template(n*int64(len(rows)-countAway(rows)), 7)
		}
		st, ok := interpret.Aggregate(tpl, divided, rows, 7)
		if ok {
			tpl.Object["status"] = st
		}
		if got := rolledOut(t, tpl); got != (want && some) {
			t.Errorf("rollout status says %v, clusters are done: %v\n%s", got, want && some, asJSON(tpl.Object))
		}
	})
}

func countAway(rows []interpret.RowItem) int {
	n := 0
	for _, r := range rows {
		if r.Away {
			n++
		}
	}
	return n
}

// amounts that the object states are none below zero.
func amounts(t *testing.T, obj *unstructured.Unstructured) {
	n, each := interpret.Pods(obj)
	r := interpret.Requests(obj)
	all := []int64{n, r.CPU, r.Memory, r.Pods}
	for _, s := range append(each, interpret.Components(obj)...) {
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
		row := report("a", obj)
		interpret.Finished(obj)
		interpret.Dependencies(obj)
		interpret.Replicas(obj)
		interpret.OwnVolumes(obj)
		interpret.NeverEnds(obj)
		amounts(t, obj)
		for _, divided := range []bool{false, true} {
			first, ok := interpret.Aggregate(obj, divided, []interpret.RowItem{row}, 1)
			again, _ := interpret.Aggregate(obj, divided, []interpret.RowItem{row}, 1)
			if ok && asJSON(first) != asJSON(again) {
				t.Errorf("not deterministic: %s, %s", asJSON(first), asJSON(again))
			}
		}
		if asJSON(obj.Object) != before {
			t.Errorf("the object changed")
		}
	})
}
