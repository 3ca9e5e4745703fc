package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// groupOf returns a group with other members in clusters, each written "cluster=name".
func groupOf(apart bool, places ...string) WorkloadGroup {
	names := map[string]string{}
	g := WorkloadGroup{Key: "tier", Value: "db", KeepsApart: apart, Others: map[string]bool{}, NameAt: func(c string) MemberName { return MemberName{Text: names[c]} }}
	for _, p := range places {
		cluster, name, _ := strings.Cut(p, "=")
		g.Others[cluster], names[cluster] = true, name
	}
	return g
}

// describeVerdicts returns the clusters with their outcomes, and the filters of those that are refused.
func describeVerdicts(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		s := v.Cluster + " " + string(v.Outcome)
		if v.Filter != "" {
			s += " by " + v.Filter
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// workloadAffinity refuses new clusters alone, and only where other members of a group are, or are not.
func TestWorkloadAffinity(t *testing.T) {
	active := func(phase atoll.RowPhase) map[string]atoll.RowSpec {
		return map[string]atoll.RowSpec{"a": {UID: "uid-a", Phase: phase}}
	}
	for name, tc := range map[string]struct {
		groups []WorkloadGroup
		rows   map[string]atoll.RowSpec
		want   string
		noFit  bool
	}{
		"no other member, together":    {groups: []WorkloadGroup{groupOf(false)}, want: "a Placed, b Placed, c Placed"},
		"no other member, apart":       {groups: []WorkloadGroup{groupOf(true)}, want: "a Placed, b Placed, c Placed"},
		"together":                     {groups: []WorkloadGroup{groupOf(false, "b=x")}, want: "a Out by workloadAffinity.affinity, b Placed, c Out by workloadAffinity.affinity"},
		"apart":                        {groups: []WorkloadGroup{groupOf(true, "b=x")}, want: "a Placed, b Out by workloadAffinity.antiAffinity, c Placed"},
		"the group is elsewhere":       {groups: []WorkloadGroup{groupOf(false, "z=x")}, want: "a Out by workloadAffinity.affinity, b Out by workloadAffinity.affinity, c Out by workloadAffinity.affinity", noFit: true},
		"two groups together":          {groups: []WorkloadGroup{groupOf(false, "a=x", "b=x"), groupOf(false, "b=y", "c=y")}, want: "a Out by workloadAffinity.affinity, b Placed, c Out by workloadAffinity.affinity"},
		"together and apart":           {groups: []WorkloadGroup{groupOf(false, "a=x", "b=x"), groupOf(true, "b=y")}, want: "a Placed, b Out by workloadAffinity.antiAffinity, c Out by workloadAffinity.affinity"},
		"what runs stays, apart":       {groups: []WorkloadGroup{groupOf(true, "a=x")}, rows: active(atoll.RowActive), want: "a Placed, b Placed, c Placed"},
		"what runs stays, together":    {groups: []WorkloadGroup{groupOf(false, "c=x")}, rows: active(atoll.RowActive), want: "a Placed, b Out by workloadAffinity.affinity, c Placed"},
		"a move that waits keeps on":   {groups: []WorkloadGroup{groupOf(false, "c=x")}, rows: active(atoll.RowPending), want: "a Placed, b Out by workloadAffinity.affinity, c Placed"},
		"what is being removed may":    {groups: []WorkloadGroup{groupOf(false, "c=x")}, rows: active(atoll.RowRemoving), want: "a Placed, b Out by workloadAffinity.affinity, c Placed"},
		"the row of a former cluster":  {groups: []WorkloadGroup{groupOf(true, "a=x")}, rows: map[string]atoll.RowSpec{"a": {UID: "old", Phase: atoll.RowActive}}, want: "a Out by workloadAffinity.antiAffinity, b Placed, c Placed"},
		"nothing is left for it apart": {groups: []WorkloadGroup{groupOf(true, "a=x", "b=y", "c=z")}, want: "a Out by workloadAffinity.antiAffinity, b Out by workloadAffinity.antiAffinity, c Out by workloadAffinity.antiAffinity", noFit: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{BundleUID: "web", Rows: tc.rows, WorkloadGroups: &WorkloadGroups{List: tc.groups}}
			for _, n := range []string{"a", "b", "c"} {
				in.Clusters = append(in.Clusters, Cluster{ClusterView: atoll.ClusterView{Name: n}, UID: "uid-" + n, Accepted: true})
			}
			d := DecidePlacement(in)
			if got := describeVerdicts(d); got != tc.want || d.NoFit != tc.noFit {
				t.Errorf("verdicts: %s, no fit %v\nwant %s, %v", got, d.NoFit, tc.want, tc.noFit)
			}
			in.SkipExplanations = true
			short := DecidePlacement(in)
			if short.NoFit != d.NoFit || (short.GroupRefusal == nil) != (d.GroupRefusal == nil) || d.GroupRefusal != nil && short.GroupRefusal.String() != d.GroupRefusal.String() {
				t.Errorf("without explanations: no fit %v, refused %v; with them %v, %v", short.NoFit, short.GroupRefusal, d.NoFit, d.GroupRefusal)
			}
			for _, v := range short.Verdicts {
				if with, _ := d.FindVerdict(v.Cluster); with.Outcome != v.Outcome {
					t.Errorf("cluster %s: %s without explanations, %s with", v.Cluster, v.Outcome, with.Outcome)
				}
			}
		})
	}
}

// A refusal names the other application and its cluster.
func TestWorkloadAffinityNamesTheOther(t *testing.T) {
	in := Input{BundleUID: "web", Clusters: []Cluster{{ClusterView: atoll.ClusterView{Name: "a"}, Accepted: true}}}
	for _, tc := range []struct {
		group         WorkloadGroup
		verdict, text string
		reason        atoll.Reason
	}{
		{groupOf(true, "a=Deployment shop/x"), "kept apart from Deployment shop/x, which runs here (group tier=db)", "kept apart from Deployment shop/x, which runs in a (group tier=db)", atoll.ReasonKeptApart},
		{groupOf(false, "q=Deployment shop/x"), "kept together with Deployment shop/x, which runs in q (group tier=db)", "kept together with Deployment shop/x, which runs in q (group tier=db)", atoll.ReasonGroupElsewhere},
	} {
		in.WorkloadGroups = &WorkloadGroups{List: []WorkloadGroup{tc.group}}
		d := DecidePlacement(in)
		if v := d.Verdicts[0]; v.Reason != tc.verdict || v.ReasonCode() != tc.reason || d.GroupRefusal.String() != tc.text || d.GroupRefusal.Reason() != tc.reason {
			t.Errorf("verdict %s: %q; in all %s: %q", v.ReasonCode(), v.Reason, d.GroupRefusal.Reason(), d.GroupRefusal)
		}
	}
	d := Decision{GroupRefusal: &GroupRefusal{Clusters: 3, cluster: "a", group: &in.WorkloadGroups.List[0]}}
	if d.GroupRefusal.group.KeepsApart = true; !strings.HasSuffix(d.GroupRefusal.String(), ", and from others in 2 more") {
		t.Errorf("several clusters: %s", d.GroupRefusal)
	}
}

// A group of clusterAffinities in which workloadAffinity leaves no cluster is not used.
func TestWorkloadAffinityInGroupsOfClusters(t *testing.T) {
	in := Input{
		BundleUID: "web", SkipExplanations: true, WorkloadGroups: &WorkloadGroups{List: []WorkloadGroup{groupOf(true, "a=x")}},
		Clusters: []Cluster{{ClusterView: atoll.ClusterView{Name: "a"}, Accepted: true}, {ClusterView: atoll.ClusterView{Name: "b"}, Accepted: true}},
		Placement: v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
			{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
		}},
	}
	if d := DecidePlacement(in); d.Group != "cloud" || d.GroupRefusal == nil || !d.WaitsForGroup(false) {
		t.Errorf("group %s is used, refused: %v", d.Group, d.GroupRefusal)
	}
	in.SkipExplanations = false
	d := DecidePlacement(in)
	if len(d.Groups) != 2 || d.Groups[0].Fit != 0 || !slices.Contains(d.Groups[0].Refused, RefusalCount{FilterApart, 1}) {
		t.Errorf("groups are explained as %+v", d.Groups)
	}
}

// The labels of dependencies do not count, and a Secret is not named.
func TestLabelsOfTemplates(t *testing.T) {
	item := func(kind, name, labels string) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, Object: []byte(`{"metadata":{"labels":` + labels + `}}`)}
	}
	along := item("ConfigMap", "along", `{"tier":"other"}`)
	along.Dependency = true
	content := &atoll.Content{Items: []atoll.Item{along, item("Secret", "s", `{"tier":"db"}`), item("Service", "x", `{"tier":"db"}`), item("Deployment", "y", `{"tier":"web","app":"y"}`), item("Deployment", "z", `{}`)}}
	labels, err := LabelsOfTemplates(content)
	if err != nil || !slices.Equal(labels.ValuesOf("tier"), []string{"db", "web"}) || labels.Name.Text != "Deployment shop/y" {
		t.Errorf("labels %v, name %q, %v", labels.ValuesOf("tier"), labels.Name.Text, err)
	}
	content.Items = content.Items[:2]
	if labels, _ = LabelsOfTemplates(content); labels.Name.Text != "" || !slices.Equal(labels.ValuesOf("tier"), []string{"db"}) {
		t.Errorf("a Secret alone: labels %v, name %q", labels.ValuesOf("tier"), labels.Name.Text)
	}
	terms := WorkloadTermsOf(&v1alpha1.WorkloadAffinity{Affinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "tier"}, AntiAffinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "none"}}, labels)
	if got := terms[0].Sentence() + "; " + terms[1].Sentence(); got != "workloadAffinity.affinity keeps it together with the other members of tier=db; workloadAffinity.antiAffinity does nothing: no template of the Bundle has the label none" {
		t.Error(got)
	}
	content.Items[0].Dependency, content.Items[0].Object = false, []byte(`{`)
	if _, err := LabelsOfTemplates(content); err == nil {
		t.Error("an object that cannot be read has no labels")
	}
}

// TestKeepsGroup: a group does not stay in a cluster that all members are to leave.
func TestKeepsGroup(t *testing.T) {
	for name, change := range map[string]func(*Cluster){
		"deleted": func(c *Cluster) { c.Deleting = true },
		"removed": func(c *Cluster) { c.Removal = v1alpha1.ClusterOrphan },
		"drained": func(c *Cluster) { c.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintDrain, Effect: "NoExecute"}} },
	} {
		c := Cluster{}
		if !KeepsGroup(&c) {
			t.Error("a group does not stay in a plain cluster")
		}
		if change(&c); KeepsGroup(&c) {
			t.Errorf("a group stays in a cluster that is %s", name)
		}
	}
}

// Random Bundles in random groups, decided one after the other: no two members that are kept apart share a cluster, each
// member that is kept together is where its group was, and no row is lost.
func TestRandomWorkloadGroups(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rnd.IntN(8)
		var clusters []Cluster
		for i := range n {
			clusters = append(clusters, Cluster{ClusterView: atoll.ClusterView{Name: fmt.Sprint("c", i)}, UID: fmt.Sprint("u", i), Accepted: true})
		}
		rows := map[string]map[string]atoll.RowSpec{}
		for range 40 {
			uid := fmt.Sprint("b", rnd.IntN(6))
			apart := uid < "b3"
			group := WorkloadGroup{KeepsApart: apart, Others: map[string]bool{}, NameAt: func(string) MemberName { return MemberName{Text: "other"} }}
			for other, has := range rows {
				if other != uid && other < "b3" == apart {
					for c := range has {
						group.Others[c] = true
					}
				}
			}
			in := Input{
				BundleUID: uid, Clusters: clusters, Rows: rows[uid], WorkloadGroups: &WorkloadGroups{List: []WorkloadGroup{group}}, SkipExplanations: rnd.IntN(2) == 0,
				Placement: v1alpha1.PlacementSpec{MaxClusters: int32(rnd.IntN(3))},
			}
			d := DecidePlacement(in)
			if rows[uid] == nil {
				rows[uid] = map[string]atoll.RowSpec{}
			}
			for _, v := range d.Verdicts {
				_, had := rows[uid][v.Cluster]
				switch {
				case had && in.Placement.MaxClusters == 0 && !v.IsHolder():
					t.Fatalf("seed %d: %s loses %s", seed, uid, v.Cluster)
				case !had && v.IsHolder() && apart == group.Others[v.Cluster] && len(group.Others) > 0:
					t.Fatalf("seed %d: %s is placed in %s, others are in %v", seed, uid, v.Cluster, group.Others)
				case v.IsHolder():
					rows[uid][v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint}
				}
			}
			if rnd.IntN(10) == 0 {
				delete(rows, uid)
			}
		}
	}
}
