package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/atoll"
)

// askedMost members get a request for one stored Pod that is read by itself, or has changed: where
// more might have it, its stored status is shown, which is what was reported of it last.
const askedMost = 32

// standingTimeout is the longest wait for these requests: a reader waits no longer for one that
// hangs.
const standingTimeout = 2 * time.Second

// podStatusByCluster is the status of a template's Pod in each cluster that reported it: nil where it is
// gone.
type podStatusByCluster map[string]*api.PodStatus

// podStatuses has statuses by namespace and name. The zero value holds none.
type podStatuses map[[2]string]podStatusByCluster

// put puts the status of a Pod of a cluster.
func (s podStatuses) put(cluster string, obj runtime.Object) {
	key, ok := podKey(obj)
	if !ok {
		return
	}
	if s[key] == nil {
		s[key] = podStatusByCluster{}
	}
	s[key][cluster] = &obj.(*api.Pod).Status
}

// overlayStatus gives a stored Pod the status that it has where it runs: of several clusters, the
// status of the first one, by name, in which the Pod is not ready.
func (s podStatusByCluster) overlayStatus(obj runtime.Object) {
	pod, ok := obj.(*api.Pod)
	if !ok {
		return
	}
	first := true
	for _, cluster := range slices.Sorted(maps.Keys(s)) {
		status := s[cluster]
		if status == nil {
			continue
		}
		if first || !isPodReady(status) {
			pod.Status = *status
		}
		if first = false; !isPodReady(status) {
			return
		}
	}
}

func isPodReady(s *api.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c api.PodCondition) bool {
		return c.Type == api.PodReady && c.Status == api.ConditionTrue
	})
}

// overlayAll overlays all stored Pods.
func (s podStatuses) overlayAll(objects []runtime.Object) {
	for _, obj := range objects {
		if key, ok := podKey(obj); ok {
			s[key].overlayStatus(obj) // what runs in members has other names
		}
	}
}

// fetchPodStatuses returns the status of a stored Pod, from the members of which a row holds it. Unreachable
// ones are left out.
func (o *objectStorage) fetchPodStatuses(ctx context.Context, obj runtime.Object) podStatusByCluster {
	pod, ok := obj.(*api.Pod)
	if !ok {
		return nil
	}
	members, _, err := o.fleet.membersWithRowOfTemplate(atoll.ItemKey{Group: o.kind.Group, Kind: o.kind.Kind, Namespace: pod.Namespace, Name: pod.Name})
	if err != nil || len(members) > askedMost {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, standingTimeout)
	defer cancel()
	var mu sync.Mutex
	found := podStatusByCluster{}
	o.fleet.forEachMember(members, func(m *member) {
		there, err := o.fleet.getMemberObject(ctx, m, o.kind, pod.Namespace, pod.Name)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		found[m.Name] = &there.(*api.Pod).Status
	})
	return found
}

// overlayMemberPodStatus overlays a stored Pod with the status that it has where it runs, as far as
// that was reported.
func (w *watchMerger) overlayMemberPodStatus(in sourceEvent) runtime.Object {
	key, ok := podKey(in.object)
	if !ok {
		return in.object
	}
	if in.event == watch.Deleted {
		delete(w.standings, key)
		return in.object
	}
	w.podStatusOrQuery(key, in.object).overlayStatus(in.object)
	return in.object
}

// updateTemplatePod takes a member's event about a template's Pod. It returns the stored Pod with
// that status; nil where the watch shows no change.
func (w *watchMerger) updateTemplatePod(in sourceEvent) runtime.Object {
	key, ok := podKey(in.object)
	if !ok {
		return nil
	}
	stored, err := w.o.Store.Get(request.WithNamespace(w.ctx, key[0]), key[1], &metav1.GetOptions{})
	if err != nil {
		return nil // the store sends that it is gone
	}
	heard := w.podStatusOrQuery(key, stored)
	if in.event == watch.Deleted {
		heard[in.from] = nil
	} else {
		heard[in.from] = &in.object.(*api.Pod).Status
	}
	return w.podWithStatus(stored)
}

// podWithStatus returns a stored Pod with its status; nil where the watch does not show it.
func (w *watchMerger) podWithStatus(stored runtime.Object) runtime.Object {
	if key, ok := podKey(stored); ok {
		w.standings[key].overlayStatus(stored)
	}
	if !w.matches(stored) {
		return nil
	}
	return stored
}

// podStatusOrQuery reports a stored Pod. Without an event of it the members get a request, outside of
// the watch: other members' events do not wait.
func (w *watchMerger) podStatusOrQuery(key [2]string, stored runtime.Object) podStatusByCluster {
	if w.standings[key] == nil {
		w.standings[key] = podStatusByCluster{}
		if w.unasked = append(w.unasked, stored.DeepCopyObject()); w.questions == nil {
			w.questions = make(chan runtime.Object)
			w.running.Go(w.fetchQueuedPodStatuses)
		}
	}
	return w.standings[key]
}

// fetchQueuedPodStatuses reads where stored Pods run, of one after the other.
func (w *watchMerger) fetchQueuedPodStatuses() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case stored := <-w.questions:
			if found := w.o.fetchPodStatuses(w.ctx, stored); len(found) > 0 && !w.enqueueSourceEvent(sourceEvent{event: watch.Modified, object: stored, standing: found}) {
				return
			}
		}
	}
}

// applyPodAnswers takes the members' answers about a stored Pod: their own events since are newer. It
// returns nil where that changes nothing for the watch.
func (w *watchMerger) applyPodAnswers(in sourceEvent) runtime.Object {
	key, ok := podKey(in.object)
	heard := w.standings[key]
	if !ok || heard == nil {
		return nil // it is gone
	}
	stored, err := w.o.Store.Get(request.WithNamespace(w.ctx, key[0]), key[1], &metav1.GetOptions{})
	if err != nil {
		return nil
	}
	before := stored.DeepCopyObject()
	heard.overlayStatus(before)
	for cluster, status := range in.standing {
		if _, told := heard[cluster]; !told {
			heard[cluster] = status
		}
	}
	after := w.podWithStatus(stored)
	if after == nil || equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return after
}

func podKey(obj runtime.Object) ([2]string, bool) {
	pod, ok := obj.(*api.Pod)
	if !ok {
		return [2]string{}, false
	}
	return [2]string{pod.Namespace, pod.Name}, true
}
