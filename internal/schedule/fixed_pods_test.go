package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// The requests of a Bundle in each cluster: stated replicas, or 1; divided items count by the
// rows' assigned replicas.
func TestFixedPods(t *testing.T) {
	item := func(group, kind, spec string, divided bool) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: "n", Name: kind}, Object: []byte(`{"spec":{` + spec + `}}`), Divided: divided}
	}
	for _, tc := range []struct {
		name  string
		items []atoll.Item
		want  int64
	}{
		{"nothing", nil, 0},
		{"what runs no pods", []atoll.Item{item("", "ConfigMap", `"replicas":7`, false)}, 0},
		{"replicas", []atoll.Item{item("apps", "Deployment", `"replicas":7`, false)}, 7},
		{"replicas by default", []atoll.Item{item("apps", "StatefulSet", ``, false)}, 1},
		{"scaled to nothing", []atoll.Item{item("apps", "Deployment", `"replicas":0`, false)}, 0},
		{"a Job", []atoll.Item{item("batch", "Job", `"parallelism":4`, false)}, 4},
		{"a Pod", []atoll.Item{item("", "Pod", ``, false)}, 1},
		{"several", []atoll.Item{item("apps", "Deployment", `"replicas":7`, false), item("", "ReplicationController", `"replicas":2`, false)}, 9},
		{"divided", []atoll.Item{item("apps", "Deployment", `"replicas":7`, true), item("", "Pod", ``, false)}, 1},
		{"malformed", []atoll.Item{item("apps", "Deployment", `"replicas":"many"`, false), item("apps", "ReplicaSet", `"replicas":-3`, false)}, 1},
		{"no end of them", []atoll.Item{item("apps", "Deployment", `"replicas":9223372036854775807`, false), item("apps", "ReplicaSet", `"replicas":9223372036854775807`, false)}, 2 * MaxWeight},
		{"pods of many workers", []atoll.Item{item("leaderworkerset.x-k8s.io", "LeaderWorkerSet", `"replicas":4294967296,"leaderWorkerTemplate":{"size":4294967297}`, false)}, MaxWeight + 1<<32},
		{"shards of many", []atoll.Item{item("monitoring.coreos.com", "Prometheus", `"replicas":4294967296,"shards":4294967296`, false)}, MaxWeight},
	} {
		if got := CountUndividedPods(UndividedPodsOf(&atoll.Content{Items: tc.items})); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// One more cluster, however empty, moves nothing that runs, and takes the place of at
// most one cluster of a new choice.
func TestOneMoreClusterMovesNoOtherBundle(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for range 300 {
		w := newWorld()
		n, most := 4+r.IntN(12), 1+r.IntN(4)
		for i := range n {
			name := fmt.Sprint("c", i)
			w.clusters[name], w.load[name] = newCluster(name, withPods(50+r.Int64N(500), 1)), r.Int64N(600)
		}
		p := parsePlacement(t, fmt.Sprintf("{maxClusters: %d}", most))
		before := DecidePlacement(w.buildInput(p))
		scores := map[string]int64{}
		for _, v := range before.Verdicts {
			scores[v.Cluster] = v.Score
		}
		with := newWorld()
		with.load, with.clusters = w.load, map[string]Cluster{"new": newCluster("new", withPods(1000, 1))}
		for name, c := range w.clusters {
			with.clusters[name] = c
		}
		gone := 0
		for _, v := range DecidePlacement(with.buildInput(p)).Verdicts {
			was, _ := before.FindVerdict(v.Cluster)
			if v.Cluster != "new" && v.Score != scores[v.Cluster] {
				t.Errorf("%s scored %d, and scores %d since there is one more", v.Cluster, scores[v.Cluster], v.Score)
			}
			if was.Outcome == OutcomePlaced && v.Outcome != OutcomePlaced {
				gone++
			} else if v.Outcome == OutcomePlaced && was.Outcome != OutcomePlaced && v.Cluster != "new" {
				t.Errorf("%s is chosen since there is one more", v.Cluster)
			}
		}
		if gone > 1 {
			t.Errorf("%d give way to one", gone)
		}
		with.rows = w.rows
		w.decideAndApply(p) // it runs now
		for _, v := range DecidePlacement(with.buildInput(p)).Verdicts {
			if _, runs := w.rows[v.Cluster]; runs != (v.Outcome == OutcomePlaced) {
				t.Errorf("%s: %s, although it runs: %t", v.Cluster, v.Outcome, runs)
			}
		}
	}
}
