package server

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/wakeup"
)

// sourcesInLine is how many Sources one line of a stream has.
const sourcesInLine = 200

var sourcesEndpoint = endpoint{name: "fleet/sources", parameters: []string{"namespace", "limit", "continue", "watch"}, defaultLimit: fleetlist.DefaultPage, maxLimit: fleetlist.MaxPage}

// sourceStreams are the streams of Sources, each with the changes that it has to send.
type sourceStreams struct {
	subscribed sync.Once
	mu         sync.Mutex
	open       map[*sourceStream]struct{}
}

// sourceStream is a client that follows the Sources of a namespace; of all namespaces for the empty one.
type sourceStream struct {
	namespace string
	changed   map[types.NamespacedName]struct{}
	wake      chan struct{}
}

// noteChange notes a changed Source for the streams that show it.
func (s *sourceStreams) noteChange(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open {
		if one.namespace == "" || one.namespace == key.Namespace {
			one.changed[key] = struct{}{}
			wakeup.WakeReader(one.wake)
		}
	}
}

func (s *sourceStreams) add(one *sourceStream) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*sourceStream]struct{}{}
	}
	s.open[one] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one)
	}
}

// takeChanges returns the changed Sources of a stream in their order, and drops them.
func (s *sourceStreams) takeChanges(one *sourceStream) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := one.changed
	one.changed = map[types.NamespacedName]struct{}{}
	return slices.SortedFunc(maps.Keys(taken), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// sourcesAnswer is a page of Sources.
type sourcesAnswer struct {
	Sources  []v1alpha1.Source `json:"sources"`
	Continue string            `json:"continue,omitempty"`
}

// sourcesLine is one line of a stream: the Sources in parts, of which the last one is complete, then those that changed.
type sourcesLine struct {
	Type    string            `json:"type"`
	Sources []v1alpha1.Source `json:"sources"`
	// Complete: this is the last part of the first list.
	Complete bool `json:"complete,omitempty"`
	// Gone are the Sources that are deleted.
	Gone []goneSource `json:"gone,omitempty"`
}

type goneSource struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ServeSources answers with Sources as lists show them, of a namespace or of all.
func (s *Server) ServeSources(w http.ResponseWriter, r *http.Request) {
	q, err := s.readQuestion(r, sourcesEndpoint)
	on := resource{name: "sources", namespace: q.values.Get("namespace")}
	if err == nil {
		err = s.authorizeList(r.Context(), q, on)
	}
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	after, err := fleetlist.ParseSourceToken(q.values.Get("continue"))
	if err != nil {
		respond.WriteError(w, badRequest(err))
		return
	}
	if q.watch {
		s.streamSources(w, r, q, on)
		return
	}
	end, err := s.awaitPass(r.Context())
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	page, next := fleetlist.PageSources(q.tables.Sources.InNamespace(on.namespace), after, q.limit)
	end()
	respond.WriteJSON(w, http.StatusOK, sourcesAnswer{Sources: page, Continue: next})
}

// streamSources sends all Sources, and their changes until the client goes, the time is over or the right ends.
func (s *Server) streamSources(w http.ResponseWriter, r *http.Request, q question, on resource) {
	release, err := s.slots.takeSlot(q.user.GetName())
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	s.sources.subscribed.Do(func() { q.tables.Sources.SubscribeToEveryChange(s.sources.noteChange) })
	own := &sourceStream{namespace: on.namespace, changed: map[types.NamespacedName]struct{}{}, wake: make(chan struct{}, 1)}
	defer s.sources.add(own)() // a change from here on is sent, also one that the first list has already
	lines := respond.NewLineWriter(w)
	if !writeAllSources(lines, q.tables.Sources.InNamespace(on.namespace)) {
		return
	}
	for respond.AwaitWake(ctx, own.wake, minPause) {
		if err := s.authorizeList(ctx, q, on); err != nil {
			_ = lines.WriteLine(errorLine{"ERROR", respond.StatusOf(err)}) // the client may be gone
			return
		}
		for changed := range slices.Chunk(s.sources.takeChanges(own), sourcesInLine) {
			line := sourcesLine{Type: "CHANGED", Sources: []v1alpha1.Source{}}
			for _, key := range changed {
				if found, exists := q.tables.Sources.Get(key); exists {
					line.Sources = append(line.Sources, fleetlist.SlimSource(found))
				} else {
					line.Gone = append(line.Gone, goneSource{key.Namespace, key.Name})
				}
			}
			if lines.WriteLine(line) != nil {
				return
			}
		}
	}
}

// writeAllSources writes the first list in parts. It returns false when the client is gone.
func writeAllSources(lines *respond.LineWriter, all []*v1alpha1.Source) bool {
	after := fleetlist.SourceKey{}
	for {
		page, next := fleetlist.PageSources(all, after, sourcesInLine)
		if lines.WriteLine(sourcesLine{Type: "SOURCES", Sources: page, Complete: next == ""}) != nil {
			return false
		}
		if next == "" {
			return true
		}
		last := page[len(page)-1]
		after = fleetlist.SourceKey{Namespace: last.Namespace, Name: last.Name}
	}
}
