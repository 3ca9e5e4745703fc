package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/rewind"
	"atoll.dev/atoll/internal/state"
)

const (
	// recallRetry is how long what could not be settled waits; tableRetry, where
	// only the hub's own table is a moment behind.
	recallRetry = 2 * time.Second
	tableRetry  = 50 * time.Millisecond
	// complainAfter tries it is said that nothing is ordered of a member, and again
	// after as many.
	complainAfter = 100
	// tellAfter is how long further members may join one write of what was told.
	tellAfter = time.Second
)

// errTableBehind: a template is marked, and the hub's table does not show it yet.
var errTableBehind = errors.New("the hub's table is behind")

// recalls are what members told of removals, the newest of each, and not settled.
type recalls struct {
	mu   sync.Mutex
	open map[string]recollection // by Cluster UID
	wake chan struct{}
}

type recollection struct {
	gateway.Remembered
	memory rewind.Memory
	tries  int
}

func newRecalls() *recalls {
	return &recalls{open: map[string]recollection{}, wake: make(chan struct{}, 1)}
}

// onRemembered is told what a member remembers.
func (r *rewinds) onRemembered(told gateway.Remembered) {
	memory, unread := rewind.MemoryOf(told.Tombstones)
	if unread > 0 {
		r.log.Warn("a member remembers removals in a form that this hub cannot read; they do not count", "cluster", told.Cluster, "count", unread)
	}
	told.Tombstones = nil
	r.told.mu.Lock()
	r.told.open[told.UID] = recollection{Remembered: told, memory: memory}
	r.told.mu.Unlock()
	r.told.poke()
}

func (q *recalls) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *recalls) take() []recollection {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Collect(maps.Values(q.open))
	clear(q.open)
	return out
}

// again later, unless the member has told anew meanwhile.
func (q *recalls) again(m recollection, after time.Duration) {
	m.tries++
	q.mu.Lock()
	if _, newer := q.open[m.UID]; !newer {
		q.open[m.UID] = m
	}
	q.mu.Unlock()
	time.AfterFunc(after, q.poke)
}

// forgotten is what of a member's memory the store has forgotten.
type forgotten struct {
	// templates that are here and were deleted; rows that are here and were removed.
	templates []rewind.Deleted
	rows      map[string]rewind.Removed
}

// recall settles what members remember until ctx ends.
func (r *rewinds) recall(ctx context.Context) error {
	summary := told{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.told.wake:
		}
		for _, m := range r.told.take() {
			r.heard(ctx, m, summary)
		}
		if !r.holding() {
			clear(summary)
		} else if err := r.sumUp(ctx, summary); err != nil && ctx.Err() == nil {
			r.log.Warn("what members remember of removals could not be written down; it counts all the same", "err", err)
		}
	}
}

// heard settles one member's memory, or, while the hub holds, only adds it up. What
// fails is tried again; until then nothing is ordered of the cluster.
func (r *rewinds) heard(ctx context.Context, m recollection, summary told) {
	found, err := r.forgotten(ctx, m.Cluster, m.memory)
	switch {
	case err != nil:
	case m.Settled == nil:
		summary[m.Cluster] = found
		return
	default:
		err = r.settle(ctx, m.Cluster, found)
	}
	if err == nil {
		m.Settled()
		return
	}
	if m.tries > 0 && m.tries%complainAfter == 0 {
		r.log.Warn("what a member remembers of removals is not settled yet; nothing is ordered of it before", "cluster", m.Cluster, "err", err)
	}
	after := recallRetry
	if errors.Is(err, errTableBehind) || errors.Is(err, state.ErrRowsMoved) {
		after = tableRetry
	}
	r.told.again(m, after)
}

// forgotten finds what the member remembers and the store does not.
func (r *rewinds) forgotten(ctx context.Context, cluster string, memory rewind.Memory) (forgotten, error) {
	out := forgotten{rows: map[string]rewind.Removed{}}
	held := map[string]bool{}
	for _, d := range memory.Deleted {
		alive, err := r.alive(ctx, d)
		if err != nil {
			return out, err
		}
		if alive {
			out.templates = append(out.templates, d)
			held[d.UID] = true
		}
	}
	since := time.Time{}
	if st := r.state.Hub.Get(); st != nil && st.Rewound != nil {
		since = st.Rewound.Since.Time
	}
	for bundle, removed := range memory.Rows {
		row, ok := r.state.Rows.Get(bundle, cluster)
		if !ok || row.Bundle.OfNamespace() || !rewind.Forgotten(row.Spec, removed, since) {
			continue
		}
		content, err := r.state.Revisions.Content(ctx, row.Spec.Revision)
		if err != nil {
			return out, fmt.Errorf("read what bundle %s/%s had in cluster %s: %w", row.Bundle.Namespace, row.Bundle.Name, cluster, err)
		}
		if !rewind.Covered(content, held) {
			out.rows[bundle] = removed
		}
	}
	return out, nil
}

// alive tells whether the very template that a user deleted is here, and nobody has
// decided yet to keep it.
func (r *rewinds) alive(ctx context.Context, d rewind.Deleted) (bool, error) {
	mapping, err := r.state.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: d.Key.Group, Kind: d.Key.Kind})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for template %s: %w", d.Key, err)
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := r.state.Client.Get(ctx, client.ObjectKey{Namespace: d.Key.Namespace, Name: d.Key.Name}, &o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("look for template %s: %w", d.Key, err)
	}
	_, decided := o.Annotations[atoll.AnnotationRecalled]
	_, held := atoll.Recalled(o.Annotations)
	return string(o.UID) == d.UID && o.DeletionTimestamp == nil && (held || !decided), nil
}

// settle writes what follows: templates are marked, rows are held.
func (r *rewinds) settle(ctx context.Context, cluster string, f forgotten) error {
	for _, d := range f.templates {
		if err := r.mark(ctx, cluster, d); err != nil {
			return err
		}
	}
	for _, d := range f.templates {
		if !r.marked(d) {
			return fmt.Errorf("template %s is marked as deleted before the restore: %w", d.Key, errTableBehind)
		}
	}
	for _, bundle := range slices.Sorted(maps.Keys(f.rows)) {
		if err := r.holdRow(ctx, cluster, bundle, f.rows[bundle]); err != nil {
			return err
		}
	}
	if len(f.templates)+len(f.rows) > 0 {
		r.log.Warn("a member remembers removals that this restored hub does not; they are held until somebody confirms or keeps them",
			"cluster", cluster, "templates", len(f.templates), "rows", len(f.rows))
	}
	return nil
}

// marked tells whether the table shows the template as one to hold back. One that is
// not there, or being deleted, needs no mark.
func (r *rewinds) marked(d rewind.Deleted) bool {
	if !r.state.Templates.Synced(d.Key.Group, d.Key.Kind) {
		return false
	}
	t, ok := r.state.Templates.Get(d.Key)
	return !ok || string(t.GetUID()) != d.UID || t.GetAnnotations()[atoll.AnnotationRecalled] != ""
}

// mark a template, unless it is.
func (r *rewinds) mark(ctx context.Context, cluster string, d rewind.Deleted) error {
	if r.marked(d) {
		return nil
	}
	mapping, err := r.state.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: d.Key.Group, Kind: d.Key.Kind})
	if err != nil {
		return fmt.Errorf("mark template %s: %w", d.Key, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.UID, "annotations": map[string]string{atoll.AnnotationRecalled: rewind.Note(d, cluster)},
	}})
	if err != nil {
		return err
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	o.SetNamespace(d.Key.Namespace)
	o.SetName(d.Key.Name)
	if err := r.state.Client.Patch(ctx, &o, client.RawPatch(types.MergePatchType, patch), hubWriter); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark template %s as deleted before the restore: %w", d.Key, err)
	}
	return nil
}

// hubWriter is the field manager of what no user wrote.
const hubWriter = client.FieldOwner("atoll-hub")

func (r *rewinds) holdRow(ctx context.Context, cluster, bundle string, removed rewind.Removed) error {
	row, ok := r.state.Rows.Get(bundle, cluster)
	b, known := r.state.Bundles.Get(bundle)
	if !ok || !known {
		return nil // it goes anyway
	}
	next := rewind.HoldRow(row.Spec, removed, atoll.PlacementHash(b.Spec.Placement), r.state.Hub.GenerationFloor(), time.Now())
	return r.state.Rows.WriteSpecs(ctx, row.Bundle, []state.Row{row}, map[string]*atoll.RowSpec{cluster: &next})
}

// told is what members remember, by cluster, while the hub holds.
type told map[string]forgotten

// sumUp writes what was told so far, once for all that tell at about the same time.
func (r *rewinds) sumUp(ctx context.Context, t told) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(tellAfter):
	}
	for _, more := range r.told.take() {
		r.heard(ctx, more, t)
	}
	now := t.sum(r.state)
	hub, err := updateHub(ctx, r.state.Client, func(old enginev1.HubState) enginev1.HubState {
		next := *old.DeepCopy()
		if next.Rewound != nil && next.Rewound.Accepted == "" {
			next.Rewound.Told = now
		}
		return next
	})
	if err != nil {
		return err
	}
	r.state.Hub.Put(hub)
	return nil
}

func (t told) sum(s *state.State) *enginev1.Told {
	var all []rewind.Testimony
	for cluster, f := range t {
		one := rewind.Testimony{Cluster: cluster, Deleted: f.templates}
		for uid := range f.rows {
			name := ""
			if b, ok := s.Bundles.Get(uid); ok {
				name = strings.TrimPrefix(b.Ref.Namespace+"/"+b.Ref.Name, "/")
			}
			one.Left = append(one.Left, name)
		}
		all = append(all, one)
	}
	return rewind.SumUp(all)
}
