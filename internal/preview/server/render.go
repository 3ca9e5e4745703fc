package server

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

const (
	// maxRenderedClusters are answered at once.
	maxRenderedClusters = 1000
	// maxRenderedBytes of objects are answered at once. The last one may exceed them.
	maxRenderedBytes = 8 << 20
	// renderedMemory is about what an answer takes: the objects, and their JSON twice.
	renderedMemory = 3 * maxRenderedBytes
)

// ServeRender answers, or refuses with a Status as the API does.
func (s *Server) ServeRender(w http.ResponseWriter, r *http.Request) {
	out, err := s.answerRender(r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, out)
}

func (s *Server) answerRender(r *http.Request) (*preview.Rendered, error) {
	q := r.URL.Query()
	x, release, err := s.beginGetQuery(r, "render", "the rendering", renderedMemory, "group", "kind", "namespace", "name", "cluster")
	if err != nil {
		return nil, err
	}
	defer release()
	key, err := x.checkReadableObject(r.Context(), itemKeyFromQuery(q))
	if err != nil {
		return nil, err
	}
	b := renderedObject{key: key, cluster: q.Get("cluster"), byContent: map[string]int{}}
	for _, id := range x.sources.Binder.BundlesInvolving(key) {
		if bundle, ok := x.sources.State.Bundles.GetByName(id.Namespace, id.Name); ok && x.mayKnowBundle(r.Context(), key, id.Namespace, id.Name) {
			if err := b.addBundle(r.Context(), x.sources.State, bundle, id); err != nil {
				return nil, err
			}
		}
	}
	if len(b.out.Contents) == 0 {
		where := "in no cluster"
		if b.cluster != "" {
			where = fmt.Sprintf("not in cluster %q", b.cluster)
		}
		return nil, refusal.WithReason(atoll.ReasonNotFound, apierrors.NewBadRequest(fmt.Sprintf("%s/%s is %s; `atoll explain` shows why", key.Kind, key.Name, where)))
	}
	return &b.out, nil
}

// renderedObject collects what clusters get of an object.
type renderedObject struct {
	key     atoll.ItemKey
	cluster string // empty: all
	out     preview.Rendered
	// byContent are indexes of out.Contents, by what the contents follow from.
	byContent       map[string]int
	clusters, bytes int
}

// addBundle adds what the rows of a Bundle that holds the object give its clusters.
func (b *renderedObject) addBundle(ctx context.Context, st *state.HubTables, bundle state.Bundle, id policymatch.BundleID) error {
	renderers := map[string]*manifest.Renderer{}
	for _, row := range st.Rows.ListOfBundle(bundle.Ref.UID) {
		c, ok := st.Clusters.Get(row.Cluster)
		if !ok || row.Spec.Phase == atoll.RowRemoving || b.cluster != "" && b.cluster != row.Cluster {
			continue
		}
		if b.clusters >= maxRenderedClusters || b.bytes >= maxRenderedBytes {
			b.out.More++
			continue
		}
		content, err := st.Revisions.GetContent(ctx, row.Spec.Revision)
		if err != nil {
			return fmt.Errorf("read revision %s of bundle %s: %w", row.Spec.Revision, id, err)
		}
		renderer := renderers[row.Spec.Revision]
		if renderer == nil {
			renderer = manifest.NewRenderer(content)
			renderers[row.Spec.Revision] = renderer
		}
		view := st.Views.ViewForOverrides(c)
		b.addRow(renderer, row, &view, content)
	}
	return nil
}

func (b *renderedObject) addRow(renderer *manifest.Renderer, row state.Row, view *atoll.ClusterView, content *atoll.Content) {
	_, variant := renderer.MatchRules(view)
	name := row.Spec.RenderKey(variant)
	if i, known := b.byContent[name]; known {
		b.out.Contents[i].Clusters = append(b.out.Contents[i].Clusters, row.Cluster)
		b.clusters++
		return
	}
	items, _, _ := renderer.RenderRow(row.Spec, *view)
	for i := range items {
		if it := &items[i]; it.Key == b.key {
			b.byContent[name] = len(b.out.Contents)
			one := preview.RenderedContent{
				Clusters: []string{row.Cluster}, APIVersion: it.APIVersion, Object: it.Object, MemberOwned: it.MemberOwned,
				Interpreters: script.InterpretersForMember(content.Interpreters),
			}
			if it.Failed() {
				one.Error = it.Error
			}
			b.out.Contents = append(b.out.Contents, one)
			b.clusters++
			b.bytes += len(it.Object)
		}
	}
}
