package fleetview

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

func TestMayLeadName(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, c := range []struct {
		template, pod string
		want          bool
	}{
		{"db", "db-0", true},
		{"db", "db", true},
		{"db-0", "db-0", true},
		{"web", "web-dfcc7d78b-52mr8", true},
		{"db", "dba-0", false},
		{"db-0-x", "db-0", false},
		{"", "db-0", false},
		{long, long[:57] + "-x7x2k", true}, // a controller cuts what it appends to
		{long, strings.Repeat("a", 39) + "b", false},
	} {
		if got := MayOwnPodByName(c.template, c.pod); got != c.want {
			t.Errorf("a pod %q of a template %q: %t", c.pod, c.template, got)
		}
	}
}

func TestAnOwnNameIsResolved(t *testing.T) {
	away := errors.New("cluster oslo cannot be reached: its agent is not connected to the hub")
	slow := errors.New("cluster bergen did not answer within 10s")
	for _, c := range []struct {
		what     string
		lookup   PodLookup
		acts     bool
		cluster  string
		code     int32
		contains []string
		warning  string
	}{
		{what: "one", lookup: PodLookup{Holders: []string{"lima"}}, acts: true, cluster: "lima"},
		{what: "none", code: http.StatusNotFound, contains: []string{`pods "db-0" not found$`}},
		{what: "two", lookup: PodLookup{Holders: []string{"tokyo", "lima"}}, code: http.StatusBadRequest, contains: []string{"pod shop/db-0 runs in 2 clusters; name one of: db-0.lima, db-0.tokyo$"}},
		{
			what: "two, and an unknown one", lookup: PodLookup{Holders: []string{"tokyo", "lima"}, Unknown: []error{away}}, acts: true, code: http.StatusBadRequest,
			contains: []string{"runs in 2 clusters"}, warning: "more clusters may have a pod db-0: " + away.Error(),
		},
		{
			what: "one to read, and an unknown one", lookup: PodLookup{Holders: []string{"lima"}, Unknown: []error{away}}, cluster: "lima",
			warning: "more clusters may have a pod db-0: " + away.Error(),
		},
		{
			what: "one to act on, and unknown ones", lookup: PodLookup{Holders: []string{"lima"}, Unknown: []error{away, slow}}, acts: true, code: http.StatusServiceUnavailable,
			contains: []string{"pod shop/db-0 runs in cluster lima, and more clusters may have a pod of this name: " + slow.Error() + "; " + away.Error() + "; to act on the first, name it db-0.lima$"},
			warning:  "more clusters may have a pod db-0: " + slow.Error() + "; " + away.Error(),
		},
		{
			what: "none, and an unknown one", lookup: PodLookup{Unknown: []error{away}}, code: http.StatusNotFound,
			contains: []string{`pods "db-0" not found; it may be where the hub cannot look: ` + away.Error() + "$"}, warning: "more clusters may have a pod db-0: " + away.Error(),
		},
		{
			what: "too many", lookup: PodLookup{Unasked: 200}, code: http.StatusNotFound,
			contains: []string{`pods "db-0" not found; 200 clusters may have it`, ": name it db-0.CLUSTER$"},
			warning:  "more clusters may have a pod db-0: 200 clusters may have it, which is too many requests for a name without a cluster",
		},
	} {
		cluster, err := c.lookup.Resolve("shop", "db-0", c.acts)
		if cluster != c.cluster || (err == nil) != (c.code == 0) {
			t.Errorf("%s: %q, %v", c.what, cluster, err)
		}
		if s := apierrors.APIStatus(nil); err != nil && (!errors.As(err, &s) || s.Status().Code != c.code) {
			t.Errorf("%s: the error is %#v", c.what, err)
		}
		for _, want := range c.contains {
			if !strings.Contains(fmt.Sprint(err)+"$", want) {
				t.Errorf("%s: %v, without %q", c.what, err, want)
			}
		}
		if got := c.lookup.Warning("db-0"); got != c.warning {
			t.Errorf("%s: the warning is %q", c.what, got)
		}
	}
}

// Messages stay short, however large the fleet is.
func TestAnErrorNamesAFewClusters(t *testing.T) {
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("c%02d", 39-i))
	}
	text := AmbiguousNameError("shop", "db-0", many).Error()
	if !strings.Contains(text, "runs in 40 clusters; name one of: db-0.c00, db-0.c01,") || !strings.HasSuffix(text, "db-0.c09, and 30 more") {
		t.Error(text)
	}
	if many[0] != "c39" {
		t.Error("the caller's names are sorted")
	}
}

// TestNamesAreShownAsSelected: of the pod, and of the pod that an Event is about.
func TestNamesAreShownAsSelected(t *testing.T) {
	selected := func(field string) FleetSelection {
		f, err := fields.ParseSelector(field)
		if err != nil {
			t.Fatal(err)
		}
		return SelectionOf(nil, f)
	}
	m := firstMember()
	for _, c := range []struct {
		by   FleetSelection
		want string
	}{
		{FleetSelection{}, "db-0.member1"},
		{selected("metadata.name=db-0.member1"), "db-0.member1"},
		{selected("metadata.name=db-0").ByOwnName("member1"), "db-0"},
		{selected("metadata.name=db-0").ByOwnName("member2"), "db-0.member1"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}
		if m.ConvertSelectedToHubForm(pod, c.by); pod.Name != c.want || pod.Labels["atoll.dev/cluster"] != "member1" {
			t.Errorf("by %+v the pod is shown as %s, with %v", c.by, pod.Name, pod.Labels)
		}
	}
	for _, c := range []struct{ field, kind, want string }{
		{"", "Pod", "db-0.member1"},
		{"involvedObject.name=db-0", "Pod", "db-0"},
		{"involvedObject.name=db-0,involvedObject.uid=u", "Pod", "db-0"},
		{"involvedObject.name=db-0.member1", "Pod", "db-0.member1"},
		{"involvedObject.name!=db-0", "Pod", "db-0.member1"},
		{"involvedObject.name=db-1", "Pod", "db-0.member1"},
		{"involvedObject.name=db-0", "ReplicaSet", "db-0.member1"},
	} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: c.kind, Namespace: "shop", Name: "db-0"}}
		if m.ConvertSelectedToHubForm(e, selected(c.field)); e.InvolvedObject.Name != c.want || e.Name != "e.member1" {
			t.Errorf("by %q an Event about a %s is shown as %s about %s", c.field, c.kind, e.Name, e.InvolvedObject.Name)
		}
	}
}

// TestAnOwnNameIsAskedOfItsClusterAlone: as it is there.
func TestAnOwnNameIsAskedOfItsClusterAlone(t *testing.T) {
	f, err := fields.ParseSelector("metadata.name=db-0,metadata.name!=db-1,status.phase=Running")
	if err != nil {
		t.Fatal(err)
	}
	s := SelectionOf(nil, f)
	if s.IsByOwnName() {
		t.Error("names are full names, unless it is said")
	}
	s = s.ByOwnName("member1")
	if _, field, ok := s.SelectorsFor("member1"); !ok || field != "metadata.name!=db-1,metadata.name=db-0,status.phase=Running" || !s.IsByOwnName() {
		t.Errorf("its cluster is asked for %q, %v", field, ok)
	}
	if _, field, ok := s.SelectorsFor("member2"); ok {
		t.Errorf("another cluster is asked for %q", field)
	}
}
