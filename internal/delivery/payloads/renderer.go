package payloads

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"k8s.io/utils/lru"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/panicorigin"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/state"
)

const (
	// maxCompiled is how many Renderers of Revisions are kept, each of a few megabytes at
	// most. The shared parts of further Revisions are computed again for each row.
	maxCompiled = 32
	// maxCompiledBytes is the largest content whose Renderer is kept, in bytes of its
	// objects. A Renderer keeps its content in memory.
	maxCompiledBytes = 2 << 20
)

// Tables are what a ManifestInput is read from.
type Tables interface {
	// GetContent returns the content of a Revision, which the caller must not change.
	GetContent(ctx context.Context, revision string) (*atoll.Content, error)
	// HasStayingRow reports whether the Bundle of that UID has a row in the cluster that
	// is not Removing.
	HasStayingRow(bundleUID, cluster string) bool
	// GetCluster returns the cluster as override rules see it, and whether it leaves the
	// fleet with its workloads; view is nil where the cluster does not exist.
	GetCluster(name string) (view *atoll.ClusterView, leaves bool)
	// IsNamespaceDeleted reports whether the hub's namespace is missing or being deleted.
	IsNamespaceDeleted(name string) bool
	// ListRecalledDeletions returns the keys of the content's items that must not be sent.
	ListRecalledDeletions(content *atoll.Content) []string
}

// Renderer reads the inputs of manifests and renders them. Make it with NewRenderer.
type Renderer struct {
	tables Tables
	// confirmDeleted returns an error unless the namespace is deleted in the store.
	confirmDeleted func(ctx context.Context, namespace string) error
	hubKey         []byte
	compiled       *lru.Cache // *compiledRevision by name
	// slots bound the renderings at a time, and so their memory. Namespaces take turns.
	slots *fairness.WorkSlots
	// accounts set aside Revisions of Bundles that cost too much.
	accounts *quarantine.RenderAccounts
}

// NewRenderer returns a Renderer over the tables. confirmDeleted checks in the store that
// a namespace is deleted which the tables do not have. hubKey keys the hashes of contents.
// Renderings are charged to accounts.
func NewRenderer(tables Tables, confirmDeleted func(ctx context.Context, namespace string) error, hubKey []byte, accounts *quarantine.RenderAccounts) *Renderer {
	return &Renderer{tables: tables, confirmDeleted: confirmDeleted, hubKey: hubKey, compiled: lru.New(maxCompiled), slots: fairness.NewSlots(runtime.GOMAXPROCS(0)), accounts: accounts}
}

// ReadManifestInput reads, once, all that the row's manifest depends on.
func (r *Renderer) ReadManifestInput(ctx context.Context, row state.Row) (ManifestInput, error) {
	in := ManifestInput{Bundle: row.Bundle, Row: manifestFields(row.Spec), content: &atoll.Content{}, cluster: row.Cluster}
	if !row.Bundle.IsNamespaceRef() { // a row that only records a namespace has no content
		var err error
		if in.content, err = r.tables.GetContent(ctx, row.Spec.Revision); err != nil {
			return ManifestInput{}, err
		}
	}
	in.NamespaceDeleted = row.Bundle.Namespace != "" && r.tables.IsNamespaceDeleted(row.Bundle.Namespace)
	if in.Row.Phase != atoll.RowRemoving {
		in.HeldBack = r.tables.ListRecalledDeletions(in.content)
	}
	for _, t := range in.content.Tombstones {
		in.PresentBundles = append(in.PresentBundles, t.MovedTo...)
	}
	slices.Sort(in.PresentBundles)
	in.PresentBundles = slices.DeleteFunc(slices.Compact(in.PresentBundles), func(uid string) bool {
		return !r.tables.HasStayingRow(uid, row.Cluster)
	})
	// The cluster is read after the rows. A cluster starts to leave before its rows are
	// Removing. An older cluster with newer rows would make a tombstone that deletes an
	// object of a Bundle that only leaves with the cluster.
	in.view, in.ClusterLeaves = r.tables.GetCluster(row.Cluster)
	return in, nil
}

// RenderManifest returns what the cluster of the input is to hold, without a generation.
// A row whose variant is not the cluster's is not rendered: placement is about to write
// the row again.
// A panic is returned as an error: the hub would render the row again at its next start.
// A row that is to stay is not rendered while its Revision is quarantined: the error is a
// *quarantine.Error.
func (r *Renderer) RenderManifest(ctx context.Context, in ManifestInput) (rendered atoll.Manifest, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.accounts.ChargeRender(in.Bundle, in.Row.Revision, quarantine.RenderWork{HasPanicked: true})
			err = fmt.Errorf("a defect of Atoll, which deserves a report: %s", panicorigin.DescribePanic(p))
		}
	}()
	out := manifest.ManifestInput{
		Bundle: in.Bundle, Row: in.Row, Content: in.content, HashKey: r.hubKey,
		HasActiveRow: in.hasPresentBundle, ClusterLeaving: in.ClusterLeaves,
	}
	if in.Row.Phase != atoll.RowRemoving {
		var err error
		if out.Items, out.Rules, err = r.renderItems(in); err != nil {
			return atoll.Manifest{}, err
		}
	}
	switch ns := in.Bundle.Namespace; {
	case ns == "":
	case in.NamespaceDeleted:
		if err := r.confirmDeleted(ctx, ns); err != nil {
			return atoll.Manifest{}, err
		}
		out.DeletedNamespaces = []string{ns}
	case in.content.Namespace != nil:
		out.Namespaces = map[string]atoll.NamespaceMeta{ns: *in.content.Namespace}
	}
	return manifest.BuildManifest(out), nil
}

// renderItems returns the items of the input's content for its cluster, and the override
// rules that match the cluster.
func (r *Renderer) renderItems(in ManifestInput) (items []atoll.RenderedItem, rules []int, err error) {
	if in.view == nil {
		return nil, nil, fmt.Errorf("cluster %s is gone", in.cluster)
	}
	if len(in.HeldBack) > 0 {
		return nil, nil, fmt.Errorf("%s was deleted before the hub was restored; the Revision that holds it back is about to follow", in.HeldBack[0])
	}
	if err := r.accounts.CheckRender(in.Bundle.UID, in.Row.Revision); err != nil {
		return nil, nil, err
	}
	items, rules, variant, err := r.compiledRevision(in.Row.Revision, in.content).renderRow(in, r.slots, r.accounts)
	if err != nil {
		return nil, nil, err
	}
	if variant != in.Row.Variant {
		return nil, nil, fmt.Errorf("cluster %s changed since its row of bundle %s/%s was written; the row is about to follow", in.cluster, in.Bundle.Namespace, in.Bundle.Name)
	}
	return items, rules, nil
}

// compiledRevision returns the Renderer of a Revision, compiled if it is not kept.
func (r *Renderer) compiledRevision(name string, content *atoll.Content) *compiledRevision {
	if known, ok := r.compiled.Get(name); ok {
		return known.(*compiledRevision)
	}
	out, size := &compiledRevision{renderer: manifest.NewRenderer(content)}, 0
	for i := range content.Items {
		size += len(content.Items[i].Object)
	}
	if size <= maxCompiledBytes {
		r.compiled.Add(name, out)
	}
	return out
}

// compiledRevision is a Renderer behind a lock, since a Renderer serves one caller at a time.
type compiledRevision struct {
	mu       sync.Mutex
	renderer *manifest.Renderer
}

// renderRow returns the row's items for the cluster, the rules that match the cluster and
// the cluster's variant. Items are nil where the variant is not the row's. It takes a slot only
// when it can use it, and charges what it does with the slot. A Revision that is quarantined
// during the wait for the slot is not rendered.
func (v *compiledRevision) renderRow(in ManifestInput, slots *fairness.WorkSlots, accounts *quarantine.RenderAccounts) (items []atoll.RenderedItem, rules []int, variant string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer slots.Acquire(in.Bundle.Namespace)()
	if err := accounts.CheckRender(in.Bundle.UID, in.Row.Revision); err != nil {
		return nil, nil, "", err
	}
	cost := measureCPUTime(func() {
		if rules, variant = v.renderer.MatchRules(in.view); variant == in.Row.Variant {
			items, _ = v.renderer.RenderItems(manifest.RenderInputOf(in.Row, rules, in.view))
		}
	})
	accounts.ChargeRender(in.Bundle, in.Row.Revision, quarantine.RenderWork{CPUTime: cost})
	return items, rules, variant, nil
}
