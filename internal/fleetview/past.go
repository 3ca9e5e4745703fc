package fleetview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
)

// annotationRevision is where kubectl looks for the number of a ReplicaSet in the history of its
// Deployment.
const annotationRevision = "deployment.kubernetes.io/revision"

// Workload is a Deployment, StatefulSet or DaemonSet as it stands on the hub.
type Workload struct {
	metav1.ObjectMeta
	Kind     string
	Selector *metav1.LabelSelector
	Template corev1.PodTemplateSpec
	// Replicas that a Deployment is to have.
	Replicas int32
	// Updated, Ready and Available are how many a Deployment has of its template; none while
	// its status is of an older one.
	Updated, Ready, Available int32
}

// WorkloadOf returns the workload of an object of apps/v1, whose parts it shares; false of any other.
func WorkloadOf(obj runtime.Object) (Workload, bool) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		w := Workload{ObjectMeta: o.ObjectMeta, Kind: "Deployment", Selector: o.Spec.Selector, Template: o.Spec.Template}
		if o.Spec.Replicas != nil {
			w.Replicas = *o.Spec.Replicas
		}
		if s := o.Status; s.ObservedGeneration >= o.Generation {
			w.Updated, w.Ready, w.Available = s.UpdatedReplicas, min(s.ReadyReplicas, s.UpdatedReplicas), min(s.AvailableReplicas, s.UpdatedReplicas)
		}
		return w, true
	case *appsv1.StatefulSet:
		return Workload{ObjectMeta: o.ObjectMeta, Kind: "StatefulSet", Selector: o.Spec.Selector, Template: o.Spec.Template}, true
	case *appsv1.DaemonSet:
		return Workload{ObjectMeta: o.ObjectMeta, Kind: "DaemonSet", Selector: o.Spec.Selector, Template: o.Spec.Template}, true
	}
	return Workload{}, false
}

// EqualsWorkloadSelector reports whether a label selector is exactly that of a workload: this selects its
// history.
func EqualsWorkloadSelector(asked labels.Selector, of *metav1.LabelSelector) bool {
	own, err := metav1.LabelSelectorAsSelector(of)
	if err != nil || asked == nil {
		return false
	}
	a, selectable := asked.Requirements()
	b, _ := own.Requirements()
	return selectable && len(b) > 0 && slices.Equal(sortRequirements(a), sortRequirements(b))
}

func sortRequirements(all labels.Requirements) []string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].String()
	}
	slices.Sort(texts)
	return texts
}

// PastWorkload is what a user stated of a workload up to some Revision, with the API's defaults.
type PastWorkload struct {
	// Number of the Revision that brought the pod template.
	Number int64
	// Written is when, and Version the resource version of what keeps it.
	Written metav1.Time
	Version string
	// Template of the pods, and the annotations that the workload had with it last.
	Template    corev1.PodTemplateSpec
	Annotations map[string]string
}

// RolloutHistoryOf makes a history of what was stated at Revisions, the oldest first, as a Deployment's
// controller would: a Revision by which the pod template is the same counts for nothing but the
// annotations, and one that goes back to an older pod template makes it the newest.
func RolloutHistoryOf(stated []PastWorkload) []PastWorkload {
	var out []PastWorkload
	for _, p := range stated {
		same := func(o PastWorkload) bool { return equality.Semantic.DeepEqual(o.Template, p.Template) }
		if last := len(out) - 1; last >= 0 && same(out[last]) {
			out[last].Annotations = p.Annotations
			continue
		}
		out = append(slices.DeleteFunc(out, same), p)
	}
	return out
}

// PastName is that of the object that a past of a workload is shown as.
func (w Workload) PastName(p PastWorkload) string {
	return w.Name + "-" + strings.ToLower(w.Kind) + "-r" + strconv.FormatInt(p.Number, 10)
}

// SplitPastName returns the workload of a kind of which a name may show a past.
func SplitPastName(name, kind string) (workload string, ok bool) {
	at := strings.LastIndex(name, "-"+strings.ToLower(kind)+"-r")
	if at <= 0 {
		return "", false
	}
	return name[:at], true
}

// ReplicaSet returns the ReplicaSet as which a past of a Deployment is shown; that of the pod template that it has now
// counts the replicas. `kubectl rollout undo` writes the annotations of a ReplicaSet in the place
// of the Deployment's: Atoll's are those of now, so that it stays where it is placed.
func (w Workload) ReplicaSet(p PastWorkload, now bool) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: w.pastMetadata(p)}
	rs.Annotations = withTemplateAtollAnnotations(p.Annotations, w.Annotations)
	delete(rs.Annotations, corev1.LastAppliedConfigAnnotation) // the whole Deployment, which no ReplicaSet has
	rs.Annotations[annotationRevision] = strconv.FormatInt(p.Number, 10)
	rs.Spec = appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: w.Selector, Template: p.Template}
	if now {
		*rs.Spec.Replicas = w.Replicas
		rs.Status = appsv1.ReplicaSetStatus{Replicas: w.Updated, FullyLabeledReplicas: w.Updated, ReadyReplicas: w.Ready, AvailableReplicas: w.Available}
	}
	return rs
}

// ControllerRevision returns the ControllerRevision as which a past of a StatefulSet or DaemonSet is shown. It holds the patch
// by which that is gone back to.
func (w Workload) ControllerRevision(p PastWorkload) (*appsv1.ControllerRevision, error) {
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Template)
	if err != nil {
		return nil, fmt.Errorf("write the pod template of %s %s: %w", w.Kind, w.Name, err)
	}
	template["$patch"] = "replace"
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		return nil, fmt.Errorf("write the pod template of %s %s: %w", w.Kind, w.Name, err)
	}
	c := &appsv1.ControllerRevision{ObjectMeta: w.pastMetadata(p), Data: runtime.RawExtension{Raw: patch}, Revision: p.Number}
	c.Annotations = withTemplateAtollAnnotations(p.Annotations, w.Annotations)
	return c, nil
}

// pastMetadata returns the metadata of the object that shows one.
func (w Workload) pastMetadata(p PastWorkload) metav1.ObjectMeta {
	controls, id := true, atoll.HashParts([]byte(w.UID), []byte(strconv.FormatInt(p.Number, 10)))
	return metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.PastName(p), Labels: maps.Clone(p.Template.Labels),
		UID:             types.UID(strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")),
		ResourceVersion: p.Version, CreationTimestamp: p.Written,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: OwnerGroupVersion, Kind: w.Kind, Name: w.Name, UID: w.UID, Controller: &controls}},
	}
}

// withTemplateAtollAnnotations gives annotations with Atoll's of a template in the place of their own.
func withTemplateAtollAnnotations(annotations, template map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		if !atoll.IsOwnMetadataKey(key) {
			out[key] = value
		}
	}
	for key, value := range template {
		if atoll.IsOwnMetadataKey(key) {
			out[key] = value
		}
	}
	return out
}
