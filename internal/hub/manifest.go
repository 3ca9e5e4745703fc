package hub

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rewind"
	"atoll.dev/atoll/internal/state"
)

// rowRenderer renders rows for the gateway from the tables.
type rowRenderer struct {
	state *state.State
	// ctx bounds reads of revisions that salt makes.
	ctx context.Context
	// key of the hub.
	key []byte
	// compiled has the Renderers of the Revisions that were rendered last, by name.
	compiled *lru.Cache
}

// mostCompiled is how many Renderers are kept, each of some megabytes at most. What more
// Revisions have in common at once is worked out for each row anew.
const mostCompiled = 32

// compiledContent is the most that the objects of a content may have, in bytes, for its
// Renderer to be kept, which keeps the content too.
const compiledContent = 2 << 20

func newRowRenderer(ctx context.Context, st *state.State, key []byte) rowRenderer {
	return rowRenderer{state: st, ctx: ctx, key: key, compiled: lru.New(mostCompiled)}
}

// revision is a Renderer, which one at a time uses.
type revision struct {
	mu sync.Mutex
	*render.Renderer
}

// items of a row of the Revision's content as its cluster gets them.
func (v *revision) items(row atoll.RowSpec, c *atoll.ClusterView) (items []atoll.Rendered, rules []int, variant string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rules, variant = v.Rules(c); variant == row.Variant {
		items, _ = v.Render(render.InputOf(row, rules, c))
	}
	return items, rules, variant
}

// revision of a name and its content.
func (r rowRenderer) revision(name string, content *atoll.Content) *revision {
	if known, ok := r.compiled.Get(name); ok {
		return known.(*revision)
	}
	out, size := &revision{Renderer: render.Compile(content)}, 0
	for i := range content.Items {
		size += len(content.Items[i].Object)
	}
	if size <= compiledContent {
		r.compiled.Add(name, out)
	}
	return out
}

// manifest gives what the row's cluster is to hold. A row whose variant is not the
// cluster's is about to be moved by place, and is not rendered before.
func (r rowRenderer) manifest(ctx context.Context, row state.Row) (atoll.Manifest, error) {
	content, err := r.content(ctx, row)
	if err != nil {
		return atoll.Manifest{}, err
	}
	in := render.ManifestInput{
		Bundle: row.Bundle, Row: row.Spec, Content: content, Key: r.key,
		Here:   func(bundle string) bool { return r.here(bundle, row.Cluster) },
		Leaves: r.leaves(row.Cluster),
	}
	if row.Spec.Phase != atoll.RowRemoving {
		cluster, ok := r.state.Clusters.Get(row.Cluster)
		if !ok {
			return atoll.Manifest{}, fmt.Errorf("cluster %s is gone", row.Cluster)
		}
		if held := r.heldBack(content); len(held) > 0 {
			return atoll.Manifest{}, fmt.Errorf("%s was deleted before the hub was restored; the Revision that holds it back is about to follow", held[0])
		}
		view := r.state.Views.Stated(cluster)
		items, rules, variant := r.revision(row.Spec.Revision, content).items(row.Spec, &view)
		if variant != row.Spec.Variant {
			return atoll.Manifest{}, fmt.Errorf("cluster %s changed since its row of bundle %s/%s was written; the row is about to follow", row.Cluster, row.Bundle.Namespace, row.Bundle.Name)
		}
		in.Rules, in.Items = rules, items
	}
	if ns := row.Bundle.Namespace; ns != "" {
		if r.doomed(ns) {
			if err := r.buried(ctx, ns); err != nil {
				return atoll.Manifest{}, err
			}
			in.DeletedNamespaces = []string{ns}
		} else if content.Namespace != nil {
			in.Namespaces = map[string]atoll.NamespaceMeta{ns: *content.Namespace}
		}
	}
	return render.BuildManifest(in), nil
}

// content of the row's revision. A row that is no Bundle's, but where a namespace
// stays, has none.
func (r rowRenderer) content(ctx context.Context, row state.Row) (*atoll.Content, error) {
	if row.Bundle.OfNamespace() {
		return &atoll.Content{}, nil
	}
	return r.state.Revisions.Content(ctx, row.Spec.Revision)
}

// heldBack lists the items of the content that are not to be sent, while the content
// does not say so yet: members remember that they were deleted.
func (r rowRenderer) heldBack(content *atoll.Content) (held []string) {
	if !rewind.Recalling(r.state.Hub.Get(), time.Now()) {
		return nil
	}
	for i := range content.Items {
		item := &content.Items[i]
		t, ok := r.state.Templates.Get(item.Key)
		if !ok || item.State == atoll.ItemRemovalHeld || string(t.GetUID()) != item.UID {
			continue
		}
		if _, recalled := atoll.Recalled(t.GetAnnotations()); recalled {
			held = append(held, item.Key.String())
		}
	}
	return held
}

// doomed: the hub's namespace is deleted, or about to be.
func (r rowRenderer) doomed(ns string) bool {
	o, ok := r.state.Namespaces.Get(ns)
	return !ok || o.DeletionTimestamp != nil
}

// buried makes sure of what is doomed: that the table lacks a namespace is not yet a
// user's word, since the table of a hub that does not lead may be behind the row.
func (r rowRenderer) buried(ctx context.Context, ns string) error {
	if _, ok := r.state.Namespaces.Get(ns); ok {
		return nil
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.state.Client.Get(ctx, client.ObjectKey{Name: ns}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("make sure that namespace %s was deleted: %w", ns, err)
	case o.DeletionTimestamp != nil:
		return nil
	}
	return fmt.Errorf("namespace %s is there, and this hub's table does not show it yet", ns)
}

// here tells whether the Bundle has a row in the cluster that stays.
func (r rowRenderer) here(bundle, cluster string) bool {
	row, ok := r.state.Rows.Get(bundle, cluster)
	return ok && row.Spec.Phase != atoll.RowRemoving
}

// leaves tells whether the cluster leaves the fleet with what runs in it.
func (r rowRenderer) leaves(cluster string) bool {
	c, ok := r.state.Clusters.Get(cluster)
	return ok && c.Spec.Removal != nil && c.Spec.Removal.Mode == v1alpha1.ClusterOrphan
}

// salt names what manifest looks at besides the row: whether the namespace is doomed, whether
// the row's cluster leaves the fleet, which of the Bundles that took items over are in the
// cluster, and what is held back.
func (r rowRenderer) salt(row state.Row) string {
	var parts []any
	if ns := row.Bundle.Namespace; ns != "" {
		parts = append(parts, r.doomed(ns))
	}
	if render.LeftBehind(row.Spec) {
		parts = append(parts, "left behind")
	}
	if r.leaves(row.Cluster) {
		parts = append(parts, "leaves")
	}
	content, err := r.content(r.ctx, row)
	if err != nil {
		return atoll.HashJSON(parts)
	}
	if held := r.heldBack(content); len(held) > 0 {
		parts = append(parts, held)
	}
	var here []string
	for _, t := range content.Tombstones {
		for _, bundle := range t.MovedTo {
			if !slices.Contains(here, bundle) && r.here(bundle, row.Cluster) {
				here = append(here, bundle)
			}
		}
	}
	return atoll.HashJSON(append(parts, here))
}
