// Package server answers with the tree of an application, once or as a stream of changes.
//
// Contract: a user that may get the Bundle gets its tree, with the templates that the user may get. Rights are
// checked for each answer of a stream, so a right that ends, ends the stream. A stream costs nothing while
// its application does not change. All methods are safe for concurrent use.
package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/apptree"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

const (
	defaultLimit = 200
	maxLimit     = 1000
	// maxStreamsPerUser and maxStreams bound the streams of this hub.
	maxStreamsPerUser = 50
	maxStreams        = 2000
	// streamTime is how long a stream lasts. Clients open the next one.
	streamTime = 30 * time.Minute
	// minPause separates two answers of a stream. A tree that took long to make takes a longer pause.
	minPause  = 300 * time.Millisecond
	pauseCost = 10
	// maxBuilds is how many trees are made at one time. Others wait.
	maxBuilds = 2
)

// Options of a Server.
type Options struct {
	// Tables returns the hub's tables; false before they are read.
	Tables func() (*state.HubTables, bool)
	// MayGet reports whether a user may read an object.
	MayGet func(ctx context.Context, u user.Info, key atoll.ItemKey) bool
}

// Server answers requests for trees.
type Server struct {
	options Options

	subscribed sync.Once
	mu         sync.Mutex
	streams    map[string]map[*stream]struct{} // by Bundle UID
	byUser     map[string]int
	open       int
	// builds has an entry for each tree that is being made.
	builds chan struct{}
}

// stream is one client that follows a Bundle.
type stream struct{ wake chan struct{} }

// New returns a Server.
func New(o Options) *Server {
	return &Server{options: o, streams: map[string]map[*stream]struct{}{}, byUser: map[string]int{}, builds: make(chan struct{}, maxBuilds)}
}

// question is one request.
type question struct {
	user      user.Info
	tables    *state.HubTables
	namespace string
	name      string
	cluster   string
	limit     int
	watch     bool
}

// ServeTree answers a request, or refuses it with a Status as the API does.
func (s *Server) ServeTree(w http.ResponseWriter, r *http.Request) {
	q, err := s.readQuestion(r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	if q.watch {
		s.serveStream(w, r, q)
		return
	}
	tree, err := s.buildTree(r.Context(), q, "")
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, tree)
}

func (s *Server) readQuestion(r *http.Request) (q question, err error) {
	v := r.URL.Query()
	u, known := request.UserFrom(r.Context())
	switch {
	case r.Method != http.MethodGet:
		return q, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "tree"}, r.Method))
	case !known:
		return q, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewUnauthorized("the request has no user"))
	}
	if err := respond.CheckParameters(v, "tree", "namespace", "name", "cluster", "limit", "watch"); err != nil {
		return q, err
	}
	q = question{user: u, namespace: v.Get("namespace"), name: v.Get("name"), cluster: v.Get("cluster"), limit: defaultLimit, watch: respond.WantsStream(r)}
	if q.name == "" {
		return q, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest("name the application by name, the name of its Bundle, and namespace; a ClusterBundle has no namespace"))
	}
	if text := v.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > maxLimit {
			return q, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest(fmt.Sprintf("limit is from 1 to %d", maxLimit)))
		}
	}
	tables, ready := s.options.Tables()
	if !ready {
		return q, respond.StillStarting("its tables are being read")
	}
	q.tables = tables
	return q, nil
}

// bundleKey returns the key of the requested Bundle.
func (q question) bundleKey() atoll.ItemKey {
	kind := "Bundle"
	if q.namespace == "" {
		kind = "ClusterBundle"
	}
	return atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: q.namespace, Name: q.name}
}

// findBundle returns the requested Bundle. One that the user may not get is not looked up.
func (s *Server) findBundle(ctx context.Context, q question) (state.Bundle, error) {
	key := q.bundleKey()
	resource := schema.GroupResource{Group: key.Group, Resource: "bundles"}
	if q.namespace == "" {
		resource.Resource = "clusterbundles"
	}
	if !s.options.MayGet(ctx, q.user, key) {
		why := fmt.Errorf("the tree is shown to users that may get the %s, and %q may not", key.Kind, q.user.GetName())
		return state.Bundle{}, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(resource, q.name, why))
	}
	b, ok := q.tables.Bundles.GetByName(q.namespace, q.name)
	if !ok {
		return state.Bundle{}, refusal.WithReason(atoll.ReasonNotFound, apierrors.NewNotFound(resource, q.name))
	}
	return b, nil
}

// buildTree returns the tree of the requested Bundle as it is now. Its UID must be the given one, unless that
// is empty.
func (s *Server) buildTree(ctx context.Context, q question, uid string) (apptree.Tree, error) {
	select {
	case s.builds <- struct{}{}:
		defer func() { <-s.builds }()
	case <-ctx.Done():
		return apptree.Tree{}, ctx.Err()
	}
	b, err := s.findBundle(ctx, q)
	if err != nil {
		return apptree.Tree{}, err
	}
	if uid != "" && b.Ref.UID != uid {
		return apptree.Tree{}, apierrors.NewResourceExpired("the Bundle was deleted and created again")
	}
	in := apptree.Input{Namespace: q.namespace, Name: q.name, Limit: q.limit, Cluster: q.cluster, IsVisible: s.cacheRights(ctx, q.user)}
	in.Answered = []string{b.Meta.Annotations[atoll.AnnotationConfirm], b.Meta.Annotations[atoll.AnnotationKeep]}
	if latest, ok := q.tables.Revisions.LatestOfBundle(b.Ref.UID); ok {
		in.Revision = latest.Spec.Number
		content, err := q.tables.Revisions.GetContent(ctx, latest.Name)
		if err != nil {
			return apptree.Tree{}, fmt.Errorf("read the templates of bundle %s/%s: %w", q.namespace, q.name, err)
		}
		for i := range content.Items {
			in.Items = append(in.Items, content.Items[i].Key)
		}
		for i := range content.Tombstones {
			in.Removed = append(in.Removed, content.Tombstones[i].Key)
		}
	}
	for _, row := range q.tables.Rows.ListOfBundle(b.Ref.UID) {
		in.Rows = append(in.Rows, readRow(q.tables, row))
	}
	return apptree.BuildTree(in), nil
}

func readRow(t *state.HubTables, row state.Row) apptree.Row {
	out := apptree.Row{Cluster: row.Cluster, Row: rollout.Row{Spec: row.Spec, Status: row.Status, Online: t.Clusters.IsOnline(row.Spec.UID)}}
	if c, ok := t.Clusters.Get(row.Cluster); ok {
		out.Row.CheckIn = c.Spec.CheckInInterval()
		if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil {
			out.ReadyChanged = ready.LastTransitionTime.Time
		}
	}
	return out
}

// cacheRights returns what a user may get. It is authorized once for each kind and namespace, and
// else for each object.
func (s *Server) cacheRights(ctx context.Context, u user.Info) func(atoll.ItemKey) bool {
	known := map[atoll.ItemKey]bool{}
	may := func(key atoll.ItemKey) bool {
		allowed, asked := known[key]
		if !asked {
			allowed = s.options.MayGet(ctx, u, key)
			known[key] = allowed
		}
		return allowed
	}
	return func(key atoll.ItemKey) bool {
		all := key
		all.Name = ""
		return may(all) || may(key)
	}
}

// event is one line of a stream: the whole tree at first, then what changed of its clusters.
type event struct {
	Type string        `json:"type"`
	Tree *apptree.Tree `json:"tree,omitempty"`
	// Gone are names of clusters that are not in the tree any more.
	Gone []string `json:"gone,omitempty"`
	// Status of an Error.
	Status *metav1.Status `json:"status,omitempty"`
}

// serveStream sends the tree, and its changes until the client goes, the time is over or the right ends.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, q question) {
	b, err := s.findBundle(r.Context(), q)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	own, err := s.openStream(q, b.Ref.UID)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	defer s.closeStream(own, q.user.GetName(), b.Ref.UID)
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	lines := lineWriter{LineWriter: respond.NewLineWriter(w)}
	// A change before the stream was open is in this first tree.
	tree, err := s.buildTree(ctx, q, b.Ref.UID)
	if err != nil {
		lines.writeError(err)
		return
	}
	for pause := minPause; lines.writeTree(tree); {
		if !respond.AwaitWake(ctx, own.wake, pause) {
			return
		}
		begin := time.Now()
		if tree, err = s.buildTree(ctx, q, b.Ref.UID); err != nil {
			lines.writeError(err)
			return
		}
		pause = max(minPause, pauseCost*time.Since(begin))
	}
}

func (s *Server) openStream(q question, uid string) (*stream, error) {
	s.subscribed.Do(func() { s.subscribeTables(q.tables) })
	s.mu.Lock()
	defer s.mu.Unlock()
	name := q.user.GetName()
	if s.byUser[name] >= maxStreamsPerUser || s.open >= maxStreams {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the hub serves as many streams of trees as it may, at most %d for one user; close some of them", maxStreamsPerUser), 10)
	}
	own := &stream{wake: make(chan struct{}, 1)}
	if s.streams[uid] == nil {
		s.streams[uid] = map[*stream]struct{}{}
	}
	s.streams[uid][own] = struct{}{}
	s.byUser[name]++
	s.open++
	return own, nil
}

func (s *Server) closeStream(own *stream, name, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams[uid], own)
	if len(s.streams[uid]) == 0 {
		delete(s.streams, uid)
	}
	if s.byUser[name]--; s.byUser[name] == 0 {
		delete(s.byUser, name)
	}
	s.open--
}

// subscribeTables wakes the streams of the Bundles that change.
func (s *Server) subscribeTables(t *state.HubTables) {
	t.Rows.Subscribe(func(uid string, _ []string) { s.wakeStreams(uid) })
	t.Bundles.Subscribe(s.wakeStreams)
	t.Clusters.Subscribe(func(cluster string) {
		for _, uid := range s.followedBundles() {
			if t.Rows.HasRow(uid, cluster) {
				s.wakeStreams(uid)
			}
		}
	})
}

func (s *Server) followedBundles() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.streams {
		out = append(out, uid)
	}
	return out
}

func (s *Server) wakeStreams(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.streams[uid] {
		select {
		case one.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// lineWriter writes the lines of a stream, with what changed since the line before.
type lineWriter struct {
	*respond.LineWriter
	sent   map[string]textHash // of the encoded clusters, by name
	header textHash            // of the encoded tree without clusters
}

// textHash stands for a text, of which a stream keeps many.
type textHash [sha256.Size]byte

// writeTree writes the tree, or what changed of it. It returns false when the client is gone.
func (l *lineWriter) writeTree(tree apptree.Tree) bool {
	next, e := map[string]textHash{}, event{Type: "CHANGED"}
	var changed []apptree.Cluster
	for _, c := range tree.Clusters {
		text, _ := json.Marshal(c) // texts, numbers and times of four digits always encode
		if next[c.Name] = sha256.Sum256(text); l.sent[c.Name] != next[c.Name] {
			changed = append(changed, c)
		}
	}
	for name := range l.sent {
		if _, stays := next[name]; !stays {
			e.Gone = append(e.Gone, name)
		}
	}
	if l.sent == nil {
		e.Type = "TREE"
	}
	tree.Clusters = nil
	text, _ := json.Marshal(tree)
	header := textHash(sha256.Sum256(text))
	unchanged := l.sent != nil && len(changed) == 0 && len(e.Gone) == 0 && l.header == header
	l.sent, l.header = next, header
	if unchanged {
		return true
	}
	if tree.Clusters = changed; changed == nil {
		tree.Clusters = []apptree.Cluster{}
	}
	e.Tree = &tree
	return l.WriteLine(e) == nil
}

// writeError ends the stream with the reason.
func (l *lineWriter) writeError(err error) {
	status := respond.StatusOf(err)
	_ = l.WriteLine(event{Type: "ERROR", Status: &status}) // the client may be gone
}
