package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds that people write.
var GroupVersion = schema.GroupVersion{Group: "atoll.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Cluster{}, &ClusterList{}, &HubSettings{}, &HubSettingsList{},
		&PropagationPolicy{}, &PropagationPolicyList{},
		&ClusterPropagationPolicy{}, &ClusterPropagationPolicyList{},
		&OverridePolicy{}, &OverridePolicyList{},
		&ClusterOverridePolicy{}, &ClusterOverridePolicyList{},
		&Placement{}, &PlacementList{},
		&ClusterPlacement{}, &ClusterPlacementList{},
		&PlacementDecision{}, &PlacementDecisionList{},
		&ClusterPlacementDecision{}, &ClusterPlacementDecisionList{},
		&RolloutStrategy{}, &RolloutStrategyList{},
		&ClusterRolloutStrategy{}, &ClusterRolloutStrategyList{},
		&ClusterScore{}, &ClusterScoreList{},
		&Bundle{}, &BundleList{},
		&ClusterBundle{}, &ClusterBundleList{},
		&ClusterSet{}, &ClusterSetList{},
		&ClusterSetBinding{}, &ClusterSetBindingList{},
		&ResourceInterpreter{}, &ResourceInterpreterList{},
		&Repository{}, &RepositoryList{}, &Source{}, &SourceList{}, &SourceSet{}, &SourceSetList{}, &Notification{}, &NotificationList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
