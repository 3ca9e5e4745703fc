package atoll

// Reason is one enumerated reason of a wait, a hold, a refusal or a verdict. Reasons lists all of
// them. Items can also have the reasons that their own kind reports.
type Reason string

// Reasons of a row, in RowSpec.Reason.
const (
	ReasonUnfit                Reason = "Unfit"
	ReasonNoClusterFits        Reason = "NoClusterFits"
	ReasonClusterLost          Reason = "ClusterLost"
	ReasonNoReplacement        Reason = "NoReplacement"
	ReasonCopyInEachCluster    Reason = "CopyInEachCluster"
	ReasonDrainTolerated       Reason = "DrainTolerated"
	ReasonDrainDelayed         Reason = "DrainDelayed"
	ReasonSchedulingSuspended  Reason = "SchedulingSuspended"
	ReasonSpreadUnmet          Reason = "SpreadUnmet"
	ReasonNoCapacity           Reason = "NoCapacity"
	ReasonPodsDoNotFit         Reason = "PodsDoNotFit"
	ReasonPlacementEdited      Reason = "PlacementEdited"
	ReasonMovedToBetter        Reason = "MovedToBetter"
	ReasonGroupLeft            Reason = "GroupLeft"
	ReasonOverflowReturned     Reason = "OverflowReturned"
	ReasonRebalanced           Reason = "Rebalanced"
	ReasonEvicted              Reason = "Evicted"
	ReasonClusterRemoved       Reason = "ClusterRemoved"
	ReasonBundleDeleted        Reason = "BundleDeleted"
	ReasonObjectsDeleted       Reason = "ObjectsDeleted"
	ReasonRemovalHeld          Reason = "RemovalHeld"
	ReasonRemovedBeforeRestore Reason = "RemovedBeforeRestore"
	ReasonReplacementsNotReady Reason = "ReplacementsNotReady"
	// The reasons of a row whose application is unhealthy in the cluster, by the failover of its policy.
	ReasonApplicationFailed    Reason = "ApplicationFailed"
	ReasonFailoverUnreplaced   Reason = "FailoverUnreplaced"
	ReasonFailoverLimitReached Reason = "FailoverLimitReached"
	ReasonFailoverHeld         Reason = "FailoverHeld"
	ReasonFailedCopyKept       Reason = "FailedCopyKept"
)

// Reasons of a wait, in explain.
const (
	ReasonHubHolds             Reason = "HubHolds"
	ReasonWaitsForConfirmation Reason = "WaitsForConfirmation"
	ReasonWaitsForReplacements Reason = "WaitsForReplacements"
	ReasonWaitsForCluster      Reason = "WaitsForCluster"
	ReasonWaitsForApply        Reason = "WaitsForApply"
	ReasonWaitsForRemoval      Reason = "WaitsForRemoval"
	ReasonWaitsForOldCopy      Reason = "WaitsForOldCopy"
	// ReasonWaitsForDisconnectedCopy: a person decides whether a copy that may still run blocks its replacement.
	ReasonWaitsForDisconnectedCopy Reason = "WaitsForDisconnectedCopy"
	// The reasons of a row that keeps its revision until its turn in a rollout.
	ReasonRolloutPaused         Reason = "RolloutPaused"
	ReasonOutsideWindow         Reason = "OutsideWindow"
	ReasonChangesFrozen         Reason = "ChangesFrozen"
	ReasonFreezeExempted        Reason = "FreezeExempted"
	ReasonDispatchingSuspended  Reason = "DispatchingSuspended"
	ReasonStageFailed           Reason = "StageFailed"
	ReasonStageDeadlineExceeded Reason = "StageDeadlineExceeded"
	ReasonRollingBack           Reason = "RollingBack"
	ReasonRolledBack            Reason = "RolledBack"
	ReasonRollbackFailed        Reason = "RollbackFailed"
	ReasonStageBegan            Reason = "StageBegan"
	ReasonGatePassed            Reason = "GatePassed"
	ReasonRolloutComplete       Reason = "RolloutComplete"
	ReasonWaitsForApproval      Reason = "WaitsForApproval"
	ReasonWaitsForGateTime      Reason = "WaitsForGateTime"
	ReasonWaitsForExpression    Reason = "WaitsForExpression"
	ReasonWaitsForMeasurement   Reason = "WaitsForMeasurement"
	ReasonGateHasNoData         Reason = "GateHasNoData"
	ReasonGateFailed            Reason = "GateFailed"
	ReasonMeasurementFailed     Reason = "MeasurementFailed"
	ReasonWaitsForStage         Reason = "WaitsForStage"
	ReasonWaitsForSuccessTime   Reason = "WaitsForSuccessTime"
	ReasonMaxConcurrencyReached Reason = "MaxConcurrencyReached"
	ReasonMaxUnavailableReached Reason = "MaxUnavailableReached"
	ReasonTooManyUnhealthy      Reason = "TooManyUnhealthy"
	// The reasons of a row that waits for Bundles of other policies.
	ReasonWaitsForDependency     Reason = "WaitsForDependency"
	ReasonDependencyMissing      Reason = "DependencyMissing"
	ReasonDependencyNotPlaced    Reason = "DependencyNotPlaced"
	ReasonDependencyDisconnected Reason = "DependencyDisconnected"
	ReasonDependencyCycle        Reason = "DependencyCycle"
	ReasonWaitsForDependents     Reason = "WaitsForDependents"
	// The reasons of a copy that a budget keeps from a voluntary disruption.
	ReasonDisruptionBudget          Reason = "DisruptionBudget"
	ReasonDisruptionBudgetTooStrict Reason = "DisruptionBudgetTooStrict"
	ReasonPodDisruptionBudget       Reason = "PodDisruptionBudget"
)

// ReasonNotDetermined is the reason of any condition that is unknown since the first write of a
// status.
const ReasonNotDetermined Reason = "NotDetermined"

// Reasons of the conditions of a Bundle.
const (
	ReasonRead              Reason = "Read"
	ReasonCannotRead        Reason = "CannotRead"
	ReasonCannotSend        Reason = "CannotSend"
	ReasonPlaced            Reason = "Placed"
	ReasonNowhere           Reason = "Nowhere"
	ReasonDeleting          Reason = "Deleting"
	ReasonNotScheduled      Reason = "NotScheduled"
	ReasonAllPlaced         Reason = "AllPlaced"
	ReasonNoPlace           Reason = "NoPlace"
	ReasonOverridden        Reason = "Overridden"
	ReasonInUse             Reason = "InUse"
	ReasonNoGroups          Reason = "NoGroups"
	ReasonFallenBack        Reason = "FallenBack"
	ReasonComesBack         Reason = "ComesBack"
	ReasonApplied           Reason = "Applied"
	ReasonApplying          Reason = "Applying"
	ReasonFailed            Reason = "Failed"
	ReasonReady             Reason = "Ready"
	ReasonProgressing       Reason = "Progressing"
	ReasonDegraded          Reason = "Degraded"
	ReasonClustersAway      Reason = "ClustersAway"
	ReasonReleased          Reason = "Released"
	ReasonQuarantined       Reason = "Quarantined"
	ReasonReconcilePanicked Reason = "ReconcilePanicked"
)

// Reasons of the conditions of a policy.
const (
	ReasonSelectsNothing         Reason = "SelectsNothing"
	ReasonPlacementMissing       Reason = "PlacementMissing"
	ReasonRolloutStrategyMissing Reason = "RolloutStrategyMissing"
	ReasonNamespaceUnknown       Reason = "NamespaceUnknown"
	ReasonOverridesMissing       Reason = "OverridesMissing"
	ReasonNameTaken              Reason = "NameTaken"
)

// Reasons of the conditions of a RolloutStrategy and a ClusterRolloutStrategy.
const (
	ReasonStrategyUsed        Reason = "StrategyUsed"
	ReasonStrategyUnused      Reason = "StrategyUnused"
	ReasonEnforced            Reason = "Enforced"
	ReasonOutranked           Reason = "Outranked"
	ReasonNoNamespaceSelected Reason = "NoNamespaceSelected"
)

// Reasons of the conditions of an override policy.
const (
	ReasonRulesApply  Reason = "RulesApply"
	ReasonInvalidRule Reason = "InvalidRule"
)

// Reasons of the conditions of a Placement.
const (
	ReasonChosen Reason = "Chosen"
)

// Reasons of the conditions of a ClusterSetBinding.
const (
	ReasonBound             Reason = "Bound"
	ReasonClusterSetMissing Reason = "ClusterSetMissing"
	ReasonClustersSelected  Reason = "ClustersSelected"
	ReasonNoClusterMatched  Reason = "NoClusterMatched"
)

// Reasons of the condition of a Notification.
const (
	ReasonNothingUnsent        Reason = "NothingUnsent"
	ReasonTargetUnreachable    Reason = "TargetUnreachable"
	ReasonTargetNotVerified    Reason = "TargetNotVerified"
	ReasonTargetAddressRefused Reason = "TargetAddressRefused"
	ReasonTargetSecretInvalid  Reason = "TargetSecretInvalid"
	ReasonTargetBusy           Reason = "TargetBusy"
	ReasonTargetRefused        Reason = "TargetRefused"
)

// Reasons of the conditions of a Repository.
const (
	ReasonFetched               Reason = "Fetched"
	ReasonSuspended             Reason = "Suspended"
	ReasonFetchFailed           Reason = "FetchFailed"
	ReasonFetchTimedOut         Reason = "FetchTimedOut"
	ReasonRepositoryUnreachable Reason = "RepositoryUnreachable"
	ReasonRepositoryMissing     Reason = "RepositoryMissing"
	ReasonRedirectRefused       Reason = "RedirectRefused"
	ReasonServerNotVerified     Reason = "ServerNotVerified"
	ReasonTrustedKeysMissing    Reason = "TrustedKeysMissing"
	ReasonWebhookReady          Reason = "WebhookReady"
	ReasonWebhookTokenMissing   Reason = "WebhookTokenMissing"
)

// Reasons of the conditions of a Source.
const (
	ReasonRendered              Reason = "Rendered"
	ReasonRefMissing            Reason = "RefMissing"
	ReasonChartMissing          Reason = "ChartMissing"
	ReasonVersionMissing        Reason = "VersionMissing"
	ReasonDigestMismatch        Reason = "DigestMismatch"
	ReasonRefUnsupported        Reason = "RefUnsupported"
	ReasonSignatureMissing      Reason = "SignatureMissing"
	ReasonSignatureInvalid      Reason = "SignatureInvalid"
	ReasonSignerUntrusted       Reason = "SignerUntrusted"
	ReasonContentEmpty          Reason = "ContentEmpty"
	ReasonContentInvalid        Reason = "ContentInvalid"
	ReasonContentTooLarge       Reason = "ContentTooLarge"
	ReasonHooksUnsupported      Reason = "HooksUnsupported"
	ReasonNotReproducible       Reason = "NotReproducible"
	ReasonBuildFailed           Reason = "BuildFailed"
	ReasonGeneratedFieldsKept   Reason = "GeneratedFieldsKept"
	ReasonValuesMissing         Reason = "ValuesMissing"
	ReasonValuesTooLarge        Reason = "ValuesTooLarge"
	ReasonValuesForbidden       Reason = "ValuesForbidden"
	ReasonNotRendered           Reason = "NotRendered"
	ReasonServiceAccountMissing Reason = "ServiceAccountMissing"
	ReasonOwnedByOthers         Reason = "OwnedByOthers"
	ReasonNotApplied            Reason = "NotApplied"
	ReasonRemovedByCommit       Reason = "RemovedByCommit"
	ReasonInSync                Reason = "InSync"
	ReasonChangedOnHub          Reason = "ChangedOnHub"
	ReasonDriftIgnored          Reason = "DriftIgnored"
	ReasonDriftCorrected        Reason = "DriftCorrected"
)

// Reasons of a SourceSet and of the Sources that it made.
const (
	ReasonGenerated         Reason = "Generated"
	ReasonGeneratorEmpty    Reason = "GeneratorEmpty"
	ReasonParametersInvalid Reason = "ParametersInvalid"
	ReasonTemplateFailed    Reason = "TemplateFailed"
	ReasonTooManySources    Reason = "TooManySources"
	ReasonEntriesReplaced   Reason = "EntriesReplaced"
	ReasonCommitsUncompared Reason = "CommitsNotCompared"
	ReasonRemovalPaused     Reason = "RemovalPaused"
	ReasonSourcesMade       Reason = "SourcesMade"
	ReasonSourcesRemoved    Reason = "SourcesRemoved"
	ReasonSourcesSetBack    Reason = "SourcesSetBack"
)

// Reasons of objects that stay on the hub although the content of their Source lacks them.
const (
	ReasonPruneKeeps       Reason = "PruneKeeps"
	ReasonHoldsOthers      Reason = "HoldsOthers"
	ReasonPolicyKeeps      Reason = "ResourcePolicyKeeps"
	ReasonAdopted          Reason = "Adopted"
	ReasonSettingsChanged  Reason = "SettingsChanged"
	ReasonHistoryRewritten Reason = "HistoryRewritten"
	ReasonOwnedElsewhere   Reason = "OwnedElsewhere"
	ReasonKindUnserved     Reason = "KindUnserved"
)

// Reasons of an item, in ItemStatus.Reason and in Events.
const (
	ReasonPending         Reason = "Pending"
	ReasonRemoving        Reason = "Removing"
	ReasonMoving          Reason = "Moving"
	ReasonUnclaimed       Reason = "Unclaimed"
	ReasonUnnamed         Reason = "Unnamed"
	ReasonUnaccounted     Reason = "Unaccounted"
	ReasonGoneUnseen      Reason = "GoneUnseen"
	ReasonDeletedInMember Reason = "DeletedInMember"
	ReasonRenderFailed    Reason = "RenderFailed"
	ReasonNotServed       Reason = "NotServed"
	ReasonAPISilent       Reason = "APISilent"
	ReasonConflict        Reason = "Conflict"
	ReasonInvalid         Reason = "Invalid"
	ReasonAdmissionDenied Reason = "AdmissionDenied"
	ReasonForbidden       Reason = "Forbidden"
	ReasonDeniedByPolicy  Reason = "DeniedByPolicy"
	// ReasonHeldByPolicy: the administrator of the member lets no change start now.
	ReasonHeldByPolicy Reason = "HeldByPolicy"
	// ReasonServiceAccountForbidden: the ServiceAccount that the hub names lacks a right in the member.
	ReasonServiceAccountForbidden Reason = "ServiceAccountForbidden"
	ReasonTooLarge                Reason = "TooLarge"
	ReasonAgentMemoryFull         Reason = "AgentMemoryFull"
	// ReasonOrderTooLarge: no agent takes what the cluster is to hold in one order.
	ReasonOrderTooLarge        Reason = "OrderTooLarge"
	ReasonNamespaceMissing     Reason = "NamespaceMissing"
	ReasonNamespaceTerminating Reason = "NamespaceTerminating"
	ReasonMemberUnavailable    Reason = "MemberUnavailable"
	ReasonApplyFailed          Reason = "ApplyFailed"
	ReasonNotEstablished       Reason = "NotEstablished"
	ReasonTerminating          Reason = "Terminating"
	ReasonForeignObjects       Reason = "ForeignObjects"
	ReasonWaitsForObjects      Reason = "WaitsForObjects"
	ReasonWaitsForWave         Reason = "WaitsForWave"
	ReasonWaitsForHook         Reason = "WaitsForHook"
	ReasonHookFailed           Reason = "HookFailed"
	ReasonHookNotRun           Reason = "HookNotRun"
	ReasonDriftFight           Reason = "DriftFight"
	ReasonDrifted              Reason = "Drifted"
	ReasonMissing              Reason = "Missing"
	ReasonNotLeaseHolder       Reason = "NotLeaseHolder"
	ReasonInterpreted          Reason = "Interpreted"
	ReasonInterpreterFailed    Reason = "InterpreterFailed"
	ReasonHealthRuleUnmet      Reason = "HealthRuleUnmet"
	ReasonHealthRuleFailed     Reason = "HealthRuleFailed"
	ReasonNotCompleted         Reason = "NotCompleted"
	ReasonNotObserved          Reason = "NotObserved"
)

// Reasons of the conditions of a Cluster.
const (
	ReasonAccepted              Reason = "Accepted"
	ReasonWaitsForAdministrator Reason = "WaitsForAdministrator"
	ReasonAgentConnected        Reason = "AgentConnected"
	ReasonAgentChecksIn         Reason = "AgentChecksIn"
	ReasonWaitsForAgent         Reason = "WaitsForAgent"
	ReasonWaitsForAcceptance    Reason = "WaitsForAcceptance"
	ReasonWaitsForInventory     Reason = "WaitsForInventory"
	ReasonHeldByMember          Reason = "HeldByMember"
	ReasonNotRenewed            Reason = "NotRenewed"
	ReasonNotAccepted           Reason = "NotAccepted"
	ReasonMemberNotReady        Reason = "MemberNotReady"
	ReasonCheckInsMissed        Reason = "CheckInsMissed"
	ReasonStreamLost            Reason = "StreamLost"
	ReasonNeverConnected        Reason = "NeverConnected"
	ReasonWellBehaved           Reason = "WellBehaved"
	ReasonNothingUnclaimed      Reason = "NothingUnclaimed"
	ReasonNoRenewalOverdue      Reason = "NoRenewalOverdue"
)

// Reasons of the condition Pushed of a Cluster.
const (
	ReasonAgentWorks           Reason = "AgentWorks"
	ReasonStandsBy             Reason = "StandsBy"
	ReasonCredentialsExpiring  Reason = "CredentialsExpiring"
	ReasonCredentialsMissing   Reason = "CredentialsMissing"
	ReasonCredentialsMalformed Reason = "CredentialsMalformed"
	ReasonCredentialsRefused   Reason = "CredentialsRefused"
	ReasonNotAllowedInMember   Reason = "NotAllowedInMember"
	ReasonMemberUnreachable    Reason = "MemberUnreachable"
	ReasonMemberNotVerified    Reason = "MemberNotVerified"
	ReasonAddressRefused       Reason = "AddressRefused"
	ReasonAgentFailed          Reason = "AgentFailed"
	ReasonAgentPanicked        Reason = "AgentPanicked"
	ReasonCredentialsNotUsed   Reason = "CredentialsNotUsed"
)

// Reasons of the condition Removing of a Cluster.
const (
	ReasonPlanUnknown    Reason = "PlanUnknown"
	ReasonForced         Reason = "Forced"
	ReasonNeverJoined    Reason = "NeverJoined"
	ReasonWaitsForMember Reason = "WaitsForMember"
	ReasonBundlesLeave   Reason = "BundlesLeave"
	ReasonAgentLeaves    Reason = "AgentLeaves"
	ReasonLeft           Reason = "Left"
)

// Reasons of the condition Draining of a Cluster.
const (
	ReasonCannotLeave Reason = "CannotLeave"
	ReasonDrained     Reason = "Drained"
)

// Reasons of the conditions of HubSettings.
const (
	ReasonExpiring      Reason = "Expiring"
	ReasonReadyToFinish Reason = "ReadyToFinish"
	ReasonAgentsFollow  Reason = "AgentsFollow"
	ReasonNoneExpiring  Reason = "NoneExpiring"
	ReasonNotRotating   Reason = "NotRotating"
	ReasonFewLost       Reason = "FewClustersLost"
	ReasonManyLost      Reason = "TooManyClustersLost"
)

// ReasonMemoryFull is the reason of a refused request, or an ended watch: the hub holds as much memory
// for its user as it may.
const ReasonMemoryFull Reason = "MemoryFull"

// Reasons of a refusal of the gateway.
const (
	ReasonUnknown     Reason = "Unknown"
	ReasonReplaced    Reason = "Replaced"
	ReasonSuperseded  Reason = "Superseded"
	ReasonElsewhere   Reason = "Elsewhere"
	ReasonFlooding    Reason = "Flooding"
	ReasonMisbehaving Reason = "Misbehaving"
	// ReasonSessionPanicked ends a session or a call that the hub failed to handle by a defect.
	ReasonSessionPanicked Reason = "SessionPanicked"
	ReasonReset           Reason = "Reset"
	ReasonBadHello        Reason = "BadHello"
	ReasonBadDigest       Reason = "BadDigest"
	ReasonBadReport       Reason = "BadReport"
	ReasonNoRow           Reason = "NoRow"
	ReasonOtherKey        Reason = "OtherKey"
	ReasonBadRequest      Reason = "BadRequest"
	ReasonAtollRefused    Reason = "AtollRefused"
)

// Reasons of Events of a Cluster or a Bundle.
const (
	ReasonTakeoverAsked  Reason = "TakeoverAsked"
	ReasonTwoAgents      Reason = "TwoAgents"
	ReasonClusterTainted Reason = "ClusterTainted"
	ReasonTaintRemoved   Reason = "TaintRemoved"
	ReasonGivenUp        Reason = "GivenUp"
)

// Reasons of an answer of the proxy.
const (
	ReasonBadGateway Reason = "BadGateway"
)

// Reasons of a verdict of the scheduler on a cluster.
const (
	ReasonFits              Reason = "Fits"
	ReasonTakesOverflow     Reason = "TakesOverflow"
	ReasonNotInBoundSet     Reason = "NotInBoundSet"
	ReasonNotInClusterSet   Reason = "NotInClusterSet"
	ReasonClusterExcluded   Reason = "ClusterExcluded"
	ReasonClusterNotNamed   Reason = "ClusterNotNamed"
	ReasonLabelsDiffer      Reason = "LabelsDiffer"
	ReasonFieldsDiffer      Reason = "FieldsDiffer"
	ReasonTaintNotTolerated Reason = "TaintNotTolerated"
	ReasonAPINotServed      Reason = "APINotServed"
	ReasonKindNotServed     Reason = "KindNotServed"
	// ReasonVersionLosesFields: the member serves the kind in versions alone that cannot hold the object.
	ReasonVersionLosesFields Reason = "VersionLosesFields"
	ReasonExpressionRefuses  Reason = "ExpressionRefuses"
	ReasonNoGroupFits        Reason = "NoGroupFits"
	ReasonSpreadExcludes     Reason = "SpreadExcludes"
	ReasonNotChosen          Reason = "NotChosen"
	ReasonKeptApart          Reason = "KeptApart"
	ReasonGroupElsewhere     Reason = "GroupElsewhere"
	ReasonAffinityMet        Reason = "AffinityMet"
	// ReasonClusterDisconnected: the cluster is disconnected, and gets nothing new.
	ReasonClusterDisconnected Reason = "ClusterDisconnected"
	ReasonClusterDeleted      Reason = "ClusterDeleted"
)

// Reasons of a refusal of the hub: of a write, or of a request to one of its endpoints.
const (
	ReasonRefused           Reason = "Refused"
	ReasonPermissionMissing Reason = "PermissionMissing"
	ReasonInvalidField      Reason = "InvalidField"
	ReasonInvalidRequest    Reason = "InvalidRequest"
	ReasonWrittenByHub      Reason = "WrittenByHub"
	ReasonWrittenByAgent    Reason = "WrittenByAgent"
	ReasonProtected         Reason = "Protected"
	ReasonOutsideBoundSets  Reason = "OutsideBoundSets"
	ReasonSystemNamespace   Reason = "SystemNamespace"
	ReasonPlanChanged       Reason = "PlanChanged"
	ReasonUnreadable        Reason = "Unreadable"
	ReasonNotConvertible    Reason = "NotConvertible"
	ReasonHubStarting       Reason = "HubStarting"
	ReasonAnswerTooLarge    Reason = "AnswerTooLarge"
	ReasonStoreFull         Reason = "StoreFull"
	ReasonNotFound          Reason = "NotFound"
	ReasonOtherKind         Reason = "OtherKind"
	ReasonNotOnHubYet       Reason = "NotOnHubYet"
)

// Reasons for which a policy or annotation places an object, or none does.
const (
	ReasonOnlyCandidate       Reason = "OnlyCandidate"
	ReasonAnnotationWins      Reason = "AnnotationWins"
	ReasonRanksHighest        Reason = "RanksHighest"
	ReasonPreempts            Reason = "Preempts"
	ReasonHoldsObject         Reason = "HoldsObject"
	ReasonNotSelected         Reason = "NotSelected"
	ReasonDefaultPlacement    Reason = "DefaultPlacement"
	ReasonNeverPlaced         Reason = "NeverPlaced"
	ReasonMachineMade         Reason = "MachineMade"
	ReasonAnnotationMalformed Reason = "AnnotationMalformed"
	ReasonJoinsParent         Reason = "JoinsParent"
	ReasonParentMissing       Reason = "ParentMissing"
	ReasonParentUnplaced      Reason = "ParentUnplaced"
	ReasonHubOnly             Reason = "HubOnly"
	ReasonTwoControllers      Reason = "TwoControllers"
)

// Reasons for which an item cannot be rendered for a cluster.
const (
	ReasonRuleNotApplicable Reason = "RuleNotApplicable"
	ReasonRuleForbidden     Reason = "RuleForbidden"
	ReasonRuleTooCostly     Reason = "RuleTooCostly"
	ReasonRenderPanicked    Reason = "RenderPanicked"
	ReasonRuleUnknown       Reason = "RuleUnknown"
	ReasonAtomicRuleFailed  Reason = "AtomicRuleFailed"
	ReasonReplicasDivided   Reason = "ReplicasDivided"
	ReasonReplicasNotSet    Reason = "ReplicasNotSet"
	ReasonContentMalformed  Reason = "ContentMalformed"
	ReasonTooManyHooks      Reason = "TooManyHooks"
	ReasonTooManyWaves      Reason = "TooManyWaves"
)
