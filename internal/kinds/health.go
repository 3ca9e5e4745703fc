package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// AssessHealth returns the health of an object as its own cluster reports it, a CamelCase
// reason, and a message of at most MaxMessage bytes. Reason and message are empty for a Healthy
// object. Progressing can become Healthy by itself, Degraded cannot. An object that is being
// deleted is Progressing.
func AssessHealth(obj *unstructured.Unstructured) (h atoll.Health, reason, message string) {
	if obj.GetDeletionTimestamp() != nil {
		return atoll.Progressing, "Terminating", "the object is being deleted"
	}
	h, reason, message = traitsOf(obj).health(obj)
	return h, reason, phrase.CutText(message, MaxMessage)
}

type healthFunc = func(obj *unstructured.Unstructured) (h atoll.Health, reason, message string)

func healthyResult() (atoll.Health, string, string) { return atoll.Healthy, "", "" }

const (
	notObserved    = string(atoll.ReasonNotObserved)
	notObservedYet = "the member's controller has not seen the latest change yet"
)

func notObservedResult() (atoll.Health, string, string) {
	return atoll.Progressing, notObserved, notObservedYet
}

func existenceHealth(*unstructured.Unstructured) (atoll.Health, string, string) {
	return healthyResult()
}

func deploymentHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	sp, st := specOf(obj), statusOf(obj)
	cs := conditionsOf(st)
	if c := findCondition(cs, "Progressing"); c.hasStatus("False") && c.reason == progressDeadlineExceeded {
		return atoll.Degraded, c.reason, c.message
	}
	if boolField(sp, "paused") {
		return atoll.Suspended, "Paused", "the rollout is paused"
	}
	want := countFieldOr(sp, "replicas", 1)
	updated, available := countField(st, "updatedReplicas"), countField(st, "availableReplicas")
	if c := findCondition(cs, "ReplicaFailure"); c.hasStatus("True") && available < want {
		return atoll.Progressing, c.reason, c.message
	}
	switch {
	case updated < want:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", updated, want)
	case countField(st, "replicas") > updated:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d old replicas are still to go", countField(st, "replicas")-updated)
	case available < updated:
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, updated)
	}
	return healthyResult()
}

func statefulSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	sp, st := specOf(obj), statusOf(obj)
	want := countFieldOr(sp, "replicas", 1)
	if ready := countField(st, "readyReplicas"); ready < want {
		return atoll.Progressing, "NotReady", fmt.Sprintf("%d of %d replicas are ready", ready, want)
	}
	if available, ok := integerField(st, "availableReplicas"); ok && available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, want)
	}
	strategy := nestedMap(sp, "updateStrategy")
	if stringField(strategy, "type") == "OnDelete" {
		return healthyResult()
	}
	updated := countField(st, "updatedReplicas")
	if partition := countField(nestedMap(strategy, "rollingUpdate"), "partition"); partition > 0 {
		if updated < want-partition {
			return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas above the partition are updated", updated, want-partition)
		}
		return healthyResult()
	}
	if stringField(st, "currentRevision") != stringField(st, "updateRevision") {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", updated, want)
	}
	return healthyResult()
}

func daemonSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	st := statusOf(obj)
	want := countField(st, "desiredNumberScheduled")
	if stringField(nestedMap(specOf(obj), "updateStrategy"), "type") != "OnDelete" {
		if updated := countField(st, "updatedNumberScheduled"); updated < want {
			return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d pods are updated", updated, want)
		}
	}
	if available := countField(st, "numberAvailable"); available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d pods are available", available, want)
	}
	return healthyResult()
}

func replicaSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	st := statusOf(obj)
	want, available := countFieldOr(specOf(obj), "replicas", 1), countField(st, "availableReplicas")
	if available >= want {
		return healthyResult()
	}
	if c := findCondition(conditionsOf(st), "ReplicaFailure"); c.hasStatus("True") {
		return atoll.Progressing, c.reason, c.message
	}
	return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, want)
}

func jobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	cs := conditionsOf(st)
	for _, kind := range []string{"Failed", "FailureTarget"} {
		if c := findCondition(cs, kind); c.hasStatus("True") {
			return atoll.Degraded, c.reason, c.message
		}
	}
	if findCondition(cs, "Complete").hasStatus("True") {
		return healthyResult()
	}
	switch {
	case isQueuedByKueue(obj):
		return queuedResult()
	case boolField(specOf(obj), "suspend"):
		return atoll.Suspended, "Suspended", "the job is suspended"
	}
	return atoll.Progressing, "Running", fmt.Sprintf("%d pods active, %d succeeded, %d failed",
		countField(st, "active"), countField(st, "succeeded"), countField(st, "failed"))
}

func cronJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if boolField(specOf(obj), "suspend") {
		return atoll.Suspended, "Suspended", "the schedule is suspended"
	}
	return healthyResult()
}

// stuckWaitingReasons are reasons of a waiting container that last until a change.
var stuckWaitingReasons = map[string]bool{
	"CrashLoopBackOff": true, "ImagePullBackOff": true, "ErrImagePull": true, "ErrImageNeverPull": true,
	"InvalidImageName": true, "CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}

func podHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	switch stringField(st, "phase") {
	case "Failed":
		return atoll.Degraded, orElse(stringField(st, "reason"), "Failed"), orElse(stringField(st, "message"), "the pod failed")
	case "Succeeded":
		return healthyResult()
	}
	for _, key := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, c := range listField(st, key) {
			cm, _ := c.(map[string]any)
			waiting := nestedMap(cm, "state", "waiting")
			if reason := stringField(waiting, "reason"); stuckWaitingReasons[reason] {
				return atoll.Degraded, reason, fmt.Sprintf("container %s: %s", stringField(cm, "name"), stringField(waiting, "message"))
			}
		}
	}
	cs := conditionsOf(st)
	if c := findCondition(cs, "PodScheduled"); c.hasStatus("False") {
		return atoll.Progressing, orElse(c.reason, "Unscheduled"), c.message
	}
	policy := stringField(specOf(obj), "restartPolicy")
	if policy == "Never" || policy == "OnFailure" {
		return atoll.Progressing, "Running", "the pod has not run to completion yet"
	}
	if c := findCondition(cs, "Ready"); !c.hasStatus("True") {
		return atoll.Progressing, orElse(c.reason, "NotReady"), orElse(c.message, "the pod is not ready")
	}
	return healthyResult()
}

func serviceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if stringField(specOf(obj), "type") == "LoadBalancer" && len(listField(nestedMap(statusOf(obj), "loadBalancer"), "ingress")) == 0 {
		return atoll.Progressing, "NoAddress", "the load balancer has no address yet"
	}
	return healthyResult()
}

func volumeClaimHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	switch stringField(statusOf(obj), "phase") {
	case "Bound":
		return healthyResult()
	case "Lost":
		return atoll.Degraded, "Lost", "the claim lost its volume"
	}
	return atoll.Progressing, "Pending", "the claim is not bound to a volume yet"
}

func persistentVolumeHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	switch phase := stringField(st, "phase"); phase {
	case "Available", "Bound", "Released":
		return healthyResult()
	case "Failed":
		return atoll.Degraded, orElse(stringField(st, "reason"), phase), stringField(st, "message")
	}
	return atoll.Progressing, "Pending", "the volume is not available yet"
}

func disruptionBudgetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	if c := findCondition(conditionsOf(statusOf(obj)), "DisruptionAllowed"); c.reason == "SyncFailed" {
		return atoll.Degraded, c.reason, c.message
	}
	if want, have := countField(statusOf(obj), "desiredHealthy"), countField(statusOf(obj), "currentHealthy"); have < want {
		return atoll.Progressing, "InsufficientPods", fmt.Sprintf("%d of %d pods that the budget requires are healthy", have, want)
	}
	return healthyResult()
}

func autoscalerHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := autoscalerConditions(obj)
	able, active := findCondition(cs, "AbleToScale"), findCondition(cs, "ScalingActive")
	switch {
	case able.hasStatus("False"):
		return atoll.Degraded, able.reason, able.message
	case active.hasStatus("False") && active.reason != "ScalingDisabled":
		return atoll.Degraded, active.reason, active.message
	case able.conditionType == "" && countField(statusOf(obj), "desiredReplicas") == 0:
		return notObservedResult()
	}
	return healthyResult()
}

func crdHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	if c := findCondition(cs, "NamesAccepted"); c.hasStatus("False") {
		return atoll.Degraded, c.reason, c.message
	}
	if c := findCondition(cs, "Established"); !c.hasStatus("True") {
		return atoll.Progressing, orElse(c.reason, "NotEstablished"), orElse(c.message, "the API is not served yet")
	}
	return healthyResult()
}

// signingRequestHealth is the health of a CertificateSigningRequest, which waits for an approval.
func signingRequestHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	cs := conditionsOf(st)
	for _, kind := range []string{"Denied", "Failed"} {
		if c := findCondition(cs, kind); c.hasStatus("True") {
			return atoll.Degraded, orElse(c.reason, kind), c.message
		}
	}
	if stringField(st, "certificate") == "" {
		return atoll.Progressing, "NotIssued", "the certificate is not issued yet"
	}
	return healthyResult()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

const progressDeadlineExceeded = "ProgressDeadlineExceeded"
