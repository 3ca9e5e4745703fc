package clusternode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// PatchFromNodeEdit returns the edit of a Cluster's Node as a JSON merge patch of the Cluster,
// which applies only to the given version of the Cluster; nil where nothing was edited. The status
// cannot be edited and is not read. Errors name the parts of the edit that no Cluster can take,
// and the alternative.
func PatchFromNodeEdit(c *v1alpha1.Cluster, now *corev1.Node) ([]byte, field.ErrorList) {
	p := clusterPatch{cluster: c, labels: map[string]any{}, annotations: map[string]any{}, spec: map[string]any{}}
	before := NodeOf(c)
	p.refuseUnsupported(before, now)
	p.changeLabels(before.Labels, now.Labels)
	p.changeAnnotations(before.Annotations, now.Annotations)
	p.changeTaints(before, now)
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return p.encode(), nil
}

type clusterPatch struct {
	cluster                   *v1alpha1.Cluster
	labels, annotations, spec map[string]any
	errs                      field.ErrorList
}

// refuseEdit refuses an edit of a field.
func (p *clusterPatch) refuseEdit(at *field.Path, reason string) {
	p.errs = append(p.errs, field.Forbidden(at, reason))
}

// refuseUnsupported refuses what a Cluster has nothing for.
func (p *clusterPatch) refuseUnsupported(before, now *corev1.Node) {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	none := fmt.Sprintf("node %s is a cluster, and there is nothing of that in Cluster/%s", before.Name, before.Name)
	if len(now.Finalizers) > 0 {
		p.refuseEdit(meta.Child("finalizers"), none+": put it on the Cluster")
	}
	if len(now.OwnerReferences) > 0 {
		p.refuseEdit(meta.Child("ownerReferences"), none+": put it on the Cluster")
	}
	was, is := before.Spec.DeepCopy(), now.Spec.DeepCopy()
	was.Taints, is.Taints, was.Unschedulable, is.Unschedulable = nil, nil, false, false
	if !equality.Semantic.DeepEqual(was, is) {
		p.refuseEdit(spec, none+": only taints and unschedulable of a node's spec act on it")
	}
}

func (p *clusterPatch) changeLabels(was, is map[string]string) {
	at := field.NewPath("metadata", "labels")
	inSpec := map[string]string{corev1.LabelTopologyRegion: "region", corev1.LabelTopologyZone: "zone"}
	forEachChange(was, is, func(key string, value *string) {
		part := inSpec[key]
		switch {
		case key == LabelRole:
			p.refuseEdit(at.Key(key), "it marks the node as a cluster, which it stays")
		case part == "":
			p.labels[key] = value
		case part == "zone" && len(p.cluster.Spec.Zones) > 1:
			p.refuseEdit(at.Key(key), fmt.Sprintf("the cluster has several zones: edit spec.zones of Cluster/%s", p.cluster.Name))
		default:
			p.spec[part] = value
			if part == "zone" && len(p.cluster.Spec.Zones) > 0 {
				p.spec["zones"] = nil
			}
			if _, labelled := p.cluster.Labels[key]; labelled && value == nil {
				p.labels[key] = nil
			}
		}
	})
}

func (p *clusterPatch) changeAnnotations(was, is map[string]string) {
	forEachChange(was, is, func(key string, value *string) {
		at := field.NewPath("metadata", "annotations").Key(key)
		switch {
		case key == corev1.LastAppliedConfigAnnotation:
			p.refuseEdit(at, fmt.Sprintf("nodes are not applied: apply Cluster/%s, or use kubectl cordon, taint, label or annotate", p.cluster.Name))
		case atoll.IsOwnMetadataKey(key):
			p.refuseEdit(at, fmt.Sprintf("nodes have none of Atoll's own annotations: Cluster/%s has", p.cluster.Name))
		default:
			p.annotations[key] = value
		}
	})
}

// forEachChange visits each key whose value is another, with that; nil: it is gone.
func forEachChange(was, is map[string]string, do func(key string, value *string)) {
	keys := map[string]bool{}
	for key := range was {
		keys[key] = true
	}
	for key := range is {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := was[key]
		after, has := is[key]
		switch {
		case !has:
			do(key, nil)
		case !had || before != after:
			do(key, &after)
		}
	}
}

// changeTaints changes the taints of the Cluster: as the Node is, and cordoned or not where that was edited.
func (p *clusterPatch) changeTaints(before, now *corev1.Node) {
	var all []v1alpha1.Taint
	for _, t := range now.Spec.Taints {
		all = append(all, v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded})
	}
	if now.Spec.Unschedulable != before.Spec.Unschedulable {
		all = slices.DeleteFunc(all, v1alpha1.Taint.EndsWithUncordon)
		if now.Spec.Unschedulable {
			all = append(all, v1alpha1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	switch {
	case equality.Semantic.DeepEqual(all, p.cluster.Spec.Taints):
	case len(all) == 0:
		p.spec["taints"] = nil
	default:
		p.spec["taints"] = all
	}
}

// encode encodes the patch; nil where there is none.
func (p *clusterPatch) encode() []byte {
	meta, all := map[string]any{}, map[string]any{}
	if len(p.labels) > 0 {
		meta["labels"] = p.labels
	}
	if len(p.annotations) > 0 {
		meta["annotations"] = p.annotations
	}
	if len(p.spec) > 0 {
		all["spec"] = p.spec
	}
	if len(meta)+len(all) == 0 {
		return nil
	}
	// An editor that saw another version of the Cluster must edit again.
	meta["resourceVersion"], meta["uid"] = p.cluster.ResourceVersion, p.cluster.UID
	all["metadata"] = meta
	text, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("clusternode: encode a patch of strings and taints: %v", err)) // they always can be
	}
	return text
}
