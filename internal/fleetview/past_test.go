package fleetview

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/atoll"
)

func podTemplate(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

// newPast is "NUMBER:IMAGE/NOTE".
func newPast(number int64, image, note string) PastWorkload {
	return PastWorkload{Number: number, Template: podTemplate(image), Annotations: map[string]string{"note": note}}
}

// TestPasts: each pod template is in a history once, where it came last, with what was noted
// with it last.
func TestPasts(t *testing.T) {
	for _, c := range []struct {
		what   string
		stated []PastWorkload
		want   []string
	}{
		{what: "nothing"},
		{"one", []PastWorkload{newPast(1, "a", "x")}, []string{"1:a/x"}},
		{"two", []PastWorkload{newPast(1, "a", "x"), newPast(3, "b", "y")}, []string{"1:a/x", "3:b/y"}},
		{"an edit of something else", []PastWorkload{newPast(1, "a", "x"), newPast(2, "a", "y"), newPast(3, "b", "z"), newPast(4, "b", "z")}, []string{"1:a/y", "3:b/z"}},
		{"going back", []PastWorkload{newPast(1, "a", "x"), newPast(2, "b", "y"), newPast(3, "a", "z")}, []string{"2:b/y", "3:a/z"}},
		{"going back twice", []PastWorkload{newPast(1, "a", "x"), newPast(2, "b", "y"), newPast(3, "a", "z"), newPast(4, "b", "z")}, []string{"3:a/z", "4:b/z"}},
		{"over one of the middle", []PastWorkload{newPast(1, "a", "x"), newPast(2, "b", "y"), newPast(3, "c", "y"), newPast(7, "a", "x"), newPast(8, "a", "w")}, []string{"2:b/y", "3:c/y", "7:a/w"}},
	} {
		var got []string
		for _, p := range RolloutHistoryOf(c.stated) {
			got = append(got, fmt.Sprintf("%d:%s/%s", p.Number, p.Template.Spec.Containers[0].Image, p.Annotations["note"]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, wanted %v", c.what, got, c.want)
		}
	}
}

// TestWhoAsksForAHistory: a selector that is exactly the workload's, in whatever order.
func TestWhoAsksForAHistory(t *testing.T) {
	of := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"app": "web", "tier": "front"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}}},
	}
	for asked, want := range map[string]bool{
		"app=web,tier=front,zone in (a,b)":                        true,
		"zone in (b,a),tier=front,app=web":                        true,
		"app=web,tier=front":                                      false,
		"app=web,tier=front,zone in (a,b),atoll.dev/cluster=oslo": false,
		"app=web,tier=front,zone in (a)":                          false,
		"app=web,tier!=front,zone in (a,b)":                       false,
		"":                                                        false,
		"app=web,tier=front,zone in (a,b),zone in (a,b),tier in (front)": false,
	} {
		l, err := labels.Parse(asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := EqualsWorkloadSelector(l, of); got != want {
			t.Errorf("%q asks for it: %v", asked, got)
		}
	}
	if EqualsWorkloadSelector(labels.Everything(), &metav1.LabelSelector{}) || EqualsWorkloadSelector(nil, of) || EqualsWorkloadSelector(labels.Nothing(), of) {
		t.Error("everything, or nothing, is taken for a question for a history")
	}
}

func newDeployment() *appsv1.Deployment {
	replicas := int32(3)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "template", Generation: 4, Annotations: map[string]string{atoll.AnnotationClusters: "*", "note": "now"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate("b")},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 1},
	}
}

// TestAPastAsAReplicaSet: `kubectl rollout undo` writes its annotations and its pod template in
// the place of the Deployment's, so placement is that of now, whatever was once stated.
func TestAPastAsAReplicaSet(t *testing.T) {
	d := newDeployment()
	w, _ := WorkloadOf(d)
	p := newPast(7, "a", "then")
	p.Annotations[atoll.AnnotationClusters] = "elsewhere"
	p.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	rs := w.ReplicaSet(p, false)
	if want := map[string]string{atoll.AnnotationClusters: "*", "note": "then", annotationRevision: "7"}; !maps.Equal(rs.Annotations, want) {
		t.Errorf("it has the annotations %v, wanted %v", rs.Annotations, want)
	}
	if rs.Name != "web-deployment-r7" || rs.Namespace != "shop" || !metav1.IsControlledBy(rs, d) || rs.OwnerReferences[0].APIVersion != OwnerGroupVersion || rs.Labels["app"] != "web" {
		t.Errorf("it is %+v", rs.ObjectMeta)
	}
	if *rs.Spec.Replicas != 0 || !reflect.DeepEqual(rs.Spec.Template, p.Template) || !reflect.DeepEqual(rs.Status, appsv1.ReplicaSetStatus{}) {
		t.Errorf("it is %+v, %+v", rs.Spec, rs.Status)
	}
	if other := w.ReplicaSet(newPast(8, "a", "then"), false); other.UID == rs.UID || rs.UID == "" {
		t.Errorf("two have the UIDs %q and %q", rs.UID, other.UID)
	}
	if name, ok := SplitPastName(rs.Name, "Deployment"); !ok || name != "web" {
		t.Errorf("%s is a past of %q, %v", rs.Name, name, ok)
	}
	if name, ok := SplitPastName(rs.Name, "StatefulSet"); ok {
		t.Errorf("%s is taken for a past of a StatefulSet %s", rs.Name, name)
	}

	now := w.ReplicaSet(newPast(9, "b", "now"), true)
	if want := (appsv1.ReplicaSetStatus{Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 1}); *now.Spec.Replicas != 3 || !reflect.DeepEqual(now.Status, want) {
		t.Errorf("what it is now counts %d and %+v", *now.Spec.Replicas, now.Status)
	}
	d.Generation++
	w, _ = WorkloadOf(d)
	if now := w.ReplicaSet(newPast(9, "b", "now"), true); !reflect.DeepEqual(now.Status, appsv1.ReplicaSetStatus{}) {
		t.Errorf("an unseen object counts %+v", now.Status)
	}
}

// TestAPastAsAControllerRevision holds a patch as kubectl makes it, byte by byte: so it tells that
// there is nothing to go back to.
func TestAPastAsAControllerRevision(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "template"}, Spec: appsv1.StatefulSetSpec{Template: podTemplate("b")}}
	w, _ := WorkloadOf(set)
	c, err := w.ControllerRevision(newPast(7, "b", "then"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "db-statefulset-r7" || c.Revision != 7 || !metav1.IsControlledBy(c, set) || c.Labels["app"] != "web" || c.Annotations["note"] != "then" {
		t.Errorf("it is %+v", c)
	}
	var whole struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	raw, err := json.Marshal(set)
	if err == nil {
		err = json.Unmarshal(raw, &whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole.Spec.Template["$patch"] = "replace"
	if want, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": whole.Spec.Template}}); string(c.Data.Raw) != string(want) {
		t.Errorf("its patch is %s, wanted %s", c.Data.Raw, want)
	}
}
