package policymatch

import (
	"strings"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// HubDefaultSpec returns the spec that the hub's default placement stands for; nil where such
// objects stay on the hub.
func HubDefaultSpec(d *v1alpha1.DefaultPlacement) *v1alpha1.PropagationSpec {
	if d == nil {
		return nil
	}
	spec := annotationSpec(v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}})
	switch d.Type {
	case v1alpha1.DefaultPlacementAll:
	case v1alpha1.DefaultPlacementClusterSet:
		spec.Placement.ClusterSets = []string{d.Name}
	case v1alpha1.DefaultPlacementClusterPlacement:
		spec.Placement, spec.PlacementRef = v1alpha1.PlacementSpec{}, &v1alpha1.PlacementRef{Name: d.Name}
	default:
		return nil
	}
	return &spec
}

// SetHubDefault sets the hub's default placement; nil for none.
func (x *PolicyIndex) SetHubDefault(d *v1alpha1.DefaultPlacement) {
	x.hubDefault, x.hubDefaultText = HubDefaultSpec(d), ""
	if x.hubDefault != nil {
		x.hubDefaultText = strings.TrimSuffix("defaultPlacement: "+string(d.Type)+" "+d.Name, " ")
	}
}

// decideByDefault returns whether the hub's default placement places an object that no policy and no
// annotation selects.
func (x *PolicyIndex) decideByDefault(sub Subject, ns Namespace) Decision {
	d := Decision{ReasonCode: atoll.ReasonNotSelected, Reason: "no policy and no annotation selects it"}
	if _, stated := ClustersAnnotation(ns.Annotations); x.hubDefault == nil || stated {
		return d
	}
	if why := DefaultExclusionReason(sub); why != "" {
		d.ReasonCode, d.Reason = atoll.ReasonMachineMade, d.Reason+", and the hub's default placement leaves it out: "+why
		return d
	}
	d.ReasonCode = atoll.ReasonDefaultPlacement
	d.Winner = &Candidate{
		Source: v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName},
		Spec:   x.hubDefault, MatchedBy: x.hubDefaultText, level: levelHubDefault,
	}
	return d
}

// DefaultExclusionReason returns why the hub's default placement leaves out an object; empty when it
// does not. It leaves out what machinery makes and, without a namespace, what the hub or its API server
// created.
func DefaultExclusionReason(s Subject) string {
	if s.Key.Namespace != "" {
		return namespacedExclusionReason(s)
	}
	if why := UnselectableReason(s); why != "" {
		return why
	}
	return belongsToHubReason(s)
}

// apiServerMarks are labels and annotations of objects that every API server creates for itself.
var apiServerMarks = []string{"kubernetes.io/bootstrapping", "kube-aggregator.kubernetes.io/automanaged", "apf.kubernetes.io/autoupdate-spec"}

// hubCRDs are the CRDs of other groups than Atoll's that the hub installs.
var hubCRDs = map[string]bool{
	"clusterprofiles.multicluster.x-k8s.io":               true,
	"placementdecisions.multicluster.x-k8s.io":            true,
	"resourceinterpretercustomizations.config.karmada.io": true,
}

// belongsToHubReason returns why a cluster-scoped object belongs to this hub alone.
func belongsToHubReason(s Subject) string {
	switch {
	case isMarkedByAPIServer(s):
		return "made by the hub's API server"
	case s.Labels[atoll.LabelHub] == "true":
		return "labelled " + atoll.LabelHub + "=true: it is for the hub"
	case s.Key.IsNamespace() && isBuiltInNamespace(s.Key.Name):
		return "made in every member"
	case isInstalledByHub(s.Key):
		return "made by the hub"
	case s.Controller != "":
		return "made by " + s.Controller
	}
	return ""
}

func isMarkedByAPIServer(s Subject) bool {
	for _, mark := range apiServerMarks {
		_, label := s.Labels[mark]
		if _, annotation := s.Annotations[mark]; label || annotation {
			return true
		}
	}
	return false
}

// isInstalledByHub reports whether the name is of an object that each hub has of its own.
func isInstalledByHub(key atoll.ItemKey) bool {
	switch {
	case key.Group == "rbac.authorization.k8s.io":
		return strings.HasPrefix(key.Name, "atoll:") || strings.HasPrefix(key.Name, "system:")
	case key.IsNamespace():
		return key.Name == multicluster.InventoryNamespace
	case key.Group == "apiextensions.k8s.io" && key.Kind == "CustomResourceDefinition":
		return strings.HasSuffix(key.Name, ".atoll.dev") || hubCRDs[key.Name]
	}
	return false
}
