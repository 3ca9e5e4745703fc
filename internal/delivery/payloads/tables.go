package payloads

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/restore"
	"atoll.dev/atoll/internal/state"
)

// hubTables are the Tables of a hub.
type hubTables struct{ *state.HubTables }

// NewHubRenderer returns a Renderer over the tables of a hub, which charges accounts.
func NewHubRenderer(st *state.HubTables, hubKey []byte, accounts *quarantine.RenderAccounts) *Renderer {
	tables := hubTables{st}
	return NewRenderer(tables, tables.confirmNamespaceDeleted, hubKey, accounts)
}

func (t hubTables) GetContent(ctx context.Context, revision string) (*atoll.Content, error) {
	return t.Revisions.GetContent(ctx, revision)
}

func (t hubTables) HasStayingRow(bundleUID, cluster string) bool {
	row, ok := t.Rows.Get(bundleUID, cluster)
	return ok && row.Spec.Phase != atoll.RowRemoving && !row.Spec.Phase.OrdersNothing()
}

func (t hubTables) GetCluster(name string) (view *atoll.ClusterView, leaves bool) {
	c, ok := t.Clusters.Get(name)
	if !ok {
		return nil, false
	}
	stated := t.Views.ViewForOverrides(c)
	return &stated, c.Spec.Removal != nil && c.Spec.Removal.Mode == v1alpha1.ClusterOrphan
}

func (t hubTables) IsNamespaceDeleted(name string) bool {
	o, ok := t.Namespaces.Get(name)
	return !ok || o.DeletionTimestamp != nil
}

// ListRecalledDeletions returns the items whose deletion members recorded, while the content does
// not hold them back yet.
func (t hubTables) ListRecalledDeletions(content *atoll.Content) (held []string) {
	if !restore.IsRecalling(t.Hub.Get(), time.Now()) {
		return nil
	}
	for i := range content.Items {
		item := &content.Items[i]
		template, ok := t.Templates.Get(item.Key)
		if !ok || item.State == atoll.ItemRemovalHeld || string(template.GetUID()) != item.UID {
			continue
		}
		if _, recalled := atoll.RememberedDeletionNote(template.GetAnnotations()); recalled {
			held = append(held, item.Key.String())
		}
	}
	return held
}

// confirmNamespaceDeleted returns an error unless the namespace is deleted in the store. A
// namespace that the table lacks is no proof: the table of a hub that does not lead may be
// older than the row.
func (t hubTables) confirmNamespaceDeleted(ctx context.Context, name string) error {
	if _, ok := t.Namespaces.Get(name); ok {
		return nil
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := t.Client.Get(ctx, client.ObjectKey{Name: name}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("confirm that namespace %s was deleted: %w", name, err)
	case o.DeletionTimestamp != nil:
		return nil
	}
	return fmt.Errorf("namespace %s exists, and this hub's table does not show it yet", name)
}
