package apply

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// foreignTimeout bounds a search for foreign objects: a person waits for the answer.
	foreignTimeout = 700 * time.Millisecond
	// foreignLists are read at a time for it.
	foreignLists = 4
)

// ForeignObjects returns what would keep a namespace in the member if the hub's namespace were deleted now. It judges as
// guardNamespace does. It returns nothing for a namespace that Atoll did not make, because no deletion reaches that one.
func (e *MemberApplier) ForeignObjects(ctx context.Context, namespace string) atoll.ForeignObjects {
	if !e.isNamespaceOfAtoll(namespace) {
		return atoll.ForeignObjects{}
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	search := &foreignSearch{engine: e, namespace: namespace}
	apis := e.o.Client.APIs()
	if apis == nil {
		search.unread = []string{"the member's kinds"}
		return search.listFirst()
	}
	search.unread = apis.SilentGroups()
	search.findClaims(ctx)
	kinds := apis.NamespacedResources()
	queue := make(chan member.Resource, len(kinds))
	for _, res := range kinds {
		queue <- res
	}
	close(queue)
	var running sync.WaitGroup
	for range foreignLists {
		running.Go(func() {
			defer crash.RecoverContained(ctx)
			for res := range queue {
				search.addForeignOfKind(ctx, res)
			}
		})
	}
	running.Wait()
	return search.listFirst()
}

// isNamespaceOfAtoll reports whether a tombstone can delete the namespace.
func (e *MemberApplier) isNamespaceOfAtoll(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, known := e.book.Record(atoll.NamespaceKey(namespace))
	return known && r.UID != "" && !r.Adopted
}

// foreignSearch looks for foreign objects in a namespace.
type foreignSearch struct {
	engine    *MemberApplier
	namespace string
	// claims are the UIDs of volume claims that go along with StatefulSets of Atoll.
	claims []string

	mu     sync.Mutex
	found  []atoll.ForeignObject
	unread []string // kinds and groups of which not all objects are known
}

// findClaims finds the volume claims that StatefulSets of Atoll made. They are recorded as such when the namespace is deleted.
func (s *foreignSearch) findClaims(ctx context.Context) {
	s.engine.mu.Lock()
	var sets []ownership.Record
	for _, key := range s.engine.book.KeysInNamespace(s.namespace) {
		if r, known := s.engine.book.Record(key); known && key.Group == "apps" && key.Kind == "StatefulSet" && !r.Adopted {
			sets = append(sets, r)
		}
	}
	s.engine.mu.Unlock()
	for _, r := range sets {
		res, failure := s.engine.resourceFor(ctx, r.Key, apiVersion(r))
		if failure == nil {
			var uids []string
			uids, failure = s.engine.findSetVolumeClaims(ctx, pendingWork{Step: ownership.Step{Key: r.Key, Record: r}}, res)
			s.claims = append(s.claims, uids...)
		}
		if failure != nil {
			s.unread = append(s.unread, "the claims of StatefulSet "+r.Key.Name)
		}
	}
}

// addForeignOfKind adds the foreign objects of one kind.
func (s *foreignSearch) addForeignOfKind(ctx context.Context, res member.Resource) {
	found, err := s.engine.o.Client.List(ctx, res, s.namespace, guardLimit)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return
	}
	if res.Group == volumeClaims.Group && res.Resource == volumeClaims.Resource {
		found = slices.DeleteFunc(found, func(m metav1.PartialObjectMetadata) bool { return slices.Contains(s.claims, string(m.UID)) })
	}
	foreign, _ := s.engine.classifyFoundObjects(found, res, s.namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || len(found) >= guardLimit {
		s.unread = append(s.unread, res.GroupResource().String())
	}
	for _, key := range foreign {
		s.found = append(s.found, atoll.ForeignObject{Resource: res.GroupResource(), Name: key.Name})
	}
}

// listFirst returns the answer: the first objects by resource and name.
func (s *foreignSearch) listFirst() (out atoll.ForeignObjects) {
	slices.SortFunc(s.found, func(a, b atoll.ForeignObject) int {
		return cmp.Or(strings.Compare(a.Resource.String(), b.Resource.String()), strings.Compare(a.Name, b.Name))
	})
	n := min(len(s.found), atoll.MaxForeignObjects)
	out.Objects, out.More = s.found[:n:n], int64(len(s.found)-n)
	if slices.Sort(s.unread); len(s.unread) > 0 {
		out.Unread = truncateText("the agent could not list all of " + phrase.JoinFirst(s.unread, 3, len(s.unread)))
	}
	return out
}
