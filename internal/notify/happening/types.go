package happening

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// rolloutBegan is the hidden type of events that RolloutCompleted ends.
const rolloutBegan v1alpha1.NotificationEvent = "RolloutBegan"

// eventTypes is the table of the types of events. A type that another one ends comes before it.
var eventTypes = []eventType{
	{
		name: v1alpha1.EventSourceFailed, kind: KindSource, title: "Source failed",
		meaning: "The content of the Source cannot be read, or an object of it is not applied on the hub. Another commit and another reason are events of their own.",
		find:    findSourceFailure,
	},
	{
		name: v1alpha1.EventSourceApplied, kind: KindSource, title: "Source applied", ends: v1alpha1.EventSourceFailed,
		meaning: "Another commit is applied on the hub in whole, or the Source has recovered from a failure.",
		find:    findAppliedCommit,
	},
	{
		name: v1alpha1.EventSourceDrifted, kind: KindSource, title: "Source drifted",
		meaning: "Others have changed or deleted objects of the Source on the hub.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Source.Conditions, v1alpha1.SourceInSync, metav1.ConditionFalse))
		},
	},
	{
		name: v1alpha1.EventSourceInSync, kind: KindSource, title: "Source in sync", ends: v1alpha1.EventSourceDrifted, isOnlyEnd: true,
		meaning: "The objects on the hub are as the Source applied them, after SourceDrifted.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Source.Conditions, v1alpha1.SourceInSync, metav1.ConditionTrue))
		},
	},
	{
		name: v1alpha1.EventBundleDegraded, kind: KindBundle, title: "Application degraded",
		meaning: "An object could not be applied in some cluster, or is not healthy there and does not become healthy without help.",
		find:    findDegraded,
	},
	{
		name: v1alpha1.EventBundleRecovered, kind: KindBundle, title: "Application recovered", ends: v1alpha1.EventBundleDegraded, isOnlyEnd: true,
		meaning: "All objects are healthy in all connected clusters, after BundleDegraded.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Bundle.Status.Conditions, v1alpha1.BundleReady, metav1.ConditionTrue))
		},
	},
	{
		name: v1alpha1.EventBundleWaits, kind: KindBundle, title: "Application waits",
		meaning: "The Bundle waits for a person, for one of any reason. Waits for an approval or a confirmation are among them.",
		find:    findWaitForPerson,
	},
	{
		name: v1alpha1.EventRolloutPaused, kind: KindBundle, title: "Rollout paused",
		meaning: "A person paused the rollout.",
		find:    findPause,
	},
	{
		name: v1alpha1.EventRolloutResumed, kind: KindBundle, title: "Rollout resumed",
		meaning: "A person resumed the rollout.",
		find: func(s *Subject) *finding {
			r := s.Bundle.Spec.Resume
			if r == nil || r.At.IsZero() {
				return nil
			}
			return &finding{key: formatKey(r.At.Time), since: r.At.Time, Details: Details{By: r.By}}
		},
	},
	{
		name: v1alpha1.EventRolloutWaitsForApproval, kind: KindBundle, title: "Rollout waits for approval",
		meaning: "A stage of the rollout waits until people approve the revision.",
		find:    func(s *Subject) *finding { return findRolloutReason(s, atoll.ReasonWaitsForApproval) },
	},
	{
		name: v1alpha1.EventRolloutFailed, kind: KindBundle, title: "Rollout failed",
		meaning: "A stage or a gate of the rollout failed, too many clusters are unhealthy, or the rollout was rolled back.",
		find: func(s *Subject) *finding {
			return findRolloutReason(s, atoll.ReasonStageFailed, atoll.ReasonGateFailed, atoll.ReasonTooManyUnhealthy, atoll.ReasonRolledBack, atoll.ReasonRollbackFailed)
		},
	},
	{name: rolloutBegan, kind: KindBundle, isHidden: true, find: findRolloutUnderway},
	{
		name: v1alpha1.EventRolloutCompleted, kind: KindBundle, title: "Rollout completed", ends: rolloutBegan, isOnlyEnd: true,
		meaning: "No connected cluster waits for its turn in a rollout that a policy states.",
		find:    findCompletedRollout,
	},
	{
		name: v1alpha1.EventRemovalWaits, kind: KindBundle, title: "Removal waits for a confirmation",
		meaning: "A removal from clusters waits until a person confirms its plan.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Bundle.Status.Conditions, v1alpha1.BundleRemovalHeld, metav1.ConditionTrue))
		},
	},
	{
		name: v1alpha1.EventClusterWaitsForAcceptance, kind: KindCluster, title: "Cluster waits for acceptance",
		meaning: "A cluster requests to join the fleet, and waits until a person accepts it.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Cluster.Conditions, v1alpha1.ClusterAccepted, metav1.ConditionFalse))
		},
	},
	{
		name: v1alpha1.EventClusterDisconnected, kind: KindCluster, title: "Cluster disconnected",
		meaning: "The hub has lost the connection to the agent. Workloads in the cluster go on.",
		find:    findDisconnected,
	},
	{
		name: v1alpha1.EventClusterNotReady, kind: KindCluster, title: "Cluster not ready",
		meaning: "The agent is connected, and the cluster is not ready.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Cluster.Conditions, v1alpha1.ClusterReady, metav1.ConditionFalse))
		},
	},
	{
		name: v1alpha1.EventClusterReady, kind: KindCluster, title: "Cluster ready",
		meaning: "The cluster is connected and ready: it has joined the fleet, or is back.",
		find: func(s *Subject) *finding {
			return findingOf(conditionIs(s.Cluster.Conditions, v1alpha1.ClusterReady, metav1.ConditionTrue))
		},
	},
	{
		name: v1alpha1.EventClusterRemovalWaits, kind: KindCluster, title: "Removal of a cluster waits for a confirmation",
		meaning: "The removal of a cluster from the fleet waits until a person confirms its plan.",
		find:    findHeldClusterRemoval,
	},
}

// findSourceFailure returns why the content of a Source is not read or not applied.
func findSourceFailure(s *Subject) *finding {
	if s.IsSuspended {
		return nil
	}
	c := conditionIs(s.Source.Conditions, v1alpha1.SourceRendered, metav1.ConditionFalse)
	if c == nil {
		c = conditionIs(s.Source.Conditions, v1alpha1.SourceApplied, metav1.ConditionFalse)
	}
	if c == nil || c.Reason == string(atoll.ReasonSuspended) || c.Reason == string(atoll.ReasonNotRendered) {
		return nil
	}
	f := findingOf(c)
	f.key, f.Commit = hashTexts(c.Type, c.Reason, f.key, s.Source.SeenCommit), s.Source.SeenCommit
	return f
}

// findAppliedCommit returns the commit that is applied in whole. The object does not state since when.
func findAppliedCommit(s *Subject) *finding {
	st := s.Source
	if st.Commit == "" || conditionIs(st.Conditions, v1alpha1.SourceRendered, metav1.ConditionTrue) == nil {
		return nil
	}
	c := conditionIs(st.Conditions, v1alpha1.SourceApplied, metav1.ConditionTrue)
	if c == nil {
		return nil
	}
	message := c.Message
	if st.Message != "" {
		message = st.Message + "; " + message
	}
	return &finding{key: st.Commit, Details: Details{Message: message, Commit: st.Commit, By: st.Author}}
}

func findDegraded(s *Subject) *finding {
	conditions := s.Bundle.Status.Conditions
	c := conditionIs(conditions, v1alpha1.BundleReady, metav1.ConditionFalse)
	if c == nil || c.Reason != string(atoll.ReasonDegraded) && c.Reason != string(atoll.ReasonFailed) {
		return nil
	}
	f := findingOf(c)
	if wait := s.Bundle.Status.WaitsFor; wait != "" {
		f.Message += "; it waits for " + wait
	}
	f.Revision = s.Bundle.Status.Revision
	return f
}

// findWaitForPerson returns what a Bundle waits for, where a person must act.
func findWaitForPerson(s *Subject) *finding {
	w := s.Bundle.Status.Wait
	if w == nil || !isPerson(w.Actor) {
		return nil
	}
	return &finding{key: hashTexts(w.Reason, formatKey(w.Since.Time)), since: w.Since.Time, Details: Details{
		Reason: w.Reason, Message: s.Bundle.Status.WaitsFor, Revision: s.Bundle.Status.Revision, Cluster: w.Cluster, Actor: w.Actor,
	}}
}

// isPerson reports whether an actor of the table of reasons is a person.
func isPerson(actor string) bool {
	return slices.Contains([]atoll.Actor{atoll.ActorMember, atoll.ActorHub, atoll.ActorUser, atoll.ActorConfirmer, atoll.ActorApprover}, atoll.Actor(actor))
}

func findPause(s *Subject) *finding {
	p := s.Bundle.Spec.Pause
	if p == nil {
		return nil
	}
	message := cmp.Or(p.Message, p.Reason)
	if p.Message != "" && p.Reason != "" {
		message = p.Reason + ": " + p.Message
	}
	return &finding{key: formatKey(p.Since.Time), since: p.Since.Time, Details: Details{Reason: string(atoll.ReasonRolloutPaused), Message: message, By: p.By, Actor: actorOf(string(atoll.ReasonRolloutPaused))}}
}

// findRolloutReason returns what a rollout waits for, where that is one of some reasons.
func findRolloutReason(s *Subject, reasons ...atoll.Reason) *finding {
	r := s.Bundle.Status.Rollout
	if r == nil || !slices.Contains(reasons, atoll.Reason(r.Reason)) {
		return nil
	}
	f := &finding{Details: Details{Reason: r.Reason, Message: r.Message, Revision: s.Bundle.Status.Revision, Stage: r.CurrentStage, Actor: r.Actor}}
	if r.Since != nil {
		f.since = r.Since.Time
	}
	f.key = hashTexts(r.Reason, r.CurrentStage, f.Revision, formatKey(f.since))
	return f
}

func findRolloutUnderway(s *Subject) *finding {
	r := s.Bundle.Status.Rollout
	if s.Bundle.Spec.Rollout == nil || r == nil || r.CurrentStage == "" || r.Reason == "" {
		return nil
	}
	return &finding{key: s.Bundle.Status.Revision}
}

// findCompletedRollout returns that no cluster waits for its turn. Suspended clusters are connected, and wait.
func findCompletedRollout(s *Subject) *finding {
	r := s.Bundle.Status.Rollout
	if s.Bundle.Spec.Rollout == nil || r == nil || r.CurrentStage != "" || r.Reason == string(atoll.ReasonDispatchingSuspended) {
		return nil
	}
	return &finding{key: s.Bundle.Status.Revision, Details: Details{Revision: s.Bundle.Status.Revision}}
}

// findDisconnected returns that the state of a cluster that was connected is unknown.
func findDisconnected(s *Subject) *finding {
	c := conditionIs(s.Cluster.Conditions, v1alpha1.ClusterReady, metav1.ConditionUnknown)
	if c == nil || slices.Contains([]atoll.Reason{atoll.ReasonNotAccepted, atoll.ReasonNeverConnected, atoll.ReasonWaitsForInventory}, atoll.Reason(c.Reason)) {
		return nil
	}
	return findingOf(c)
}

func findHeldClusterRemoval(s *Subject) *finding {
	if s.Cluster.Removal == nil || s.Cluster.Removal.Plan == "" {
		return nil
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		c := conditionIs(s.Cluster.Conditions, v1alpha1.ClusterRemoving, status)
		if c != nil && c.Reason == string(atoll.ReasonWaitsForConfirmation) {
			f := findingOf(c)
			f.key = s.Cluster.Removal.Plan
			return f
		}
	}
	return nil
}
