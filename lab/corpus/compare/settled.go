package compare

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// UnsettledReason returns what the controllers of a cluster still have to do for an object, or an empty
// text. A comparison before would compare two unfinished clusters.
func UnsettledReason(live *unstructured.Unstructured) string {
	if read := settledChecks[live.GetKind()]; read != nil {
		return read(live)
	}
	return ""
}

var settledChecks = map[string]func(*unstructured.Unstructured) string{
	"Deployment":               replicasUnsettled,
	"StatefulSet":              replicasUnsettled,
	"ReplicaSet":               replicasUnsettled,
	"ReplicationController":    replicasUnsettled,
	"DaemonSet":                daemonsUnsettled,
	"Job":                      jobUnsettled,
	"Pod":                      podUnsettled,
	"PersistentVolumeClaim":    volumeClaimUnsettled,
	"Service":                  balancerUnsettled,
	"Ingress":                  balancerUnsettled,
	"PodDisruptionBudget":      unsettledWithoutConditions,
	"HorizontalPodAutoscaler":  autoscalerUnsettled,
	"CustomResourceDefinition": definitionUnsettled,
	"ResourceQuota":            quotaUnsettled,
}

func integerAt(live *unstructured.Unstructured, path ...string) int64 {
	v, _, _ := unstructured.NestedFieldNoCopy(live.Object, path...)
	n, _ := normalizeNumber(v).(int64)
	return n
}

func replicasUnsettled(live *unstructured.Unstructured) string {
	if paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused"); paused || conditionIs(live, "ReplicaFailure", "True") {
		return ""
	}
	want := int64(1)
	if v, ok, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", "replicas"); ok {
		want, _ = normalizeNumber(v).(int64)
	}
	switch {
	case integerAt(live, "status", "observedGeneration") < live.GetGeneration():
		return "the generation is not observed"
	case integerAt(live, "status", "readyReplicas") < want:
		return "replicas are not ready"
	case integerAt(live, "status", "availableReplicas") < want && live.GetKind() != "ReplicaSet":
		return "replicas are not available"
	case live.GetKind() == "Deployment" && !conditionReasonIs(live, "Progressing", "NewReplicaSetAvailable"):
		return "the rollout is not finished"
	}
	return ""
}

func daemonsUnsettled(live *unstructured.Unstructured) string {
	if n := integerAt(live, "status", "desiredNumberScheduled"); n == 0 || integerAt(live, "status", "numberAvailable") < n {
		return "pods are not available"
	}
	return ""
}

// conditionIs reports whether a condition has a status.
func conditionIs(live *unstructured.Unstructured, kind, status string) bool {
	return conditionField(live, kind, "status") == status
}

func conditionReasonIs(live *unstructured.Unstructured, kind, reason string) bool {
	return conditionField(live, kind, "reason") == reason
}

func conditionField(live *unstructured.Unstructured, kind, field string) string {
	list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, e := range list {
		if c, ok := e.(map[string]any); ok && c["type"] == kind {
			text, _ := c[field].(string)
			return text
		}
	}
	return ""
}

func jobUnsettled(live *unstructured.Unstructured) string {
	for _, kind := range []string{"Complete", "Failed", "Suspended"} {
		if conditionIs(live, kind, "True") {
			return ""
		}
	}
	return "the job is not finished"
}

func podUnsettled(live *unstructured.Unstructured) string {
	switch phase, _, _ := unstructured.NestedString(live.Object, "status", "phase"); {
	case phase == "Succeeded", phase == "Failed", phase == "Running" && conditionIs(live, "Ready", "True"):
		return ""
	}
	return "the pod is not ready"
}

func volumeClaimUnsettled(live *unstructured.Unstructured) string {
	if phase, _, _ := unstructured.NestedString(live.Object, "status", "phase"); phase != "Bound" {
		return "the claim is not bound"
	}
	return ""
}

func balancerUnsettled(live *unstructured.Unstructured) string {
	if kind, _, _ := unstructured.NestedString(live.Object, "spec", "type"); live.GetKind() == "Service" && kind != "LoadBalancer" {
		return ""
	}
	if list, _, _ := unstructured.NestedSlice(live.Object, "status", "loadBalancer", "ingress"); len(list) == 0 {
		return "it has no address"
	}
	return ""
}

func unsettledWithoutConditions(live *unstructured.Unstructured) string {
	if list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions"); len(list) == 0 {
		return "it has no conditions"
	}
	return ""
}

// autoscalerUnsettled reads version 1 also, which has its conditions in an annotation.
func autoscalerUnsettled(live *unstructured.Unstructured) string {
	if live.GetAnnotations()["autoscaling.alpha.kubernetes.io/conditions"] != "" {
		return ""
	}
	return unsettledWithoutConditions(live)
}

func definitionUnsettled(live *unstructured.Unstructured) string {
	if !conditionIs(live, "Established", "True") {
		return "the kind is not established"
	}
	return ""
}

func quotaUnsettled(live *unstructured.Unstructured) string {
	if hard, _, _ := unstructured.NestedMap(live.Object, "status", "hard"); len(hard) == 0 {
		return "the quota is not counted"
	}
	return ""
}

// ComparableStatusText returns a text that changes with the comparable status of the objects.
func ComparableStatusText(objects []*unstructured.Unstructured) string {
	var b strings.Builder
	for _, o := range objects {
		if o != nil {
			b.WriteString(comparableStatusText(o))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
