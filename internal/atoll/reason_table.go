package atoll

// Actor is the person or component that must act before a wait ends.
type Actor string

// The actors. ActorNone: nothing has to be done.
const (
	ActorNone      Actor = "none"
	ActorAtoll     Actor = "Atoll"
	ActorAgent     Actor = "the agent"
	ActorMember    Actor = "the member's administrator"
	ActorHub       Actor = "the hub's administrator"
	ActorUser      Actor = "the application's owner"
	ActorConfirmer Actor = "a person that may confirm removals"
	ActorApprover  Actor = "a person that may approve the rollout"
)

// ReasonInfo documents one reason.
type ReasonInfo struct {
	Reason Reason
	// Subject is the kind of object that carries the reason.
	Subject string
	// Actor must act before the state ends.
	Actor Actor
	// Sentence is what the reason means.
	Sentence string
}

// ActorOf returns the person or component that must act before the state of a reason ends. It is
// ActorNone for a reason of the object's own kind.
func ActorOf(r Reason) Actor {
	if actor, known := actorByReason[r]; known {
		return actor
	}
	return ActorNone
}

// IsReason reports whether the table has the reason.
func IsReason(r Reason) bool {
	_, known := actorByReason[r]
	return known
}

var actorByReason = func() map[Reason]Actor {
	out := make(map[Reason]Actor, len(Reasons))
	for _, info := range Reasons {
		out[info.Reason] = info.Actor
	}
	return out
}()

// Reasons is the table of all reasons, by subject. docs/reasons.md is generated from it. It is not
// to be changed.
var Reasons = []ReasonInfo{
	{ReasonUnfit, "row", ActorUser, "The cluster no longer fits the placement that chose it; what runs there is kept."},
	{ReasonNoClusterFits, "row", ActorUser, "No cluster fits the placement; what was placed before stays where it is."},
	{ReasonSpreadUnmet, "row", ActorUser, "The minimum of a spread constraint cannot be met; nothing changes until it can."},
	{ReasonNoCapacity, "row", ActorHub, "The stated capacity of the cluster has no room for the newer revision; the row stays at its revision."},
	{ReasonPlacementEdited, "row", ActorAtoll, "An edit of the placement excludes the cluster; the workload leaves it."},
	{ReasonMovedToBetter, "row", ActorAtoll, "The workload moves to a cluster with a better score."},
	{ReasonGroupLeft, "row", ActorAtoll, "An earlier group of clusterAffinities is used again; the workload leaves the later group."},
	{ReasonOverflowReturned, "row", ActorAtoll, "The clusters before it have places for all replicas again; the replicas that overflowed return to them."},
	{ReasonRebalanced, "row", ActorAtoll, "A person had the Bundle placed from scratch, and other clusters were chosen."},
	{ReasonEvicted, "row", ActorAtoll, "The cluster has a NoExecute taint that the placement does not tolerate."},
	{ReasonClusterRemoved, "row", ActorAtoll, "The cluster is being removed from the fleet."},
	{ReasonBundleDeleted, "row", ActorAtoll, "The Bundle, or the namespace of its templates, is deleted."},
	{ReasonRemovalHeld, "row", ActorConfirmer, "The removal is over the budget, or of an object with removal: Confirm, and waits for the confirmation of exactly this plan."},
	{ReasonRemovedBeforeRestore, "row", ActorConfirmer, "The member remembers a removal that the restored hub does not; it waits for a decision."},
	{ReasonReplacementsNotReady, "row", ActorConfirmer, "The replacements did not become healthy in time; the removal waits for a confirmation."},
	{ReasonHubHolds, "wait", ActorHub, "The hub was restored from an older state and issues nothing until `atoll restore accept`."},
	{ReasonWaitsForConfirmation, "wait", ActorConfirmer, "A removal waits for the confirmation of exactly its plan."},
	{ReasonWaitsForReplacements, "wait", ActorAtoll, "A removal waits until its replacements are healthy."},
	{ReasonWaitsForCluster, "wait", ActorMember, "The cluster is disconnected; the change is delivered when it connects again."},
	{ReasonWaitsForApply, "wait", ActorAgent, "The latest change is ordered and not applied yet."},
	{ReasonWaitsForRemoval, "wait", ActorAgent, "The removal is ordered and not carried out yet."},
	{ReasonWaitsForOldCopy, "wait", ActorAtoll, "The old copy of a move is removed before its replacement starts, as `moveOrder` states."},
	{ReasonWaitsForDisconnectedCopy, "wait", ActorHub, "The old copy of a move may still run in a disconnected cluster. Connect the cluster, or give it up with `atoll remove --force`."},
	{ReasonRolloutPaused, "wait", ActorUser, "A person paused the rollout; the row keeps its revision until a person resumes."},
	{ReasonStageFailed, "wait", ActorUser, "A stage has more failures than `maxFailures`; the rollout waits for another template or a person that resumes."},
	{ReasonWaitsForApproval, "wait", ActorApprover, "A gate of the rollout waits until people with the right to approve the Bundle approve the revision for the stage."},
	{ReasonWaitsForGateTime, "wait", ActorAtoll, "A gate of the rollout waits for its time after the earlier stages are done."},
	{ReasonWaitsForExpression, "wait", ActorUser, "The expression of a gate of the rollout is not true for the counts of clusters."},
	{ReasonWaitsForStage, "wait", ActorAtoll, "The row keeps its revision until the earlier stages of the rollout are healthy."},
	{ReasonWaitsForSuccessTime, "wait", ActorAtoll, "An earlier stage is healthy, and must stay so for `minSuccessTime`."},
	{ReasonMaxConcurrencyReached, "wait", ActorAtoll, "As many clusters of the stage change as `maxConcurrency` allows."},
	{ReasonMaxUnavailableReached, "wait", ActorMember, "As many connected clusters are unhealthy as `maxUnavailable` allows; the row waits until one is healthy."},
	{ReasonNotDetermined, "any condition", ActorAtoll, "The hub has not determined the condition of a new object yet."},
	{ReasonRead, "Bundle", ActorNone, "All kinds of the Bundle's objects are read, and all objects can be sent."},
	{ReasonCannotRead, "Bundle", ActorAtoll, "The hub cannot read a kind of the Bundle's objects yet; the content stays as it was."},
	{ReasonCannotSend, "Bundle", ActorUser, "An object cannot be sent as it is; its last good content stays in the clusters."},
	{ReasonPlaced, "Bundle", ActorNone, "The placement chose clusters for the Bundle."},
	{ReasonNowhere, "Bundle", ActorNone, "The placement names no cluster on purpose."},
	{ReasonDeleting, "Bundle", ActorAtoll, "The Bundle is deleted and leaves its clusters."},
	{ReasonNotScheduled, "Bundle", ActorAtoll, "The Bundle has no placement decision yet."},
	{ReasonAllPlaced, "Bundle", ActorNone, "All replicas of divided workloads are assigned to clusters."},
	{ReasonNoPlace, "Bundle", ActorUser, "Some replicas are assigned to no cluster because every cluster that fits is at its bounds."},
	{ReasonOverridden, "Bundle", ActorNone, "Override rules make clusters run more replicas than the templates state."},
	{ReasonInUse, "Bundle", ActorNone, "The preferred group of clusterAffinities is in use."},
	{ReasonNoGroups, "Bundle", ActorNone, "The placement has no groups of clusterAffinities."},
	{ReasonFallenBack, "Bundle", ActorHub, "The preferred group of clusterAffinities does not fit; a later group is in use."},
	{ReasonComesBack, "Bundle", ActorAtoll, "The preferred group fits again and is used after its delay."},
	{ReasonApplied, "Bundle", ActorNone, "Every connected cluster has applied the latest change."},
	{ReasonApplying, "Bundle", ActorAgent, "Some connected cluster has not applied the latest change yet."},
	{ReasonFailed, "Bundle", ActorUser, "An object could not be applied in some cluster."},
	{ReasonReady, "Bundle", ActorNone, "Every object is healthy in every connected cluster."},
	{ReasonProgressing, "Bundle", ActorAtoll, "Some object is not healthy yet and is expected to become healthy."},
	{ReasonDegraded, "Bundle", ActorUser, "Some object is not healthy and does not become healthy without help."},
	{ReasonClustersAway, "Bundle", ActorMember, "Only disconnected clusters hold the Bundle."},
	{ReasonQuarantined, "Bundle", ActorUser, "Rendering the Bundle costs too much. It is not rendered until its content changes or a time passes; clusters keep what they have."},
	{ReasonReconcilePanicked, "Bundle", ActorHub, "Deciding about the Bundle failed by a defect of Atoll. The Bundle stays as it is and is tried again; other Bundles go on."},
	{ReasonReleased, "Bundle", ActorNone, "No removal of the Bundle waits for a confirmation."},
	{ReasonSelectsNothing, "policy", ActorUser, "No object that is free matches the resourceSelectors."},
	{ReasonPlacementMissing, "policy", ActorUser, "The policy names a Placement that does not exist."},
	{ReasonNamespaceUnknown, "policy", ActorUser, "The namespace of the objects does not exist on the hub."},
	{ReasonNameTaken, "policy", ActorUser, "Another object has the name already."},
	{ReasonRulesApply, "override policy", ActorNone, "Rules of the policy are in the content of Bundles."},
	{ReasonInvalidRule, "override policy", ActorUser, "A selector or a rule of the policy cannot be carried out in any cluster."},
	{ReasonBound, "ClusterSetBinding", ActorNone, "The namespace may place on the ClusterSet."},
	{ReasonClusterSetMissing, "ClusterSetBinding", ActorHub, "The ClusterSet does not exist; the binding gives no cluster until it does."},
	{ReasonClustersSelected, "ClusterSet", ActorNone, "Clusters are in the ClusterSet."},
	{ReasonNoClusterMatched, "ClusterSet", ActorHub, "No cluster is in the ClusterSet; nothing is placed by it until one is."},
	{ReasonChosen, "Placement", ActorNone, "The Placement chose clusters."},
	{ReasonPending, "item", ActorAgent, "The agent has not applied the object yet."},
	{ReasonRemoving, "item", ActorAgent, "The object is being removed from the member."},
	{ReasonMoving, "item", ActorAgent, "The object is kept for the Bundle that takes it over."},
	{ReasonUnclaimed, "item", ActorUser, "No policy or annotation places the object any more; it stays as it was last sent."},
	{ReasonUnnamed, "item", ActorUser, "No object names the dependency any more; it stays as it was last sent."},
	{ReasonUnaccounted, "item", ActorUser, "The template disappeared without a user's deletion; the object stays in the member."},
	{ReasonGoneUnseen, "item", ActorMember, "The object is not in the member, and the agent did not observe its deletion."},
	{ReasonDeletedInMember, "item", ActorMember, "The object was deleted in the member by another client."},
	{ReasonRenderFailed, "item", ActorUser, "The object could not be rendered for the cluster; the last good content stays."},
	{ReasonNotServed, "item", ActorMember, "The member does not serve the kind of the object."},
	{ReasonAPISilent, "item", ActorMember, "The API of the object's kind does not answer in the member."},
	{ReasonConflict, "item", ActorUser, "An object that Atoll did not make has the name, and the conflictResolution of the policy does not take it over."},
	{ReasonInvalid, "item", ActorUser, "The member refuses the object as invalid."},
	{ReasonAdmissionDenied, "item", ActorMember, "An admission webhook or policy of the member refuses the object."},
	{ReasonForbidden, "item", ActorMember, "The agent has no permission for the object in the member."},
	{ReasonDeniedByPolicy, "item", ActorMember, "The AgentPolicy of the member does not allow the object."},
	{ReasonServiceAccountForbidden, "item", ActorMember, "The ServiceAccount that the hub names for the object lacks a right in the member. Grant it there, or name another one."},
	{ReasonTooLarge, "item", ActorUser, "The object is too large for the member."},
	{ReasonAgentMemoryFull, "item, request", ActorMember, "The agent has no memory for it; the member keeps what it has. Place or watch less there, or raise the pod's memory limit."},
	{ReasonNamespaceMissing, "item", ActorUser, "The namespace of the object does not exist in the member."},
	{ReasonNamespaceTerminating, "item", ActorMember, "The namespace of the object is being deleted in the member."},
	{ReasonMemberUnavailable, "item", ActorMember, "The member's API server does not answer."},
	{ReasonApplyFailed, "item", ActorMember, "The member refuses the object for another reason; the message says which."},
	{ReasonNotEstablished, "item", ActorAtoll, "The CustomResourceDefinition of the object is not established yet."},
	{ReasonTerminating, "item", ActorMember, "The object is being deleted in the member; a finalizer holds it."},
	{ReasonForeignObjects, "item", ActorMember, "The namespace holds objects that Atoll did not apply; it is not deleted."},
	{ReasonWaitsForObjects, "item", ActorAtoll, "The object waits for objects that it needs."},
	{ReasonDriftFight, "item", ActorMember, "Another client in the member changes the same fields again and again."},
	{ReasonDrifted, "item", ActorUser, "The object is only observed, and differs from what Atoll would apply."},
	{ReasonMissing, "item", ActorUser, "The object is only observed, and the member does not have it."},
	{ReasonNotLeaseHolder, "item", ActorMember, "Another agent holds the member's lease; this one applies nothing."},
	{ReasonInterpreted, "item", ActorUser, "The script of a ResourceInterpreter reports that the object is not healthy."},
	{ReasonInterpreterFailed, "item", ActorHub, "The script of a ResourceInterpreter failed to answer."},
	{ReasonNotObserved, "item", ActorAgent, "The status of the object has not been observed yet."},
	{ReasonAccepted, "Cluster", ActorNone, "The hub accepts the cluster."},
	{ReasonWaitsForAdministrator, "Cluster", ActorHub, "The cluster waits for `atoll accept`."},
	{ReasonAgentConnected, "Cluster", ActorNone, "The agent has a stream to the hub."},
	{ReasonAgentChecksIn, "Cluster", ActorNone, "The agent checks in at its interval."},
	{ReasonWaitsForAgent, "Cluster", ActorMember, "The agent has not connected yet."},
	{ReasonWaitsForAcceptance, "Cluster", ActorHub, "The cluster is not accepted yet."},
	{ReasonWaitsForInventory, "Cluster", ActorAgent, "The agent is connected and has not reported its inventory yet."},
	{ReasonHeldByMember, "Cluster", ActorConfirmer, "The member holds workloads that no Bundle claims."},
	{ReasonNotRenewed, "Cluster", ActorHub, "The agent's certificate ends soon and was not renewed."},
	{ReasonNotAccepted, "Cluster", ActorHub, "The hub does not accept the cluster."},
	{ReasonMemberNotReady, "Cluster", ActorMember, "The member's own API server is not ready."},
	{ReasonCheckInsMissed, "Cluster", ActorMember, "The agent missed two check-ins."},
	{ReasonStreamLost, "Cluster", ActorMember, "The agent has no stream to the hub; workloads in the member continue."},
	{ReasonNeverConnected, "Cluster", ActorMember, "The agent has never connected."},
	{ReasonWellBehaved, "Cluster", ActorNone, "The agent sent no message that no agent may send."},
	{ReasonNothingUnclaimed, "Cluster", ActorNone, "The agent reported no workload that no Bundle claims."},
	{ReasonNoRenewalOverdue, "Cluster", ActorNone, "No renewal of the agent's certificate is overdue."},
	{ReasonAgentWorks, "Cluster, Pushed", ActorNone, "The agent that the hub runs for the cluster works."},
	{ReasonStandsBy, "Cluster, Pushed", ActorNone, "Another hub replica runs the agent; this one stands by."},
	{ReasonCredentialsExpiring, "Cluster, Pushed", ActorHub, "The credentials of the member end soon."},
	{ReasonCredentialsMissing, "Cluster, Pushed", ActorHub, "The Secret with the member's credentials does not exist."},
	{ReasonCredentialsMalformed, "Cluster, Pushed", ActorHub, "The member's credentials cannot be read."},
	{ReasonCredentialsRefused, "Cluster, Pushed", ActorMember, "The member refuses the credentials."},
	{ReasonNotAllowedInMember, "Cluster, Pushed", ActorMember, "The credentials lack permissions in the member."},
	{ReasonMemberUnreachable, "Cluster, Pushed", ActorMember, "The member's API server cannot be reached from the hub."},
	{ReasonMemberNotVerified, "Cluster, Pushed", ActorHub, "The certificate of the member's API server cannot be verified."},
	{ReasonAddressRefused, "Cluster, Pushed", ActorHub, "The member's address, or its proxy's, is a loopback, link-local or similar one, which the hub does not dial unless its operator allows it."},
	{ReasonAgentFailed, "Cluster, Pushed", ActorHub, "The agent that the hub runs for the cluster fails; the message says how."},
	{ReasonAgentPanicked, "Cluster, Pushed", ActorHub, "The agent that the hub runs for the cluster panicked and was started again."},
	{ReasonCredentialsNotUsed, "Cluster, Pushed", ActorHub, "The Secret with credentials is not used by the cluster."},
	{ReasonPlanUnknown, "Cluster, Removing", ActorAtoll, "The hub cannot compute yet what the removal deletes; it tries again."},
	{ReasonForced, "Cluster, Removing", ActorNone, "The cluster was removed without waiting for its member."},
	{ReasonNeverJoined, "Cluster, Removing", ActorNone, "The cluster never joined; nothing has to be removed."},
	{ReasonWaitsForMember, "wait; Cluster, Removing", ActorMember, "The removal waits for objects that the member does not release."},
	{ReasonBundlesLeave, "Cluster, Removing", ActorAgent, "The agent removes the Bundles from the member."},
	{ReasonAgentLeaves, "Cluster, Removing", ActorAgent, "The agent removes its own state from the member."},
	{ReasonLeft, "Cluster, Removing", ActorNone, "The cluster left the fleet."},
	{ReasonExpiring, "HubSettings", ActorHub, "A certificate of the hub ends soon."},
	{ReasonReadyToFinish, "HubSettings", ActorHub, "Every connected agent has a certificate of the new CA; the rotation can be finished."},
	{ReasonAgentsFollow, "HubSettings", ActorAgent, "Some connected agents do not have a certificate of the new CA yet."},
	{ReasonNoneExpiring, "HubSettings", ActorNone, "No certificate of the hub ends soon."},
	{ReasonNotRotating, "HubSettings", ActorNone, "No rotation of the CAs is under way."},
	{ReasonUnknown, "session", ActorMember, "The hub does not know the identity of the agent; a new token is needed."},
	{ReasonReplaced, "session", ActorMember, "Another agent was accepted for the cluster; this one must stop."},
	{ReasonSuperseded, "session", ActorNone, "A newer stream of the same agent replaced the stream."},
	{ReasonElsewhere, "session", ActorNone, "A newer stream of the same agent is at another hub replica."},
	{ReasonFlooding, "session", ActorMember, "The agent sends more than an agent may send."},
	{ReasonMisbehaving, "Cluster, session", ActorMember, "The agent sent a message that no agent may send, so that its session ended."},
	{ReasonSessionPanicked, "session", ActorHub, "The hub failed to handle a message of the agent by a defect of Atoll. The session ended; the hub and other sessions go on."},
	{ReasonReset, "session", ActorAtoll, "The hub ended the stream so that the agent starts a new session."},
	{ReasonBadHello, "session", ActorMember, "The first message of the agent is not valid."},
	{ReasonBadDigest, "session", ActorMember, "The digests of the agent do not fit the rows that it reports."},
	{ReasonBadReport, "session", ActorMember, "A report cannot be read or is too large."},
	{ReasonNoRow, "session", ActorAgent, "A report is about a Bundle that the cluster has no row of."},
	{ReasonOtherKey, "session", ActorMember, "A certificate renewal is for another key than the session's key."},
	{ReasonBadRequest, "session", ActorMember, "A certificate renewal is not valid."},
	{ReasonAtollRefused, "session", ActorHub, "The hub refused to sign the certificate request."},
	{ReasonTakeoverAsked, "Event", ActorHub, "An agent with another key requests to take the place of the cluster's agent."},
	{ReasonTwoAgents, "Event", ActorMember, "Two agents with the same identity take the stream from each other."},
	{ReasonGivenUp, "Event", ActorNone, "A cluster was given up; its rows were dropped without a confirmation of the member."},
	{ReasonMemoryFull, "request", ActorUser, "The hub holds as much memory for the user as it may; ask for less at a time, or try again later."},
	{ReasonBadGateway, "proxy", ActorMember, "The member did not answer a request that the hub passed to it."},
	{ReasonFits, "verdict", ActorNone, "The cluster fits the placement and is chosen."},
	{ReasonTakesOverflow, "verdict", ActorNone, "The cluster takes replicas that have no place in the chosen clusters."},
	{ReasonNotInBoundSet, "verdict", ActorHub, "The cluster is in no ClusterSet that the namespace is bound to."},
	{ReasonNotInClusterSet, "verdict", ActorUser, "The cluster is in no ClusterSet that the placement names."},
	{ReasonClusterExcluded, "verdict", ActorUser, "The placement excludes the cluster by name."},
	{ReasonClusterNotNamed, "verdict", ActorUser, "The placement names clusters, and the cluster is not one of them."},
	{ReasonLabelsDiffer, "verdict", ActorUser, "The labels of the cluster do not match the placement's selector."},
	{ReasonFieldsDiffer, "verdict", ActorUser, "The provider, region or zone of the cluster does not match the placement's selector."},
	{ReasonTaintNotTolerated, "verdict", ActorUser, "The cluster has a taint that the placement does not tolerate."},
	{ReasonAPINotServed, "verdict", ActorMember, "The member does not serve an API that the placement requires."},
	{ReasonKindNotServed, "verdict", ActorMember, "The member does not serve the kind of an object of the Bundle."},
	{ReasonExpressionRefuses, "verdict", ActorUser, "The expression of the placement is false for the cluster, or has no result."},
	{ReasonNoGroupFits, "verdict", ActorUser, "The cluster is in no group of clusterAffinities that is in use."},
	{ReasonSpreadExcludes, "verdict", ActorUser, "The spread constraints leave out the cluster."},
	{ReasonNotChosen, "verdict", ActorUser, "The cluster fits, and maxClusters prefers others."},
	{ReasonClusterDisconnected, "verdict", ActorMember, "The cluster fits, is disconnected, and gets nothing new until it connects."},
	{ReasonClusterDeleted, "verdict", ActorNone, "The Cluster is deleted; no agent acts on its row any more."},
	{ReasonRefused, "refusal", ActorUser, "The API server refuses the object for a reason of Kubernetes; the message states it."},
	{ReasonPermissionMissing, "refusal", ActorHub, "The user lacks a right that the request needs; the message names it."},
	{ReasonInvalidField, "refusal", ActorUser, "The value of a field cannot be honoured."},
	{ReasonInvalidRequest, "refusal", ActorUser, "The request to an endpoint of the hub is malformed."},
	{ReasonWrittenByHub, "refusal", ActorUser, "Only the hub writes the object; edit what it comes from."},
	{ReasonWrittenByAgent, "refusal", ActorMember, "An agent tried to write on the hub; agents report over their stream."},
	{ReasonProtected, "refusal", ActorUser, "The object, or an object that would go with it, is protected against deletion."},
	{ReasonOutsideBoundSets, "refusal", ActorHub, "The object names clusters or sets on which its namespace may not place."},
	{ReasonSystemNamespace, "refusal", ActorHub, "Only an administrator of the hub gives rights in a namespace of the system."},
	{ReasonPlanChanged, "refusal", ActorUser, "The confirmation is of another removal plan than the present one."},
	{ReasonUnreadable, "refusal", ActorHub, "The hub cannot read the object, or what it needs to judge it."},
	{ReasonNotConvertible, "refusal", ActorUser, "The stored version of the kind cannot hold a field of the object."},
	{ReasonHubStarting, "refusal", ActorAtoll, "The hub is starting and cannot answer yet; clients repeat the request."},
	{ReasonAnswerTooLarge, "refusal", ActorUser, "The answer takes longer than it may; ask about fewer objects at once."},
	{ReasonStoreFull, "refusal", ActorHub, "The hub's store is nearly full or full, and the write would grow it; deletions go on."},
	{ReasonNotFound, "refusal", ActorUser, "The hub has no object of that name."},
	{ReasonOtherKind, "refusal", ActorUser, "The request does not apply to objects of this kind."},
	{ReasonNotOnHubYet, "refusal", ActorNone, "The kind or the namespace of the object comes with the same files, so that the hub cannot check the object yet."},
	{ReasonOnlyCandidate, "policy match", ActorNone, "Only this policy or annotation selects the object."},
	{ReasonAnnotationWins, "policy match", ActorNone, "An annotation of the object or of its namespace wins over policies."},
	{ReasonRanksHighest, "policy match", ActorNone, "The policy ranks highest by kind, priority, specificity, age or name."},
	{ReasonPreempts, "policy match", ActorNone, "The policy preempts the policy that held the object."},
	{ReasonHoldsObject, "policy match", ActorNone, "The policy holds the object already, and no other policy preempts it."},
	{ReasonDefaultPlacement, "policy match", ActorNone, "No policy and no annotation selects the object, so the default placement of the hub places it."},
	{ReasonNotSelected, "policy match", ActorUser, "No policy and no annotation selects the object."},
	{ReasonNeverPlaced, "policy match", ActorNone, "The object belongs to the hub itself and is never placed."},
	{ReasonMachineMade, "policy match", ActorUser, "Machinery made the object, so that only a selector with its name places it."},
	{ReasonJoinsParent, "policy match", ActorNone, "A controller on the hub made the object, so that it goes where its parent goes."},
	{ReasonParentMissing, "policy match", ActorUser, "A controller made the object, and the hub does not have its parent. A Bundle that holds the object keeps it."},
	{ReasonParentUnplaced, "policy match", ActorUser, "A controller made the object, and nothing places its parent."},
	{ReasonHubOnly, "policy match", ActorNone, "The object, or the definition of its kind, is stated to stay on the hub."},
	{ReasonTwoControllers, "policy match", ActorUser, "A controller on the hub acts on the object, and a controller in members may act on it, too."},
	{ReasonAnnotationMalformed, "policy match", ActorUser, "The annotation that places the object is malformed."},
	{ReasonRuleNotApplicable, "rendering", ActorUser, "A rule does not apply to the object, for example because its path does not exist."},
	{ReasonRuleForbidden, "rendering", ActorUser, "Only a ClusterOverridePolicy may change this object or field."},
	{ReasonRuleTooCostly, "rendering", ActorUser, "The rules of the object, or their result, exceed a bound."},
	{ReasonRenderPanicked, "rendering", ActorHub, "Rendering the object failed by a defect of Atoll. Its last good content stays; other objects go on."},
	{ReasonRuleUnknown, "rendering", ActorHub, "A newer hub wrote the rule, and this hub does not know it."},
	{ReasonAtomicRuleFailed, "rendering", ActorUser, "An atomic rule does not apply to another object of the Bundle."},
	{ReasonReplicasDivided, "rendering", ActorUser, "The placement divides the replicas, so that no rule can set them."},
	{ReasonReplicasNotSet, "rendering", ActorUser, "The assigned replicas or ordinals cannot be set in the object."},
	{ReasonContentMalformed, "rendering", ActorHub, "The stored content of the object cannot be read."},
}
