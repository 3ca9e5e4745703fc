package fleetlist

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var began = metav1.NewTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))

func newCondition(kind string, status metav1.ConditionStatus, reason atoll.Reason) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: string(reason), Message: string(reason) + " message", LastTransitionTime: began}
}

func newCluster(name string, conditions ...metav1.Condition) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: began, Labels: map[string]string{"env": "prod"}},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Region: "eu-west"},
		Status:     v1alpha1.ClusterStatus{Conditions: conditions, KubernetesVersion: "v1.36.3"},
	}
}

var readyCondition = newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentConnected")

func readyCluster(name string) *v1alpha1.Cluster { return newCluster(name, readyCondition) }

func TestStatesOfClusters(t *testing.T) {
	unready := newCondition(v1alpha1.ClusterReady, metav1.ConditionFalse, "MemberNotReady")
	removed := newCluster("a", readyCondition, newCondition(v1alpha1.ClusterRemoving, metav1.ConditionTrue, "Leaving"))
	removed.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}
	removedAtOnce := newCluster("a", readyCondition)
	removedAtOnce.Spec.Removal = removed.Spec.Removal
	joining := newCluster("a", newCondition(v1alpha1.ClusterAccepted, metav1.ConditionFalse, "WaitsForAdministrator"), unready)
	joining.Spec.Accepted = false
	for name, c := range map[string]struct {
		cluster *v1alpha1.Cluster
		want    State
		reason  string
	}{
		"ready":                         {readyCluster("a"), Ready, "AgentConnected"},
		"not ready":                     {newCluster("a", unready), NotReady, "MemberNotReady"},
		"disconnected":                  {newCluster("a", newCondition(v1alpha1.ClusterReady, metav1.ConditionUnknown, "StreamLost")), Away, "StreamLost"},
		"not determined":                {newCluster("a", newCondition(v1alpha1.ClusterReady, metav1.ConditionUnknown, atoll.ReasonNotDetermined)), Unknown, "NotDetermined"},
		"no condition":                  {newCluster("a"), Unknown, ""},
		"removed":                       {removed, Removing, "Leaving"},
		"removed, without its progress": {removedAtOnce, Removing, "AgentConnected"},
		"not accepted":                  {joining, Joining, "WaitsForAdministrator"},
		"new":                           {&v1alpha1.Cluster{}, Joining, ""},
	} {
		row := NewRow(c.cluster, nil)
		if row.State != c.want || row.stateReason() != c.reason {
			t.Errorf("%s: %s by %q, want %s by %q", name, row.State, row.stateReason(), c.want, c.reason)
		}
	}
}

// The clusters that the console lists as waits are those with a reason whose actor is a person.
func TestClustersThatWaitForPersons(t *testing.T) {
	personal, machine := atoll.Reason(""), atoll.Reason("")
	for _, info := range atoll.Reasons {
		switch atoll.ActorOf(info.Reason) {
		case atoll.ActorHub:
			personal = info.Reason
		case atoll.ActorAgent:
			machine = info.Reason
		}
	}
	unready := func(reason atoll.Reason) metav1.Condition {
		return newCondition(v1alpha1.ClusterReady, metav1.ConditionFalse, reason)
	}
	drain := func(status metav1.ConditionStatus, reason atoll.Reason) metav1.Condition {
		return newCondition(v1alpha1.ClusterDraining, status, reason)
	}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       bool
	}{
		"for a person":               {[]metav1.Condition{unready(personal)}, true},
		"for the agent":              {[]metav1.Condition{unready(machine)}, false},
		"ready":                      {[]metav1.Condition{newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, personal)}, false},
		"a drain for a person":       {[]metav1.Condition{readyCondition, drain(metav1.ConditionTrue, personal)}, true},
		"a drain for the agent":      {[]metav1.Condition{readyCondition, drain(metav1.ConditionTrue, machine)}, false},
		"a drain that is over":       {[]metav1.Condition{readyCondition, drain(metav1.ConditionFalse, personal)}, false},
		"a reason that is not known": {[]metav1.Condition{unready("Other")}, false},
	} {
		row := NewRow(newCluster("a", c.conditions...), nil)
		if got := row.WaitsForPerson(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		f := mustFilter(t, FilterInput{Waiting: true})
		if f.Matches(&row) != c.want {
			t.Errorf("%s: the filter differs", name)
		}
	}
}

func mustFilter(t testing.TB, in FilterInput) Filter {
	t.Helper()
	f, err := NewFilter(in)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustProperty(t testing.TB, name string) *Property {
	t.Helper()
	p, err := FindProperty(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFiltersFindWordsAndFields(t *testing.T) {
	c := newCluster("Oslo-1", readyCondition)
	c.Labels["app.kubernetes.io/part"] = "Edge"
	c.Spec.Taints = []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoExecute}}
	row := NewRow(c, []string{"blue", "all"})
	for _, text := range []string{
		"", "oslo", "OSLO agent", "status:ready", "status:away,ready", "label:env", "label:env=prod", "LABEL:ENV=PROD", "label:env=p*", "label:en*", "region:e*", "region:eu-west", "-rome", "-status:away",
		`name:"oslo-1"`, "env=prod", "nv=pr", "edge", "taint:maintenance", "taint:gpu=a100:NoExecute", "taint:gpu", "set:blue", "set:bl*", "version:v1.36*", "1.36.3", "reason:agentconnected", "-",
		`"oslo-1"`, "zone:", `zone:""`, "provider:x,",
	} {
		if f := mustFilter(t, FilterInput{Text: text}); !f.Matches(&row) {
			t.Errorf("%q does not find the cluster", text)
		}
	}
	for _, text := range []string{"rome", "status:away", "label:en", "label:env=pro", "-oslo", "nofield:x", "region:us", "region:eu", "oslo rome", "taint:main", "set:blu", "env=x", "x=prod", "-set:*", "zone:a", "label:x*"} {
		if f := mustFilter(t, FilterInput{Text: text}); f.Matches(&row) {
			t.Errorf("%q finds the cluster", text)
		}
	}
	if n := len(parseTerms(strings.Repeat("a ", 100))); n != maxTerms {
		t.Errorf("%d terms count, want %d", n, maxTerms)
	}
}

func TestFiltersOfOtherKinds(t *testing.T) {
	row := NewRow(readyCluster("oslo"), []string{"blue"})
	region, set := mustProperty(t, "region"), mustProperty(t, "set")
	for name, c := range map[string]struct {
		in   FilterInput
		want bool
	}{
		"a selector":               {FilterInput{Selector: "env in (prod,test),!gpu"}, true},
		"another selector":         {FilterInput{Selector: "env=test"}, false},
		"a state":                  {FilterInput{States: "Away,Ready"}, true},
		"another state":            {FilterInput{States: "Away"}, false},
		"a group":                  {FilterInput{Groups: []GroupValue{{region, "eu-west"}, {set, "blue"}}}, true},
		"one of two groups":        {FilterInput{Groups: []GroupValue{{region, "eu-west"}, {set, ""}}}, false},
		"the beginning of a group": {FilterInput{Groups: []GroupValue{{region, "eu"}}}, false},
	} {
		if f := mustFilter(t, c.in); f.Matches(&row) != c.want {
			t.Errorf("%s: want %t", name, c.want)
		}
	}
	for name, in := range map[string]FilterInput{
		"a long text":      {Text: strings.Repeat("a", MaxText+1)},
		"a long selector":  {Selector: strings.Repeat("a", MaxSelector+1)},
		"a wrong selector": {Selector: "a in b"},
		"no state":         {States: "Ready,ready"},
		"long states":      {States: strings.Repeat("Ready,", 100)},
		"a long value":     {Groups: []GroupValue{{region, strings.Repeat("a", MaxValue+1)}}},
		"many groups":      {Groups: slices.Repeat([]GroupValue{{region, "a"}}, maxGroupValues+1)},
	} {
		if _, err := NewFilter(in); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestProperties(t *testing.T) {
	c := readyCluster("oslo")
	c.Spec.Zones, c.Spec.Provider, c.Status.AgentVersion = []string{"y", "z"}, "p", "v0.2.0"
	row := NewRow(c, []string{"a", "b"})
	for name, want := range map[string]string{
		"region": "eu-west", "zone": "y z", "provider": "p", "version": "v1.36.3", "status": "Ready", "agent": "v0.2.0", "label:env": "prod", "label:none": "", "set": "a b",
	} {
		p := mustProperty(t, name)
		var got []string
		p.EachValue(&row, func(v string) {
			got = append(got, v)
			if !p.HasValue(&row, v) {
				t.Errorf("%s: the row has no value %q", name, v)
			}
		})
		if strings.Join(got, " ") != want || p.HasValue(&row, "other") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	alone := NewRow(c, nil)
	if set := mustProperty(t, "set"); !set.HasValue(&alone, "") || set.HasValue(&row, "") {
		t.Error("the group without a ClusterSet has other clusters")
	}
	for _, name := range []string{"", "color", "label:", strings.Repeat("a", MaxValue+1)} {
		if p, err := FindProperty(name); err == nil {
			t.Errorf("%q is the property %s", name, p.Name)
		}
	}
}

func TestSlimClusters(t *testing.T) {
	c := newCluster("oslo", newCondition(v1alpha1.ClusterReady, metav1.ConditionFalse, "MemberNotReady"), newCondition(v1alpha1.ClusterDraining, metav1.ConditionTrue, "NoReplacement"))
	c.Status.Conditions[0].Message = strings.Repeat("é", maxMessage)
	c.Spec.Taints = []v1alpha1.Taint{{Key: "a"}, {Key: "b"}}
	c.Annotations = map[string]string{"secret": "hidden"}
	c.Status.Resources.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("0")}
	c.Status.Resources.Requested = corev1.ResourceList{"cpu": resource.MustParse("500m")}
	row := NewRow(c, []string{"x", "y"})
	text, err := json.Marshal(row.ToCluster(Shape{By: mustProperty(t, "set")}, 3))
	if err != nil {
		t.Fatal(err)
	}
	message := strings.Repeat("é", maxMessage/2) + "…"
	want := `{"name":"oslo","state":"NotReady","reason":"MemberNotReady","message":"` + message + `","since":"2026-11-29T12:00:00Z","groups":["x","y"],"region":"eu-west","version":"v1.36.3",` +
		`"cpu":{"used":0.5,"of":8},"taints":2,"drifted":3,"processes":[{"type":"Draining","reason":"NoReplacement","message":"NoReplacement message","since":"2026-11-29T12:00:00Z"}]}`
	if string(text) != want {
		t.Errorf("a row of the table:\n%s\nwant\n%s", text, want)
	}
	if text, err = json.Marshal(row.ToCluster(Shape{Tiles: true}, 3)); err != nil || string(text) != `{"name":"oslo","state":"NotReady","reason":"MemberNotReady","since":"2026-11-29T12:00:00Z"}` {
		t.Errorf("a tile: %s %v", text, err)
	}
}

func TestSlimSourcesHaveNoContent(t *testing.T) {
	s := &v1alpha1.Source{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u", Annotations: map[string]string{"a": "annotation"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "manager"}}},
		Spec:       v1alpha1.SourceSpec{Repository: "repo", Suspend: true, Paths: []string{"paths"}},
		Status: v1alpha1.SourceStatus{
			Commit: "abc", ShortCommit: "ab", Message: "the shop opens", Author: "Aiko", Objects: v1alpha1.SourceObjects{Total: 7}, Clusters: v1alpha1.SourceClusters{Ready: 1, Desired: 2},
			Inventory: []v1alpha1.SourceObject{{Name: "inventory"}}, Errors: []v1alpha1.SourceError{{Message: "error"}}, Drift: []v1alpha1.ChangedObject{{Name: "drift"}},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: strings.Repeat("m", 9000)}},
		},
	}
	text, err := json.Marshal(SlimSource(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"web"`, `"shop"`, `"repo"`, `"suspend":true`, `"abc"`, `"the shop opens"`, `"Aiko"`, `"total":7`, `"desired":2`, `"Ready"`} {
		if !strings.Contains(string(text), word) {
			t.Errorf("no %s in %s", word, text)
		}
	}
	for _, word := range []string{"inventory", `"errors"`, `"drift"`, "annotation", "manager", `"paths"`} {
		if strings.Contains(string(text), word) {
			t.Errorf("%s in %s", word, text)
		}
	}
	if len(text) > 1500 || len(s.Status.Conditions[0].Message) != 9000 {
		t.Errorf("%d bytes; the message of the Source has %d", len(text), len(s.Status.Conditions[0].Message))
	}
}

// makeRow returns a random row: regions, states, times and resources are few, so that many rows are equal in an order.
func makeRow(r *rand.Rand, name string) Row {
	status := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}[r.IntN(4)]
	c := newCluster(name, newCondition(v1alpha1.ClusterReady, status, "Some"))
	c.Spec.Region = fmt.Sprint("region-", r.IntN(12))
	c.Spec.Accepted = r.IntN(10) > 0
	c.Labels = map[string]string{"env": []string{"prod", "test"}[r.IntN(2)]}
	c.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began.Add(time.Duration(r.IntN(5)) * time.Hour))
	c.Status.KubernetesVersion = fmt.Sprintf("v1.%d.0", r.IntN(20))
	if r.IntN(4) > 0 {
		c.Status.Resources.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("16")}
		c.Status.Resources.Requested = corev1.ResourceList{"cpu": *resource.NewQuantity(int64(r.IntN(17)), resource.DecimalSI)}
	}
	return NewRow(c, []string{"odd", "even", "all"}[:r.IntN(4)])
}

func makeRows(r *rand.Rand, n int) []Row {
	out := make([]Row, n)
	for i := range out {
		out[i] = makeRow(r, fmt.Sprint("cluster-", i))
	}
	return out
}
