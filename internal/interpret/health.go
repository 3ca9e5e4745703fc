package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// Health of an object as its own cluster reports it, with a CamelCase reason and a
// message for people of at most MaxMessage bytes; both are empty for a Healthy
// object. Progressing may become Healthy by itself, Degraded will not. An object
// that is being deleted is Progressing.
func Health(obj *unstructured.Unstructured) (h atoll.Health, reason, message string) {
	if obj.GetDeletionTimestamp() != nil {
		return atoll.Progressing, "Terminating", "the object is being deleted"
	}
	h, reason, message = known(obj).health(obj)
	return h, reason, cut(message, MaxMessage)
}

type verdict = func(obj *unstructured.Unstructured) (h atoll.Health, reason, message string)

func healthy() (atoll.Health, string, string) { return atoll.Healthy, "", "" }

const (
	notObserved    = "NotObserved"
	notObservedYet = "the member's controller has not seen the latest change yet"
)

func unobserved() (atoll.Health, string, string) {
	return atoll.Progressing, notObserved, notObservedYet
}

func existing(*unstructured.Unstructured) (atoll.Health, string, string) { return healthy() }

func deploymentHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	sp, st := spec(obj), status(obj)
	cs := conditionsOf(st)
	if c := find(cs, "Progressing"); c.is("False") && c.reason == deadlineExceeded {
		return atoll.Degraded, c.reason, c.message
	}
	if flag(sp, "paused") {
		return atoll.Suspended, "Paused", "the rollout is paused"
	}
	want := countOr(sp, "replicas", 1)
	updated, available := count(st, "updatedReplicas"), count(st, "availableReplicas")
	if c := find(cs, "ReplicaFailure"); c.is("True") && available < want {
		return atoll.Progressing, c.reason, c.message
	}
	switch {
	case updated < want:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", updated, want)
	case count(st, "replicas") > updated:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d old replicas are still to go", count(st, "replicas")-updated)
	case available < updated:
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, updated)
	}
	return healthy()
}

func statefulSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	sp, st := spec(obj), status(obj)
	want := countOr(sp, "replicas", 1)
	if ready := count(st, "readyReplicas"); ready < want {
		return atoll.Progressing, "NotReady", fmt.Sprintf("%d of %d replicas are ready", ready, want)
	}
	if available, ok := number(st, "availableReplicas"); ok && available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, want)
	}
	strategy := child(sp, "updateStrategy")
	if text(strategy, "type") == "OnDelete" {
		return healthy()
	}
	updated := count(st, "updatedReplicas")
	if partition := count(child(strategy, "rollingUpdate"), "partition"); partition > 0 {
		if updated < want-partition {
			return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas above the partition are updated", updated, want-partition)
		}
		return healthy()
	}
	if text(st, "currentRevision") != text(st, "updateRevision") {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", updated, want)
	}
	return healthy()
}

func daemonSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	st := status(obj)
	want := count(st, "desiredNumberScheduled")
	if text(child(spec(obj), "updateStrategy"), "type") != "OnDelete" {
		if updated := count(st, "updatedNumberScheduled"); updated < want {
			return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d pods are updated", updated, want)
		}
	}
	if available := count(st, "numberAvailable"); available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d pods are available", available, want)
	}
	return healthy()
}

func replicaSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	st := status(obj)
	want, available := countOr(spec(obj), "replicas", 1), count(st, "availableReplicas")
	if available >= want {
		return healthy()
	}
	if c := find(conditionsOf(st), "ReplicaFailure"); c.is("True") {
		return atoll.Progressing, c.reason, c.message
	}
	return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d replicas are available", available, want)
}

func jobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	cs := conditionsOf(st)
	for _, kind := range []string{"Failed", "FailureTarget"} {
		if c := find(cs, kind); c.is("True") {
			return atoll.Degraded, c.reason, c.message
		}
	}
	if find(cs, "Complete").is("True") {
		return healthy()
	}
	switch {
	case queued(obj):
		return inQueue()
	case flag(spec(obj), "suspend"):
		return atoll.Suspended, "Suspended", "the job is suspended"
	}
	return atoll.Progressing, "Running", fmt.Sprintf("%d pods active, %d succeeded, %d failed",
		count(st, "active"), count(st, "succeeded"), count(st, "failed"))
}

func cronJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if flag(spec(obj), "suspend") {
		return atoll.Suspended, "Suspended", "the schedule is suspended"
	}
	return healthy()
}

// stuckWaiting are reasons of a waiting container that do not pass without a change.
var stuckWaiting = map[string]bool{
	"CrashLoopBackOff": true, "ImagePullBackOff": true, "ErrImagePull": true, "ErrImageNeverPull": true,
	"InvalidImageName": true, "CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}

func podHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	switch text(st, "phase") {
	case "Failed":
		return atoll.Degraded, orElse(text(st, "reason"), "Failed"), orElse(text(st, "message"), "the pod failed")
	case "Succeeded":
		return healthy()
	}
	for _, key := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, c := range list(st, key) {
			cm, _ := c.(map[string]any)
			waiting := child(cm, "state", "waiting")
			if reason := text(waiting, "reason"); stuckWaiting[reason] {
				return atoll.Degraded, reason, fmt.Sprintf("container %s: %s", text(cm, "name"), text(waiting, "message"))
			}
		}
	}
	cs := conditionsOf(st)
	if c := find(cs, "PodScheduled"); c.is("False") {
		return atoll.Progressing, orElse(c.reason, "Unscheduled"), c.message
	}
	policy := text(spec(obj), "restartPolicy")
	if policy == "Never" || policy == "OnFailure" {
		return atoll.Progressing, "Running", "the pod has not run to completion yet"
	}
	if c := find(cs, "Ready"); !c.is("True") {
		return atoll.Progressing, orElse(c.reason, "NotReady"), orElse(c.message, "the pod is not ready")
	}
	return healthy()
}

func serviceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if text(spec(obj), "type") == "LoadBalancer" && len(list(child(status(obj), "loadBalancer"), "ingress")) == 0 {
		return atoll.Progressing, "NoAddress", "the load balancer has no address yet"
	}
	return healthy()
}

func claimHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	switch text(status(obj), "phase") {
	case "Bound":
		return healthy()
	case "Lost":
		return atoll.Degraded, "Lost", "the claim lost its volume"
	}
	return atoll.Progressing, "Pending", "the claim is not bound to a volume yet"
}

func volumeHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	switch phase := text(st, "phase"); phase {
	case "Available", "Bound", "Released":
		return healthy()
	case "Failed":
		return atoll.Degraded, orElse(text(st, "reason"), phase), text(st, "message")
	}
	return atoll.Progressing, "Pending", "the volume is not available yet"
}

func budgetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	if c := find(conditionsOf(status(obj)), "DisruptionAllowed"); c.reason == "SyncFailed" {
		return atoll.Degraded, c.reason, c.message
	}
	return healthy()
}

func autoscalerHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	able, active := find(cs, "AbleToScale"), find(cs, "ScalingActive")
	switch {
	case able.is("False"):
		return atoll.Degraded, able.reason, able.message
	case active.is("False") && active.reason != "ScalingDisabled":
		return atoll.Degraded, active.reason, active.message
	case able.kind == "" && count(status(obj), "desiredReplicas") == 0:
		return unobserved()
	}
	return healthy()
}

func definitionHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	if c := find(cs, "NamesAccepted"); c.is("False") {
		return atoll.Degraded, c.reason, c.message
	}
	if c := find(cs, "Established"); !c.is("True") {
		return atoll.Progressing, orElse(c.reason, "NotEstablished"), orElse(c.message, "the API is not served yet")
	}
	return healthy()
}

// signingHealth of a request for a certificate, which somebody has to approve.
func signingHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	cs := conditionsOf(st)
	for _, kind := range []string{"Denied", "Failed"} {
		if c := find(cs, kind); c.is("True") {
			return atoll.Degraded, orElse(c.reason, kind), c.message
		}
	}
	if text(st, "certificate") == "" {
		return atoll.Progressing, "NotIssued", "the certificate is not issued yet"
	}
	return healthy()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

const deadlineExceeded = "ProgressDeadlineExceeded"
