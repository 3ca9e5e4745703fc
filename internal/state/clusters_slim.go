package state

import (
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// sharedLists is how many sets of resources are kept for Clusters to share, before
// the table of them begins anew.
const sharedLists = 10_000

// slimmer makes Clusters share what many of them have in common: words of labels and
// conditions, and equal resources.
type slimmer struct {
	mu    sync.Mutex
	lists map[string]corev1.ResourceList
}

// slim a Cluster that was just read and that nobody else has; anything else stays as
// it is.
func (s *slimmer) slim(obj any) (any, error) {
	c, ok := obj.(*v1alpha1.Cluster)
	if !ok {
		return obj, nil
	}
	c.ManagedFields = nil
	c.Labels, c.Annotations = sharedWords(c.Labels), sharedWords(c.Annotations)
	for _, w := range []*string{
		&c.Kind, &c.APIVersion, &c.Spec.Region, &c.Spec.Zone, &c.Spec.Provider,
		&c.Status.KubernetesVersion, &c.Status.AgentVersion, &c.Status.APIsHash, &c.Status.Nodes.Summary,
	} {
		share(w)
	}
	for i := range c.Status.Conditions {
		cond := &c.Status.Conditions[i]
		share(&cond.Type)
		share(&cond.Reason)
		share(&cond.Message)
		cond.Status = unique.Make(cond.Status).Value()
	}
	c.Status.Resources.Allocatable = s.share(c.Status.Resources.Allocatable)
	c.Status.Resources.Requested = s.share(c.Status.Resources.Requested)
	return c, nil
}

func share(s *string) { *s = unique.Make(*s).Value() }

func sharedWords(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[unique.Make(k).Value()] = unique.Make(v).Value()
	}
	return out
}

// share gives an equal list that other Clusters have too.
func (s *slimmer) share(list corev1.ResourceList) corev1.ResourceList {
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
		return list // there are others, which the key does not tell
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.lists[key.String()]; ok {
		return known
	}
	if s.lists == nil || len(s.lists) >= sharedLists {
		s.lists = map[string]corev1.ResourceList{}
	}
	s.lists[key.String()] = list
	return list
}
