package fleetview

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/atoll"
)

func TestNamesGoThereAndBack(t *testing.T) {
	for _, name := range []string{"web-1", "a.b", "web.member1"} {
		object, cluster, ok := SplitFullName(FullName(name, "tokyo-1"))
		if !ok || object != name || cluster != "tokyo-1" {
			t.Errorf("%s comes back as %q of %q, %v", name, object, cluster, ok)
		}
	}
	for _, name := range []string{"", "web", ".tokyo", "web.", "."} {
		if object, cluster, ok := SplitFullName(name); ok {
			t.Errorf("%q is taken for %q of %q", name, object, cluster)
		}
	}
}

// firstMember has the template Deployment web, with the UID "template".
func firstMember() Member {
	return Member{Cluster: "member1", Template: func(k atoll.ItemKey) (metav1.Object, bool) {
		if k == (atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}) {
			return &metav1.ObjectMeta{UID: "template", Annotations: map[string]string{atoll.AnnotationClusters: "*", "by": "me"}}, true
		}
		return nil, false
	}}
}

func TestWhatIsShown(t *testing.T) {
	shared, noted := map[string]string{"app": "web"}, map[string]string{"by": "me"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "u1", Labels: shared, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		Annotations:     noted,
	}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	firstMember().ConvertToHubForm(pod)
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
	firstMember().ConvertToHubForm(rs)
	if o := rs.OwnerReferences[0]; o.UID != "template" || o.Name != "web" || o.APIVersion != OwnerGroupVersion {
		t.Errorf("what a template owns is shown as owned by %+v", o)
	}

	of := firstMember()
	of.Template = func(k atoll.ItemKey) (metav1.Object, bool) {
		return &metav1.ObjectMeta{UID: "template"}, k == atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "fill"}
	}
	for _, job := range []struct{ name, said, want string }{
		{"fill", "there", "template"}, // by which its template's selector finds it
		{"fill", "chosen", "chosen"},  // a selector of the user's own
		{"other", "there", "there"},
	} {
		done := &metav1.ObjectMeta{
			Namespace: "shop", Name: "fill-1", Labels: map[string]string{"controller-uid": job.said, "batch.kubernetes.io/controller-uid": job.said},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.name, UID: "there"}},
		}
		of.ConvertToHubForm(done)
		if done.Labels["controller-uid"] != job.want || done.Labels["batch.kubernetes.io/controller-uid"] != job.want {
			t.Errorf("a pod of Job %s labelled %s is shown with %v", job.name, job.said, done.Labels)
		}
	}
	// Beside the revision, a note that agents make, and what a member would have the hub do.
	kept := map[string]string{"deployment.kubernetes.io/revision": "3", "atoll.dev/left-behind": "t-web", atoll.AnnotationClusters: "mine", atoll.AnnotationRebalance: "now"}
	for owner, want := range map[string]string{"web": "*", "other": "mine"} {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-5", Annotations: kept, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner, Controller: ptr.To(true)}},
		}}
		firstMember().ConvertToHubForm(rs)
		all := 2
		if want == "mine" { // it belongs to no template
			all = 4
		}
		if a := rs.Annotations; a["deployment.kubernetes.io/revision"] != "3" || a[atoll.AnnotationClusters] != want || len(a) != all || len(kept) != 4 {
			t.Errorf("a ReplicaSet of %s is shown with %v, and that of others with %v", owner, a, kept)
		}
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
		firstMember().ConvertToHubForm(e)
		if e.InvolvedObject != c.want || e.Name != "e.member1" {
			t.Errorf("an Event %s about %v is shown as about %v", e.Name, c.about, e.InvolvedObject)
		}
	}

	target := &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x"}, Endpoints: []discoveryv1.Endpoint{{TargetRef: target}, {}}}
	firstMember().ConvertToHubForm(slice)
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
		{label: "controller-uid=template,app=web", wantLabel: "app=web,controller-uid"},
		{label: "batch.kubernetes.io/controller-uid in (template,other)", wantLabel: "batch.kubernetes.io/controller-uid"},
		{label: "controller-uid!=template"},
		{label: "!controller-uid", wantLabel: "!controller-uid"},
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
		label, field, ok := SelectionOf(l, f).SelectorsFor("member1")
		if ok == c.none || label != c.wantLabel || field != c.wantField {
			t.Errorf("%q %q is asked for as %q %q, %v", c.label, c.field, label, field, ok)
		}
	}
	if _, _, ok := SelectionOf(labels.Nothing(), nil).SelectorsFor("member1"); ok {
		t.Error("a cluster is asked for nothing")
	}
	if name := SelectionOf(nil, fields.OneTermEqualSelector("metadata.name", "x")).SingleName(); name != "x" {
		t.Errorf("the one name is %q", name)
	}
}

func TestVersionsAreRemembered(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	h := NewHistory(now)
	listed := h.RecordList("pods", Versions{"": "5", "a": "10"}, now)
	at, ok := h.Find("pods", listed)
	if !ok || !maps.Equal(at, Versions{"": "5", "a": "10"}) {
		t.Fatalf("the list was at %v, %v", at, ok)
	}
	trace := h.StartTrace("pods", listed, at, now)
	first := trace.RecordEvent("a", "11")
	partly, still := trace.RecordEvent("b", ""), trace.RecordEvent("a", "12")
	second := trace.RecordEvent("b", "3")
	third := trace.RecordEvent("", "7")
	fourth := trace.RecordEvent("", "")
	for version, want := range map[string]Versions{
		listed: {"": "5", "a": "10"}, first: {"": "5", "a": "11"}, second: {"": "5", "a": "12", "b": "3"},
		third: {"": "7", "a": "12", "b": "3"}, fourth: {"": "7", "a": "12", "b": "3"},
	} {
		if got, ok := h.Find("pods", version); !ok || !maps.Equal(got, want) {
			t.Errorf("%s was at %v, %v; wanted %v", version, got, ok, want)
		}
		if !IsHistoryVersion(version) {
			t.Errorf("%s is not known for ours", version)
		}
		if _, ok := h.Find("events", version); ok {
			t.Error("a version of pods is one of events")
		}
		if _, ok := NewHistory(now.Add(time.Second)).Find("pods", version); ok {
			t.Error("a version is found after another start")
		}
	}
	for _, version := range []string{"", "0", "5", "x", partly, still, next(t, fourth), fmt.Sprint(h.first)} {
		if at, ok := h.Find("pods", version); ok {
			t.Errorf("%q is found, at %v", version, at)
		}
	}
	if IsHistoryVersion("123456789") {
		t.Error("a store's version is taken for ours")
	}
	later := now.Add(time.Hour)
	h.RecordList("pods", nil, later)
	if _, ok := h.Find("pods", first); !ok {
		t.Error("what a watch that goes on was at is forgotten")
	}
	trace.EndTrace(later)
	h.RecordList("pods", nil, later.Add(remembered))
	if _, ok := h.Find("pods", first); !ok {
		t.Error("what a watch that ended was at is forgotten at once")
	}
	h.RecordList("pods", nil, later.Add(remembered+time.Second))
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
	listed := h.RecordList("pods", Versions{"a": "0"}, now)
	at, _ := h.Find("pods", listed)
	trace := h.StartTrace("pods", listed, at, now)
	var all []string
	for i := range 3 * stepsMost {
		all = append(all, trace.RecordEvent("a", fmt.Sprint(i)))
	}
	if len(trace.steps) > stepsMost {
		t.Errorf("%d steps are kept", len(trace.steps))
	}
	half := trace.RecordEvent("b", "")
	for i := range 2 * stepsMost {
		half = trace.RecordEvent("a", fmt.Sprint(i))
	}
	if at, ok := h.Find("pods", half); ok {
		t.Errorf("long after a cluster was sent in part, it is found at %v", at)
	}
	trace.RecordEvent("b", "1")
	for i := range 3 * stepsMost {
		all = append(all, trace.RecordEvent("a", fmt.Sprint(i)))
	}
	last := len(all) - 1
	if at, ok := h.Find("pods", all[last]); !ok || at["a"] != fmt.Sprint(3*stepsMost-1) || at["b"] != "1" {
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
		h.RecordList("pods", big, now)
	}
	if h.held > rememberedMost+len(big) {
		t.Errorf("%d versions are kept", h.held)
	}
	sum := 0
	for _, trace := range h.traces {
		sum += trace.heldVersionCount()
	}
	if sum != h.held {
		t.Errorf("%d versions are kept, and %d counted", sum, h.held)
	}
	if _, ok := h.Find("pods", all[last]); !ok {
		t.Error("many lists have a watch that goes on forgotten")
	}
}
