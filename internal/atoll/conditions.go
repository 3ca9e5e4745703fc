package atoll

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// ConditionType is one condition type of a kind.
type ConditionType struct {
	Type string
	// Normal is the status while nothing is the matter.
	Normal metav1.ConditionStatus
	// Temporary means that the condition is there only while what it is about is: a removal or drain of the
	// Cluster, an agent that the hub runs, or a quarantine of the Bundle.
	Temporary bool
}

// bundleConditions are the condition types of a Bundle and a ClusterBundle.
var bundleConditions = []ConditionType{
	{Type: v1alpha1.BundleBound, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundleScheduled, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundleReplicasPlaced, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundlePreferredGroup, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundleAffinityMet, Normal: metav1.ConditionTrue, Temporary: true},
	{Type: v1alpha1.BundleApplied, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundleReady, Normal: metav1.ConditionTrue},
	{Type: v1alpha1.BundleRemovalHeld, Normal: metav1.ConditionFalse},
	{Type: v1alpha1.BundleQuarantined, Normal: metav1.ConditionFalse, Temporary: true},
}

// ConditionTypes is the table of all condition types, by kind. The first write of an object's
// status has each type of its kind that is not temporary, and no other type is written. It is not
// to be changed.
var ConditionTypes = map[string][]ConditionType{
	"Bundle":        bundleConditions,
	"ClusterBundle": bundleConditions,
	"Cluster": {
		{Type: v1alpha1.ClusterAccepted, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.ClusterJoined, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.ClusterReady, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.ClusterPushed, Normal: metav1.ConditionTrue, Temporary: true},
		{Type: v1alpha1.ClusterMisbehaving, Normal: metav1.ConditionFalse},
		{Type: v1alpha1.ClusterUnclaimed, Normal: metav1.ConditionFalse},
		{Type: v1alpha1.ClusterCertificateExpiring, Normal: metav1.ConditionFalse},
		{Type: v1alpha1.ClusterRemoving, Normal: metav1.ConditionFalse, Temporary: true},
		{Type: v1alpha1.ClusterDraining, Normal: metav1.ConditionFalse, Temporary: true},
	},
	"PropagationPolicy":        {{Type: v1alpha1.PolicyApplied, Normal: metav1.ConditionTrue}},
	"ClusterPropagationPolicy": {{Type: v1alpha1.PolicyApplied, Normal: metav1.ConditionTrue}},
	"OverridePolicy":           {{Type: v1alpha1.PolicyApplied, Normal: metav1.ConditionTrue}},
	"ClusterOverridePolicy":    {{Type: v1alpha1.PolicyApplied, Normal: metav1.ConditionTrue}},
	"Placement":                {{Type: v1alpha1.PlacementSatisfied, Normal: metav1.ConditionTrue}},
	"ClusterPlacement":         {{Type: v1alpha1.PlacementSatisfied, Normal: metav1.ConditionTrue}},
	"ClusterSet":               {{Type: v1alpha1.ClusterSetEmpty, Normal: metav1.ConditionFalse}},
	"ClusterSetBinding":        {{Type: v1alpha1.ClusterSetBindingBound, Normal: metav1.ConditionTrue}},
	"RolloutStrategy":          {{Type: v1alpha1.StrategyInUse, Normal: metav1.ConditionTrue}},
	"ClusterRolloutStrategy": {
		{Type: v1alpha1.StrategyInUse, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.StrategyEnforced, Normal: metav1.ConditionTrue, Temporary: true},
	},
	"Repository": {
		{Type: v1alpha1.RepositoryReachable, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.RepositoryWebhookReady, Normal: metav1.ConditionTrue, Temporary: true},
	},
	"Source": {
		{Type: v1alpha1.SourceRendered, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.SourceApplied, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.SourceInSync, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.SourceReady, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.SourceReproducible, Normal: metav1.ConditionTrue, Temporary: true},
	},
	"SourceSet": {
		{Type: v1alpha1.SourceSetGenerated, Normal: metav1.ConditionTrue},
		{Type: v1alpha1.SourceSetApplied, Normal: metav1.ConditionTrue},
	},
	"Notification": {{Type: v1alpha1.NotificationDelivered, Normal: metav1.ConditionTrue}},
	"HubSettings": {
		{Type: v1alpha1.HubCertificatesExpiring, Normal: metav1.ConditionFalse},
		{Type: v1alpha1.HubRotatingCAs, Normal: metav1.ConditionFalse},
		{Type: v1alpha1.HubFailoverPaused, Normal: metav1.ConditionFalse, Temporary: true},
	},
}

// NormalStatuses returns the normal status of each condition type of a kind.
func NormalStatuses(kind string) map[string]metav1.ConditionStatus {
	out := map[string]metav1.ConditionStatus{}
	for _, c := range ConditionTypes[kind] {
		out[c.Type] = c.Normal
	}
	return out
}

// IsUndetermined reports whether a condition is missing, or has no value yet.
func IsUndetermined(c *metav1.Condition) bool {
	return c == nil || c.Reason == string(ReasonNotDetermined)
}

// UnknownCondition returns a condition that the hub has not determined yet.
func UnknownCondition(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: string(ReasonNotDetermined), Message: "the hub has not determined it yet"}
}

// AddUnknownConditions adds each condition type of the kind that is missing and not temporary, as
// unknown. It belongs into a write that happens anyway.
func AddUnknownConditions(kind string, conditions *[]metav1.Condition, generation int64, now metav1.Time) {
	for _, is := range ConditionTypes[kind] {
		if !is.Temporary && meta.FindStatusCondition(*conditions, is.Type) == nil {
			c := UnknownCondition(is.Type)
			c.ObservedGeneration, c.LastTransitionTime = generation, now
			*conditions = append(*conditions, c)
		}
	}
}
