package live

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/atoll"
)

func TestNamesGoThereAndBack(t *testing.T) {
	for _, name := range []string{"web-1", "a.b", "web.member1"} {
		object, cluster, ok := Split(Name(name, "tokyo-1"))
		if !ok || object != name || cluster != "tokyo-1" {
			t.Errorf("%s comes back as %q of %q, %v", name, object, cluster, ok)
		}
	}
	for _, name := range []string{"", "web", ".tokyo", "web.", "."} {
		if object, cluster, ok := Split(name); ok {
			t.Errorf("%q is taken for %q of %q", name, object, cluster)
		}
	}
}

// member1 has the template Deployment web, with the UID "template".
func member1() Member {
	return Member{Cluster: "member1", Template: func(k atoll.ItemKey) (types.UID, bool) {
		if k == (atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}) {
			return "template", true
		}
		return "", false
	}}
}

func TestWhatIsShown(t *testing.T) {
	shared, noted := map[string]string{"app": "web"}, map[string]string{"by": "me"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "u1", Labels: shared, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		Annotations:     noted,
	}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	member1().Show(pod)
	if pod.Name != "web-1.member1" || pod.Namespace != "shop" || pod.UID != "u1" || pod.Labels[atoll.LabelCluster] != "member1" || pod.Labels["app"] != "web" || pod.ManagedFields != nil {
		t.Errorf("the pod is shown as %+v", pod.ObjectMeta)
	}
	if len(shared) != 1 {
		t.Error("labels that others hold are changed")
	}
	if pod.Spec.NodeName != "member1" || pod.Annotations[atoll.AnnotationNode] != "node-1" || len(noted) != 1 {
		t.Errorf("it is shown on the node %q, with %v", pod.Spec.NodeName, pod.Annotations)
	}
	want := metav1.OwnerReference{APIVersion: OwnerGroupVersion, Kind: "ReplicaSet", Name: "web.member1", UID: "rs", Controller: ptr.To(true)}
	if got := pod.OwnerReferences[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("its owner is shown as %v, wanted %v", got, want)
	}

	rs := &metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "there"}}}
	member1().Show(rs)
	if o := rs.OwnerReferences[0]; o.UID != "template" || o.Name != "web" || o.APIVersion != OwnerGroupVersion {
		t.Errorf("what a template owns is shown as owned by %+v", o)
	}

	for _, c := range []struct {
		about, want corev1.ObjectReference
	}{
		{corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "u1"}, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1.member1", UID: "u1"}},
		{corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "there"}, corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "template"}},
		{corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "other", UID: "o"}, corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "other.member1", UID: "o"}},
		{corev1.ObjectReference{}, corev1.ObjectReference{}},
	} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, InvolvedObject: c.about}
		member1().Show(e)
		if e.InvolvedObject != c.want || e.Name != "e.member1" {
			t.Errorf("an Event %s about %v is shown as about %v", e.Name, c.about, e.InvolvedObject)
		}
	}

	target := &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x"}, Endpoints: []discoveryv1.Endpoint{{TargetRef: target}, {}}}
	member1().Show(slice)
	if slice.Endpoints[0].TargetRef.Name != "web-1.member1" || target.Name != "web-1" {
		t.Errorf("an endpoint leads to %+v, and that of others to %+v", slice.Endpoints[0].TargetRef, target)
	}
}

func TestSelectorsPerCluster(t *testing.T) {
	for _, c := range []struct {
		label, field string
		wantLabel    string
		wantField    string
		none         bool
	}{
		{},
		{label: "app=web", wantLabel: "app=web"},
		{label: "app=web,atoll.dev/cluster=member1", wantLabel: "app=web"},
		{label: "atoll.dev/cluster in (member1,member2)"},
		{label: "atoll.dev/cluster=member2", none: true},
		{label: "atoll.dev/cluster!=member1", none: true},
		{label: "!atoll.dev/cluster", none: true},
		{label: "atoll.dev/cluster"},
		{field: "status.phase=Running,spec.nodeName!=n", wantField: "status.phase=Running"},
		{field: "spec.nodeName=member1", wantField: "spec.nodeName!="},
		{field: "spec.nodeName=member2", none: true},
		{field: "spec.nodeName=node-1", none: true},
		{field: "spec.nodeName=", wantField: "spec.nodeName="},
		{field: "spec.nodeName!=", wantField: "spec.nodeName!="},
		{field: "spec.nodeName!=member1", wantField: "spec.nodeName="},
		{field: "metadata.name=web-1.member1", wantField: "metadata.name=web-1"},
		{field: "metadata.name=web-1.member2", none: true},
		{field: "metadata.name=web-1", none: true},
		{field: "metadata.name!=web-1.member1", wantField: "metadata.name!=web-1"},
		{field: "metadata.name!=web-1.member2"},
		{field: "involvedObject.name=web-1.member1,involvedObject.uid=u,involvedObject.kind=Pod", wantField: "involvedObject.kind=Pod,involvedObject.name=web-1"},
		{field: "involvedObject.name=web", wantField: "involvedObject.name=web"},
		{field: "involvedObject.name!=web.member1"},
	} {
		l, err := labels.Parse(c.label)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fields.ParseSelector(c.field)
		if err != nil {
			t.Fatal(err)
		}
		label, field, ok := Select(l, f).In("member1")
		if ok == c.none || label != c.wantLabel || field != c.wantField {
			t.Errorf("%q %q is asked for as %q %q, %v", c.label, c.field, label, field, ok)
		}
	}
	if _, _, ok := Select(labels.Nothing(), nil).In("member1"); ok {
		t.Error("a cluster is asked for nothing")
	}
	if name := Select(nil, fields.OneTermEqualSelector("metadata.name", "x")).Named(); name != "x" {
		t.Errorf("the one name is %q", name)
	}
}

func TestVersionsAreRemembered(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	h := NewHistory(now)
	listed := h.Listed("pods", Versions{"": "5", "a": "10"}, now)
	at, ok := h.Find("pods", listed)
	if !ok || !maps.Equal(at, Versions{"": "5", "a": "10"}) {
		t.Fatalf("the list was at %v, %v", at, ok)
	}
	trace := h.Follow("pods", listed, at, now)
	first := trace.Step("a", "11")
	second := trace.Step("b", "")
	third := trace.Step("", "7")
	for version, want := range map[string]Versions{
		listed: {"": "5", "a": "10"}, first: {"": "5", "a": "11"}, second: {"": "5", "a": "11"}, third: {"": "7", "a": "11"},
	} {
		if got, ok := h.Find("pods", version); !ok || !maps.Equal(got, want) {
			t.Errorf("%s was at %v, %v; wanted %v", version, got, ok, want)
		}
		if !Ours(version) {
			t.Errorf("%s is not known for ours", version)
		}
		if _, ok := h.Find("events", version); ok {
			t.Error("a version of pods is one of events")
		}
		if _, ok := NewHistory(now.Add(time.Second)).Find("pods", version); ok {
			t.Error("a version is found after another start")
		}
	}
	for _, version := range []string{"", "0", "5", "x", next(t, third), fmt.Sprint(h.first)} {
		if at, ok := h.Find("pods", version); ok {
			t.Errorf("%q is found, at %v", version, at)
		}
	}
	if Ours("123456789") {
		t.Error("a store's version is taken for ours")
	}
	later := now.Add(time.Hour)
	h.Listed("pods", nil, later)
	if _, ok := h.Find("pods", first); !ok {
		t.Error("what a watch that goes on was at is forgotten")
	}
	trace.End(later)
	h.Listed("pods", nil, later.Add(remembered))
	if _, ok := h.Find("pods", first); !ok {
		t.Error("what a watch that ended was at is forgotten at once")
	}
	h.Listed("pods", nil, later.Add(remembered+time.Second))
	if _, ok := h.Find("pods", first); ok {
		t.Error("what a watch that ended was at is kept")
	}
}

func next(t *testing.T, version string) string {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(n + 1)
}

// TestHistoryIsBounded: of long watches and of many lists alike.
func TestHistoryIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	h := NewHistory(now)
	listed := h.Listed("pods", Versions{"a": "0"}, now)
	at, _ := h.Find("pods", listed)
	trace := h.Follow("pods", listed, at, now)
	var all []string
	for i := range 3 * stepsMost {
		all = append(all, trace.Step("a", fmt.Sprint(i)))
	}
	if len(trace.steps) > stepsMost {
		t.Errorf("%d steps are kept", len(trace.steps))
	}
	last := len(all) - 1
	if at, ok := h.Find("pods", all[last]); !ok || at["a"] != fmt.Sprint(last) {
		t.Errorf("the last step was at %v, %v", at, ok)
	}
	if _, ok := h.Find("pods", all[0]); ok {
		t.Error("the first of many steps is kept")
	}
	big := Versions{}
	for i := range 1000 {
		big[fmt.Sprint(i)] = "1"
	}
	for range 2 * rememberedMost / len(big) {
		h.Listed("pods", big, now)
	}
	if h.held > rememberedMost+len(big) {
		t.Errorf("%d versions are kept", h.held)
	}
	sum := 0
	for _, trace := range h.traces {
		sum += trace.size()
	}
	if sum != h.held {
		t.Errorf("%d versions are kept, and %d counted", sum, h.held)
	}
	if _, ok := h.Find("pods", all[last]); !ok {
		t.Error("many lists have a watch that goes on forgotten")
	}
}
