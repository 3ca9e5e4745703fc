package policymatch

import "atoll.dev/atoll/api/v1alpha1"

// Intent is the spec of a Bundle's source; nil when the source is gone.
type Intent struct {
	Spec v1alpha1.PropagationSpec
	// Strategy that Spec.Rollout comes from; nil: the source states the rollout itself, or states none.
	Strategy *v1alpha1.AppliedStrategy
}

// DividesReplicas returns whether the source divides replicas among clusters.
func (i *Intent) DividesReplicas() bool {
	return i.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
}

// AllowsReplicaOverrides returns whether overrides may set what clusters get of divided replicas.
func (i *Intent) AllowsReplicaOverrides() bool {
	return i.Spec.Placement.ReplicaScheduling.ReplicaOverrides == v1alpha1.AllowReplicaOverrides
}

// IntentFromAnnotation returns the intent of the annotation of an object or a namespace; nil where
// it is missing or malformed.
func IntentFromAnnotation(annotations map[string]string) *Intent {
	value, ok := ClustersAnnotation(annotations)
	if !ok {
		return nil
	}
	p, err := ParseClustersAnnotation(value)
	if err != nil {
		return nil
	}
	return &Intent{Spec: annotationSpec(p)}
}
