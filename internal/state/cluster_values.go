package state

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// maxSharedValues is how many sets of resources, and of labels, are kept for Clusters to share,
// before their table is cleared.
const maxSharedValues = 10_000

// valueSharer makes Clusters share what many of them have in common: equal labels and
// resources, and words of labels and conditions. Annotations are each Cluster's own.
type valueSharer struct {
	mu        sync.Mutex
	resources map[string]corev1.ResourceList
	labels    map[string]map[string]string
}

// shareValues makes a Cluster share values with others. The caller must own it. Other kinds are
// returned unchanged.
func (s *valueSharer) shareValues(obj any) (any, error) {
	c, ok := obj.(*v1alpha1.Cluster)
	if !ok {
		return obj, nil
	}
	c.ManagedFields = nil
	c.Labels, c.Annotations = s.shareLabels(c.Labels), shareKeys(c.Annotations)
	for _, w := range []*string{
		&c.Kind, &c.APIVersion, &c.Spec.Region, &c.Spec.Zone, &c.Spec.Provider, &c.Spec.TimeZone,
		&c.Status.KubernetesVersion, &c.Status.AgentVersion, &c.Status.APIsHash, &c.Status.Nodes.Summary,
	} {
		shareString(w)
	}
	for i := range c.Spec.Zones {
		shareString(&c.Spec.Zones[i])
	}
	for i := range c.Status.Properties {
		shareString(&c.Status.Properties[i].Name)
		shareString(&c.Status.Properties[i].Value)
	}
	for i := range c.Status.Conditions {
		cond := &c.Status.Conditions[i]
		shareString(&cond.Type)
		shareString(&cond.Reason)
		shareString(&cond.Message)
		cond.Status = unique.Make(cond.Status).Value()
	}
	c.Status.Resources.Allocatable = s.shareResources(c.Status.Resources.Allocatable)
	c.Status.Resources.Requested = s.shareResources(c.Status.Resources.Requested)
	if free := c.Status.Resources.FreeCapacity; free != nil {
		for i := range free.NodeClasses {
			free.NodeClasses[i].Free = s.shareResources(free.NodeClasses[i].Free)
		}
	}
	return c, nil
}

func shareString(s *string) { *s = unique.Make(*s).Value() }

// shareLabels gives equal labels that other Clusters have too.
func (s *valueSharer) shareLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		key.WriteString(k + "=" + labels[k] + "\n") // neither has a line's end in it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.labels[key.String()]; ok {
		return known
	}
	if s.labels == nil || len(s.labels) >= maxSharedValues {
		s.labels = map[string]map[string]string{}
	}
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		out[unique.Make(k).Value()] = unique.Make(v).Value()
	}
	s.labels[key.String()] = out
	return out
}

// shareKeys shares the keys alone.
func shareKeys(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[unique.Make(k).Value()] = v
	}
	return out
}

// shareResources returns an equal list that other Clusters have too.
func (s *valueSharer) shareResources(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	var key strings.Builder
	found := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := list[name]; ok {
			key.WriteString(q.String())
			found++
		}
		key.WriteByte(' ')
	}
	if found < len(list) {
		return list // there are others, which the key does not have
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.resources[key.String()]; ok {
		return known
	}
	if s.resources == nil || len(s.resources) >= maxSharedValues {
		s.resources = map[string]corev1.ResourceList{}
	}
	s.resources[key.String()] = list
	return list
}
