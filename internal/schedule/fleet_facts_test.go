package schedule

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// fakeFacts are facts by functions; a nil one is NoFacts'.
type fakeFacts struct {
	NoFacts
	pods      func(c *Cluster) int64
	rating    func(c *Cluster, measure string) int64
	replicas  func(c *Cluster) (int64, bool)
	usage     func(c *Cluster) (others, own ResourceUsage)
	connected func(c *Cluster) bool
}

func (f fakeFacts) AssignedPods(c *Cluster) int64 {
	if f.pods == nil {
		return 0
	}
	return f.pods(c)
}

func (f fakeFacts) RatingOf(c *Cluster, measure string) int64 {
	if f.rating == nil {
		return 0
	}
	return f.rating(c, measure)
}

func (f fakeFacts) FreeReplicas(c *Cluster) (int64, bool) {
	if f.replicas == nil {
		return 0, false
	}
	return f.replicas(c)
}

func (f fakeFacts) UsageOf(c *Cluster) (others, own ResourceUsage) {
	if f.usage == nil {
		return nil, nil
	}
	return f.usage(c)
}

func (f fakeFacts) ConnectionOf(c *Cluster) Connection {
	if f.connected == nil || f.connected(c) {
		return Connected
	}
	return Disconnected
}

// countingFacts count what decisions read.
type countingFacts struct {
	NoFacts
	pods, ratings, replicas, usages, connections int
}

func (f *countingFacts) AssignedPods(*Cluster) int64 { f.pods++; return 0 }

func (f *countingFacts) RatingOf(*Cluster, string) int64 { f.ratings++; return 0 }

func (f *countingFacts) FreeReplicas(*Cluster) (int64, bool) { f.replicas++; return 1, true }

func (f *countingFacts) UsageOf(*Cluster) (others, own ResourceUsage) { f.usages++; return nil, nil }

func (f *countingFacts) ConnectionOf(*Cluster) Connection { f.connections++; return Connected }

// Ten of 1,000 clusters fit. A decision reads facts of at most these.
func TestFactsAreReadWhereTheyCount(t *testing.T) {
	fleet := bigFleet(1000)
	for i := range 10 {
		fleet[i*100].Labels = map[string]string{"env": "few"}
	}
	const few = "clusterAffinity: {labelSelector: {matchLabels: {env: few}}}"
	byCapacity := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated}
	for _, tc := range []struct {
		name, placement string
		division        v1alpha1.ReplicaScheduling
		avoids          bool
		want            countingFacts
	}{
		{"all that fit", "{" + few + "}", byCapacity, false, countingFacts{}},
		{"the connected ones of all", "{" + few + "}", byCapacity, true, countingFacts{connections: 10}},
		{"a copy for all", "{" + few + "}", v1alpha1.ReplicaScheduling{}, true, countingFacts{}},
		{"the best by default", "{" + few + ", maxClusters: 3}", v1alpha1.ReplicaScheduling{}, false, countingFacts{pods: 10}},
		{"the best connected ones", "{" + few + ", maxClusters: 3}", v1alpha1.ReplicaScheduling{}, true, countingFacts{pods: 10, connections: 3}},
		{"the best rated", "{" + few + ", maxClusters: 3, scores: [{name: ClusterScore, measure: price}]}", v1alpha1.ReplicaScheduling{}, false, countingFacts{ratings: 10}},
		{"the best with capacity", "{" + few + ", maxClusters: 3, scores: [{name: Steady}]}", byCapacity, false, countingFacts{replicas: 10}},
	} {
		facts := &countingFacts{}
		p := parsePlacement(t, tc.placement)
		p.ReplicaScheduling = tc.division
		in := Input{BundleUID: "b", Placement: p, Clusters: fleet, SkipExplanations: true, Now: now, Facts: facts, UseFreeCapacity: true, AvoidDisconnected: tc.avoids, Rows: map[string]atoll.RowSpec{}}
		if tc.division != (v1alpha1.ReplicaScheduling{}) {
			in.Workloads = []Workload{{Key: web.Key, Replicas: 10}}
		}
		DecidePlacement(in)
		if *facts != tc.want {
			t.Errorf("%s: read %+v, want %+v", tc.name, *facts, tc.want)
		}
	}
}
