package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// groupedRoom is the free capacity of a cluster with node groups. Each text is "CLASS | SIZE | LABELS", and a group
// without a class has only full nodes.
func groupedRoom(t testing.TB, unreported string, texts ...string) freecapacity.NodeClasses {
	t.Helper()
	var lines []string
	var groups []freecapacity.NodeGroup
	var positions []int32
	for _, text := range texts {
		parts := strings.Split(text, "|")
		labels := map[string]string{}
		for pair := range strings.FieldsSeq(parts[2]) {
			key, value, _ := strings.Cut(pair, "=")
			labels[key] = value
		}
		g, err := freecapacity.ParseGroup(strings.TrimSpace(parts[1]), labels)
		if err != nil {
			t.Fatal(err)
		}
		if groups = append(groups, g); strings.TrimSpace(parts[0]) != "" {
			lines, positions = append(lines, strings.TrimSpace(parts[0])), append(positions, int32(len(groups)))
		}
	}
	room := parseRoom(t, lines...).WithGroups(groups, positions, strings.Fields(unreported))
	if len(room.ListGroups()) != len(groups) {
		t.Fatalf("%d of %d groups are kept", len(room.ListGroups()), len(groups))
	}
	return room
}

// podsOf are the pods of a Deployment with this pod spec.
func podsOf(t testing.TB, replicas, spec string) []PodDemand {
	t.Helper()
	return UndividedPodsOf(contentOf(t, "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "+replicas+", template: {spec: "+spec+"}}}"))
}

const (
	gpuPod   = "{nodeSelector: {pool: gpu}, tolerations: [{key: gpu, operator: Exists}], containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}"
	cpuClass = "2 cpu=3000m memory=8192Mi pods=50 | 4 cpu=4000m memory=16384Mi pods=110 | kubernetes.io/arch=amd64 pool=cpu"
)

// Whether pods fit now, after a scale-up or never follows from free capacity and from the groups of nodes.
func TestJudgePodFit(t *testing.T) {
	freeGPU := "1 cpu=7000m pods=9 nvidia.com/gpu=4 taints=gpu=yes:NoSchedule | 2 cpu=8000m pods=110 nvidia.com/gpu=8 taints=gpu=yes:NoSchedule | kubernetes.io/arch=amd64 pool=gpu"
	fullGPU := "| 2 cpu=8000m pods=110 nvidia.com/gpu=8 taints=gpu=yes:NoSchedule | kubernetes.io/arch=amd64 pool=gpu"
	affinity := func(terms string) string {
		return "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}, containers: [{name: c}]}"
	}
	for name, tc := range map[string]struct {
		replicas, spec, unreported string
		room                       []string
		when                       FitTime
		reason                     string
	}{
		"nothing is required":        {"3", "{containers: [{name: c}]}", "", []string{cpuClass}, FitNow, ""},
		"selected nodes have room":   {"2", gpuPod, "", []string{cpuClass, freeGPU}, FitNow, ""},
		"some have room":             {"3", gpuPod, "", []string{cpuClass, freeGPU}, FitAfterScaleUp, "there is room for 2 of 3 pods now; the others fit after scale-up of nodes with pool=gpu"},
		"all are full":               {"1", gpuPod, "", []string{cpuClass, fullGPU}, FitAfterScaleUp, "there is room for 0 of 1 pod now; the others fit after scale-up of nodes with pool=gpu"},
		"no node is selected":        {"1", gpuPod, "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: no node has the labels that nodeSelector or the required node affinity asks for"},
		"a taint is not tolerated":   {"1", "{nodeSelector: {pool: gpu}, containers: [{name: c}]}", "", []string{cpuClass, freeGPU}, FitNever, "they fit on none of its nodes, even without other pods: nodes with pool=gpu have taints that the pods do not tolerate: gpu=yes:NoSchedule"},
		"a node is too small":        {"1", "{containers: [{name: c, resources: {requests: {cpu: 5}}}]}", "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: a pod requests 5 cpu, and the most that the nodes have is 4"},
		"a resource is missing":      {"1", "{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}", "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: a pod requests 1 nvidia.com/gpu, and the most that the nodes have is 0"},
		"overhead counts":            {"1", "{overhead: {cpu: 2}, containers: [{name: c, resources: {requests: {cpu: 2500m}}}]}", "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: a pod requests 4500m cpu, and the most that the nodes have is 4"},
		"affinity is met":            {"1", affinity("{matchExpressions: [{key: pool, operator: NotIn, values: [gpu]}, {key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}]}"), "", []string{cpuClass}, FitNow, ""},
		"one of two terms is met":    {"1", affinity("{matchExpressions: [{key: pool, operator: DoesNotExist}]}, {matchExpressions: [{key: pool, operator: Exists}]}"), "", []string{cpuClass}, FitNow, ""},
		"affinity is not met":        {"1", affinity("{matchExpressions: [{key: pool, operator: DoesNotExist}]}"), "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: no node has the labels that nodeSelector or the required node affinity asks for"},
		"an empty term matches none": {"1", affinity("{}"), "", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: no node has the labels that nodeSelector or the required node affinity asks for"},
		"a label that is left out":   {"1", "{nodeSelector: {team: a}, containers: [{name: c}]}", "team", []string{cpuClass}, FitNow, ""},
		"a domain that is left out":  {"1", "{nodeSelector: {example.com/rack: a, pool: gpu}, containers: [{name: c}]}", "example.com/*", []string{cpuClass}, FitNever, "they fit on none of its nodes, even without other pods: no node has the labels that nodeSelector or the required node affinity asks for"},
		"all others are left out":    {"1", affinity("{matchExpressions: [{key: example.com/a, operator: In, values: [b]}]}"), "*", []string{cpuClass}, FitNow, ""},
		"the name of a node":         {"1", affinity("{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}"), "", []string{cpuClass}, FitNow, ""},
		"a host":                     {"1", "{nodeSelector: {kubernetes.io/hostname: n1}, containers: [{name: c}]}", "", []string{cpuClass}, FitNow, ""},
		"what cannot be read":        {"1", affinity("{matchExpressions: [{key: pool, operator: Sometimes}]}"), "", []string{cpuClass}, FitNow, ""},
	} {
		got := JudgePodFit(groupedRoom(t, tc.unreported, tc.room...), podsOf(t, tc.replicas, tc.spec), true)
		if got.When != tc.when || got.Reason != tc.reason {
			t.Errorf("%s: %s, %q\nwant %s, %q", name, got.When, got.Reason, tc.when, tc.reason)
		}
	}
}

// An agent without groups of nodes leaves the answer open where pods do not fit now, and requirements of labels
// refuse nothing.
func TestUnknownGroupsRefuseNothing(t *testing.T) {
	room := parseRoom(t, "2 cpu=3000m memory=8192Mi pods=50")
	if got := JudgePodFit(room, podsOf(t, "2", "{nodeSelector: {pool: gpu}, containers: [{name: c}]}"), true); got.When != FitNow {
		t.Errorf("pods that select nodes: %+v", got)
	}
	if got := JudgePodFit(room, podsOf(t, "1", "{containers: [{name: c, resources: {requests: {cpu: 9}}}]}"), true); got.When != "" || got.Reason != "" {
		t.Errorf("pods that are too large: %+v", got)
	}
	if got := JudgePodFit(nil, nil, true); got.When != FitNow {
		t.Errorf("no pods: %+v", got)
	}
}

// The pods of several items share the free capacity, and the answer is that of the item that fits least.
func TestPodsOfItemsShareCapacity(t *testing.T) {
	room := groupedRoom(t, "", cpuClass)
	one := podsOf(t, "4", "{containers: [{name: c, resources: {requests: {cpu: 1}}}]}")
	two := podsOf(t, "3", "{containers: [{name: c, resources: {requests: {cpu: 1}}}]}")
	two[0].Key.Name = "two"
	if got := JudgePodFit(room, slices.Concat(one, two), true); got.When != FitAfterScaleUp || got.Item.Name != "two" || got.Reason != "there is room for 2 of 3 pods now; the others fit after scale-up of the nodes" {
		t.Errorf("both: %+v", got)
	}
	never := podsOf(t, "1", gpuPod)
	never[0].Key.Name = "never"
	if got := JudgePodFit(room, slices.Concat(never, one, two), false); got.When != FitNever || got.Item.Name != "never" {
		t.Errorf("with one that never fits: %+v", got)
	}
}

// Components of one object are judged by what each of them requires.
func TestComponentsAreJudgedOneByOne(t *testing.T) {
	ray := "{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {nodeSelector: {pool: cpu}, containers: [{name: c}]}}}, workerGroupSpecs: [{groupName: w, replicas: 2, template: {spec: " + gpuPod + "}}]}}"
	pods := UndividedPodsOf(contentOf(t, ray))
	if n := CountUndividedPods(pods); len(pods) != 2 || n != 3 {
		t.Fatalf("%d pods in %d sets", n, len(pods))
	}
	gpu := "1 pods=9 nvidia.com/gpu=4 taints=gpu=yes:NoSchedule | 1 pods=110 nvidia.com/gpu=8 taints=gpu=yes:NoSchedule | kubernetes.io/arch=amd64 pool=gpu"
	if got := JudgePodFit(groupedRoom(t, "", cpuClass, gpu), pods, false); got.When != FitNow {
		t.Errorf("with both kinds of nodes: %+v", got)
	}
	if got := JudgePodFit(groupedRoom(t, "", gpu), pods, false); got.When != FitNever {
		t.Errorf("without nodes for the head: %+v", got)
	}
}

// fitInput is an Input over clusters where a Deployment's pods fit as given.
func fitInput(t testing.TB, placement string, fits map[string]FitTime, rows ...string) Input {
	p := parsePlacement(t, placement)
	in := Input{BundleUID: "b", Placement: p, Now: now, Rows: map[string]atoll.RowSpec{}, SkipExplanations: true, PodFitOf: func(c *Cluster, _ bool) PodFit {
		return PodFit{When: fits[c.Name], Reason: "as given"}
	}}
	for _, name := range slices.Sorted(maps.Keys(fits)) {
		c := newCluster(name)
		if in.Clusters = append(in.Clusters, c); slices.Contains(rows, name) {
			in.Rows[name] = activeRow(c, p)
		}
	}
	return in
}

func placedClusters(d Decision) string {
	var out []string
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() {
			out = append(out, v.Cluster)
		}
	}
	return strings.Join(out, " ")
}

// A placement that limits its clusters takes those where pods fit now before those where they fit after a
// scale-up, and those before others. It refuses none, and rows stay.
func TestChoicePrefersClustersWherePodsFit(t *testing.T) {
	fleet := map[string]FitTime{"a": FitNever, "b": FitAfterScaleUp, "c": FitNow, "d": "", "e": FitNever, "f": FitAfterScaleUp}
	for _, tc := range []struct{ placement, want string }{
		{"{maxClusters: 2}", "c d"},
		{"{maxClusters: 4}", "b c d f"},
		{"{maxClusters: 6}", "a b c d e f"},
		{"{}", "a b c d e f"},
	} {
		d := DecidePlacement(fitInput(t, tc.placement, fleet))
		if got := placedClusters(d); got != tc.want || d.NoFit {
			t.Errorf("%s: placed in %q, want %q", tc.placement, got, tc.want)
		}
	}
	if got := placedClusters(DecidePlacement(fitInput(t, "{maxClusters: 1}", fleet, "a"))); got != "a" {
		t.Errorf("a row where pods never fit goes to %q", got)
	}
	if got := placedClusters(DecidePlacement(fitInput(t, "{maxClusters: 1, clusterAffinity: {clusterNames: [a, e]}}", fleet))); got != "a" && got != "e" {
		t.Errorf("where pods fit nowhere, it is placed in %q", got)
	}
}

// A decision asks about the clusters that it chooses, and about others only where pods do not fit in one of those.
func TestFitIsReadWhereItCounts(t *testing.T) {
	for _, tc := range []struct {
		fits FitTime
		most int
	}{{FitNow, 5}, {"", 5}, {FitNever, 1010}} {
		asked := 0
		p := parsePlacement(t, "{maxClusters: 5}")
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: spreadFleet(1000), Now: now, SkipExplanations: true, PodFitOf: func(*Cluster, bool) PodFit {
			asked++
			return PodFit{When: tc.fits}
		}})
		if asked > tc.most || d.ChoseUnfit != (tc.fits == FitNever) {
			t.Errorf("%q: asked %d times, unfit: %t", tc.fits, asked, d.ChoseUnfit)
		}
	}
}

// Explanations have the answer for each new cluster, and why others came first.
func TestExplanationsHaveThePodFit(t *testing.T) {
	in := fitInput(t, "{maxClusters: 1}", map[string]FitTime{"a": FitNow, "b": FitNever})
	in.SkipExplanations = false
	d := DecidePlacement(in)
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomePlaced || v.PodFit().When != FitNow {
		t.Errorf("a: %+v", v)
	}
	if v, _ := d.FindVerdict("b"); v.Filter != FilterPodFit || v.ReasonCode() != atoll.ReasonPodsDoNotFit || v.Reason != "clusters where the pods fit sooner come first: as given" {
		t.Errorf("b: %s %s %q", v.Filter, v.ReasonCode(), v.Reason)
	}
	in = fitInput(t, "{}", map[string]FitTime{"a": FitNever, "b": FitNow}, "b")
	in.SkipExplanations = false
	d = DecidePlacement(in)
	if a, _ := d.FindVerdict("a"); a.Outcome != OutcomePlaced || a.PodFit().When != FitNever {
		t.Errorf("a of all: %+v", a)
	}
	if b, _ := d.FindVerdict("b"); b.PodFit().When != "" {
		t.Errorf("a row is judged: %+v", b.PodFit())
	}
}

// Divided replicas go only where the nodes admit them, and a shortage has the reason.
func TestDivisionHonoursNodeRequirements(t *testing.T) {
	content := contentOf(t, "/{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 9, template: {spec: {nodeSelector: {pool: gpu}, containers: [{name: c}]}}}}")
	in := inputFor(t, parsePlacement(t, "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}"), content, nil, newCluster("a"), newCluster("b"))
	gpuClass := "1 pods=5 | 1 pods=110 | pool=gpu"
	for _, tc := range []struct {
		a, b, shares, fit string
	}{
		{cpuClass, "1 pods=20 | 1 pods=110 | pool=gpu", "a=0 b=9", ""},
		{cpuClass, gpuClass, "a=0 b=5", "they fit after scale-up of the nodes in b"},
		{cpuClass, cpuClass, "a=0 b=0", "they fit on no node that the clusters have; in a, no node has the labels that nodeSelector or the required node affinity asks for"},
	} {
		d := DecidePlacement(in).WithFreeCapacity(knownRoom{"a": groupedRoom(t, "", tc.a), "b": groupedRoom(t, "", tc.b)}.lookUp)
		assigned, fit := d.AssignReplicas(nil), ""
		if len(assigned.Shortages) > 0 {
			fit = assigned.Shortages[0].Fit
		}
		if got := formatShares(d, in.Workloads[0]); got != tc.shares || fit != tc.fit {
			t.Errorf("%s and %s: %s, %q; want %s, %q", tc.a, tc.b, got, fit, tc.shares, tc.fit)
		}
	}
	if fit := JudgeShortage(&in.Workloads[0], func(yield func(string, freecapacity.NodeClasses) bool) {
		_ = yield("a", groupedRoom(t, "", cpuClass)) && yield("b", nil)
	}); fit != "" {
		t.Errorf("a cluster of unknown capacity: %q", fit)
	}
}

// Explanations have the scores of clusters, without what they have less because pods do not fit.
func TestExplanationsHaveScoresWithoutPenalty(t *testing.T) {
	in := fitInput(t, "{maxClusters: 1}", map[string]FitTime{"a": FitNever, "b": FitNever, "c": FitNever})
	in.SkipExplanations = false
	d, refused := DecidePlacement(in), 0
	for _, v := range d.Verdicts {
		if v.Outcome == OutcomeOut {
			if refused++; v.Filter != FilterMost || v.Score < 0 || strings.Contains(v.Reason, " -") {
				t.Errorf("%s: %s %d %q", v.Cluster, v.Filter, v.Score, v.Reason)
			}
		}
	}
	if refused != 2 {
		t.Errorf("%d are refused", refused)
	}
	in = fitInput(t, "{maxClusters: 1}", map[string]FitTime{"a": FitNever, "b": FitNever}, "a")
	in.SkipExplanations = false
	if v, _ := DecidePlacement(in).FindVerdict("b"); !strings.Contains(v.Reason, "as a does, which runs it already and stays") {
		t.Errorf("behind a row: %q", v.Reason)
	}
}

// Texts name labels of nodes that the pods require, and no others: owners of applications read the texts, and may not read Clusters.
func TestReasonsNameNoOtherLabelsOfNodes(t *testing.T) {
	secret := "1 cpu=500m pods=9 | 1 cpu=4000m pods=110 | pool=cpu example.com/tenant=rival"
	gpu := "| 1 cpu=4000m pods=110 taints=gpu=yes:NoSchedule | pool=gpu example.com/tenant=other"
	for name, tc := range map[string]struct{ spec, reason string }{
		"scale-up":      {"{containers: [{name: c, resources: {requests: {cpu: 3}}}]}", "there is room for 0 of 1 pod now; the others fit after scale-up of some nodes"},
		"a label":       {"{nodeSelector: {pool: cpu}, containers: [{name: c, resources: {requests: {cpu: 3}}}]}", "there is room for 0 of 1 pod now; the others fit after scale-up of nodes with pool=cpu"},
		"an expression": {"{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: NotIn, values: [gpu]}]}]}}}, containers: [{name: c, resources: {requests: {cpu: 3}}}]}", "there is room for 0 of 1 pod now; the others fit after scale-up of nodes with pool=cpu"},
		"too large":     {"{containers: [{name: c, resources: {requests: {cpu: 9}}}]}", "they fit on none of its nodes, even without other pods: a pod requests 9 cpu, and the most that some nodes have is 4"},
		"taints":        {"{nodeSelector: {pool: gpu}, containers: [{name: c}]}", "they fit on none of its nodes, even without other pods: nodes with pool=gpu have taints that the pods do not tolerate: gpu=yes:NoSchedule"},
	} {
		if got := JudgePodFit(groupedRoom(t, "", secret, gpu), podsOf(t, "1", tc.spec), true); got.Reason != tc.reason {
			t.Errorf("%s: %q\nwant %q", name, got.Reason, tc.reason)
		}
	}
}

// The last ones of very many sets of pods count by their number, so that a decision over the fleet has a bound.
func TestSetsOfPodsHaveABound(t *testing.T) {
	var objects []string
	for range 40 {
		objects = append(objects, "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}")
	}
	pods := UndividedPodsOf(contentOf(t, objects...))
	if n := CountUndividedPods(pods); len(pods) != maxPodDemands+1 || n != 80 || pods[maxPodDemands].Count != 16 {
		t.Errorf("%d pods in %d sets", n, len(pods))
	}
	if got := JudgePodFit(groupedRoom(t, "", "1 cpu=64000m pods=80 | 1 cpu=64000m pods=110 | pool=cpu"), pods, false); got.When != FitNow {
		t.Errorf("with room for all: %+v", got)
	}
	if got := JudgePodFit(groupedRoom(t, "", "1 cpu=64000m pods=79 | 1 cpu=64000m pods=110 | pool=cpu"), pods, false); got.When != FitAfterScaleUp {
		t.Errorf("with room for all but one: %+v", got)
	}
}

// largeRoom is 12 groups of nodes, of which the last has nodes that are selected, without room for all pods.
func largeRoom() (out []string) {
	for i := range 11 {
		out = append(out, fmt.Sprintf("%d cpu=3000m memory=8192Mi pods=50 | 9 cpu=4000m memory=16384Mi pods=110 | kubernetes.io/arch=amd64 pool=p%d topology.kubernetes.io/zone=z%d", i+1, i, i%3))
	}
	return append(out, "3 cpu=2000m memory=4096Mi pods=20 | 5 cpu=8000m memory=16384Mi pods=110 | kubernetes.io/arch=amd64 pool=gpu topology.kubernetes.io/zone=z0")
}

// The decision over 10,000 clusters with node selectors. In the case "groups", each cluster has 12 groups in memory of its own, and
// the Bundle has 8 sets of pods.
func BenchmarkNodeSelectors10000(b *testing.B) {
	room := groupedRoom(b, "example.com/*", cpuClass, "3 cpu=2000m memory=4096Mi pods=20 | 5 cpu=8000m memory=16384Mi pods=110 | kubernetes.io/arch=amd64 pool=gpu")
	pods := podsOf(b, "2", "{nodeSelector: {pool: gpu, kubernetes.io/arch: amd64}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}")
	none := podsOf(b, "2", "{nodeSelector: {pool: none, kubernetes.io/arch: amd64}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}")
	rooms := map[string]freecapacity.NodeClasses{}
	for name, demand := range map[string][]PodDemand{"fits": pods, "never": none, "groups": slices.Repeat(pods, 8)} {
		in, _ := decisionInput(b, "{maxClusters: 50}", 10_000, 0)
		in.PodFitOf = func(c *Cluster, _ bool) PodFit {
			if name == "groups" {
				return JudgePodFit(rooms[c.Name], demand, false)
			}
			return JudgePodFit(room, demand, false)
		}
		for i := range in.Clusters {
			if name == "groups" {
				rooms[in.Clusters[i].Name] = groupedRoom(b, "example.com/*", largeRoom()...)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				DecidePlacement(in)
			}
		})
	}
}
