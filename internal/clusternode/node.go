// Package clusternode shows a Cluster as a Node of the hub, and reads edits of that Node as edits
// of the Cluster.
//
// Contract: pure. A Node has no other content than its Cluster, and has the Cluster's name, UID
// and resource version. Every edit of a Node either is an edit of the Cluster, or is refused with
// a reason: none is dropped. Results share nothing with the Cluster that may be changed.
package clusternode

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// LabelRole is on every Node of the hub: kubectl prints it as the role "cluster".
const LabelRole = "node-role.kubernetes.io/cluster"

// IsShownAsNode reports whether there is a Node of the Cluster: the hub has accepted it.
func IsShownAsNode(c *v1alpha1.Cluster) bool { return c.Spec.Accepted }

// IsUnschedulable reports whether the Cluster is cordoned or drained: by the taint that Kubernetes puts on
// cordoned nodes, which repels placements like any other, or by the taint of a drain.
func IsUnschedulable(c *v1alpha1.Cluster) bool {
	for i := range c.Spec.Taints {
		if c.Spec.Taints[i].EndsWithUncordon() {
			return true
		}
	}
	return false
}

// NodeLabels returns the labels of the Node: the Cluster's, its region and zone by the keys that are usual on
// nodes, and the role. A region or zone of the spec goes before a label.
func NodeLabels(c *v1alpha1.Cluster) map[string]string {
	out := make(map[string]string, len(c.Labels)+3)
	maps.Copy(out, c.Labels)
	for key, value := range locationLabels(c) {
		if value != "" {
			out[key] = value
		}
	}
	out[LabelRole] = ""
	return out
}

// locationLabels returns the labels that are fields of the Cluster's spec: region and zone. Several zones are no
// label, which has one value.
func locationLabels(c *v1alpha1.Cluster) map[string]string {
	zone := ""
	if zones := c.Spec.ListZones(); len(zones) == 1 {
		zone = zones[0]
	}
	return map[string]string{corev1.LabelTopologyRegion: c.Spec.Region, corev1.LabelTopologyZone: zone}
}

// nodeAnnotations returns the annotations of the Node: the Cluster's, but for the hub's own notes, and for what
// `kubectl apply` notes of the Cluster's manifest, which it would take for the Node's.
func nodeAnnotations(c *v1alpha1.Cluster) map[string]string {
	out := maps.Clone(c.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return key == corev1.LastAppliedConfigAnnotation || atoll.IsOwnMetadataKey(key)
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// NodeOf returns the Node of the Cluster.
func NodeOf(c *v1alpha1.Cluster) *corev1.Node {
	return &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
			CreationTimestamp: c.CreationTimestamp, DeletionTimestamp: c.DeletionTimestamp.DeepCopy(),
			Labels: NodeLabels(c), Annotations: nodeAnnotations(c),
		},
		Spec:   corev1.NodeSpec{Unschedulable: IsUnschedulable(c), Taints: nodeTaints(c)},
		Status: nodeStatus(c),
	}
}

func nodeTaints(c *v1alpha1.Cluster) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range c.Spec.Taints {
		out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded.DeepCopy()})
	}
	return out
}

// nodeStatus returns the status of the Node. Resources that are reserved on the cluster's nodes
// are not reported, so capacity is what they offer to pods, too.
func nodeStatus(c *v1alpha1.Cluster) corev1.NodeStatus {
	out := corev1.NodeStatus{
		Capacity:    c.Status.Resources.Allocatable.DeepCopy(),
		Allocatable: c.Status.Resources.Allocatable.DeepCopy(),
		Conditions:  nodeConditions(c),
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: c.Name}},
		NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: c.Status.KubernetesVersion},
	}
	if n := c.Status.Nodes; n.Total > 0 {
		out.NodeInfo.OSImage = fmt.Sprintf("%d/%d nodes", n.Ready, n.Total)
	}
	if v := c.Status.AgentVersion; v != "" {
		out.NodeInfo.ContainerRuntimeVersion = "atoll://" + v
	}
	return out
}

// nodeConditions returns the conditions of the Cluster; Ready means the same of a Node. Being
// alive is not written anywhere, so the heartbeat is as old as the last change.
func nodeConditions(c *v1alpha1.Cluster) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, cond := range c.Status.Conditions {
		out = append(out, corev1.NodeCondition{
			Type: corev1.NodeConditionType(cond.Type), Status: corev1.ConditionStatus(cond.Status),
			LastHeartbeatTime: cond.LastTransitionTime, LastTransitionTime: cond.LastTransitionTime,
			Reason: cond.Reason, Message: cond.Message,
		})
	}
	return out
}
