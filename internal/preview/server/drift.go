package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

const (
	// maxDriftedObjects are answered at once.
	maxDriftedObjects = 2000
	// maxDriftBytes of texts are answered at once. The last object may exceed them.
	maxDriftBytes = 2 << 20
	// driftMemory is about what an answer takes at most: the objects, and their JSON with escaped texts.
	driftMemory = 16 << 20
)

// ServeDrift answers, or refuses with a Status as the API does.
func (s *Server) ServeDrift(w http.ResponseWriter, r *http.Request) {
	out, err := s.answerDrift(r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, out)
}

func (s *Server) answerDrift(r *http.Request) (*preview.Drifts, error) {
	q := r.URL.Query()
	x, release, err := s.beginGetQuery(r, "drift", "the list of drift", driftMemory, "group", "kind", "namespace", "name", "cluster")
	if err != nil {
		return nil, err
	}
	defer release()
	ctx := r.Context()
	d := driftQuery{namespace: q.Get("namespace"), cluster: q.Get("cluster"), out: preview.Drifts{Objects: []preview.DriftedObject{}}, mayGet: func(key atoll.ItemKey) bool { return x.mayGet(ctx, key) }}
	if q.Get("kind") != "" || q.Get("name") != "" {
		key, err := x.checkReadableObject(ctx, itemKeyFromQuery(q))
		if err != nil {
			return nil, err
		}
		d.object, d.involved = &key, x.sources.Binder.BundlesInvolving(key)
	} else if err := x.checkMayListBundles(ctx, d.namespace); err != nil {
		return nil, err
	}
	x.addDrifts(ctx, &d)
	d.sortObjects()
	return &d.out, x.countNotCompared(ctx, &d)
}

// checkMayListBundles returns an error for a user that may not read the Bundles of the namespace; empty: of
// all namespaces.
func (x *userQuery) checkMayListBundles(ctx context.Context, namespace string) error {
	if x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: "Bundle", Namespace: namespace}) {
		return nil
	}
	where := "all namespaces: name one"
	if namespace != "" {
		where = "namespace " + namespace
	}
	why := fmt.Errorf("drift is listed to users that may get Bundles, and %q may not in %s", x.user.GetName(), where)
	return refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("bundles").GroupResource(), "", why))
}

// addDrifts adds the drift of the rows that the query is about. It reads rows with drift alone.
func (x *userQuery) addDrifts(ctx context.Context, d *driftQuery) {
	st := x.sources.State
	for _, uid := range st.Drifted.Bundles() {
		b, ok := st.Bundles.Get(uid)
		if !ok || !x.isDriftOf(ctx, d, b) {
			continue
		}
		for _, cluster := range st.Drifted.ClustersOf(uid) {
			if !d.coversCluster(cluster) {
				continue
			}
			if row, ok := st.Rows.Get(uid, cluster); ok && row.Status != nil {
				c, known := st.Clusters.Get(cluster)
				d.addRow(b, row, known && isConnected(c))
			}
		}
	}
}

// countNotCompared counts the rows of the query that have no comparison with their latest content. It reads
// the contents of Bundles alone that are not ready everywhere at their latest revision.
func (x *userQuery) countNotCompared(ctx context.Context, d *driftQuery) error {
	st := x.sources.State
	for _, b := range st.Bundles.List() {
		latest, ok := st.Revisions.LatestOfBundle(b.Ref.UID)
		if !ok || isReadyAt(b, latest.Name) || !x.isDriftOf(ctx, d, b) {
			continue
		}
		content, err := st.Revisions.GetContent(ctx, latest.Name)
		if err != nil {
			return fmt.Errorf("read revision %s of bundle %s/%s: %w", latest.Name, b.Ref.Namespace, b.Ref.Name, err)
		}
		if d.hasDriftObservedItem(content) {
			x.countRowsNotCompared(d, b, latest.Name)
		}
	}
	return nil
}

// isReadyAt reports whether all clusters of a Bundle were ready at the revision when its status was written.
func isReadyAt(b state.Bundle, revision string) bool {
	n := b.Status.Clusters
	return n.Desired > 0 && n.Ready == n.Desired && b.Status.Revision == revision
}

func (x *userQuery) countRowsNotCompared(d *driftQuery, b state.Bundle, revision string) {
	st := x.sources.State
	for _, row := range st.Rows.ListOfBundle(b.Ref.UID) {
		c, known := st.Clusters.Get(row.Cluster)
		if d.coversCluster(row.Cluster) && known && isConnected(c) && !hasComparedRevision(row, revision) {
			d.out.NotCompared++
		}
	}
}

// hasComparedRevision reports whether a row's cluster has compared, or applied, each object of the revision.
func hasComparedRevision(row state.Row, revision string) bool {
	return row.Spec.Phase != atoll.RowActive || row.Spec.Revision == revision && row.Status != nil && row.Status.Generation >= row.Spec.Generation && row.Status.Applied
}

func isConnected(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterReady)
}

// isDriftOf reports whether the Bundle may have objects of the query, and the user may see the Bundle.
func (x *userQuery) isDriftOf(ctx context.Context, d *driftQuery, b state.Bundle) bool {
	kind := "Bundle"
	switch {
	case d.object != nil && !slices.Contains(d.involved, policymatch.BundleID{Namespace: b.Ref.Namespace, Name: b.Ref.Name}):
		return false
	case d.object != nil:
		return x.mayKnowBundle(ctx, *d.object, b.Ref.Namespace, b.Ref.Name)
	case d.namespace != "" && b.Ref.Namespace != d.namespace:
		return false
	case b.Ref.Namespace == "":
		kind = "ClusterBundle"
	}
	return x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: b.Ref.Namespace, Name: b.Ref.Name})
}

// driftQuery collects an answer.
type driftQuery struct {
	// object that the query is about; nil: all objects of the namespace, or of all namespaces if that is empty.
	object *atoll.ItemKey
	// involved are the Bundles that hold the object.
	involved           []policymatch.BundleID
	namespace, cluster string
	mayGet             func(atoll.ItemKey) bool
	out                preview.Drifts
	// bytes of the texts of out, about.
	bytes int
}

func (d *driftQuery) coversCluster(name string) bool { return d.cluster == "" || d.cluster == name }

// hasDriftObservedItem reports whether clusters report the drift of an object of the query in the content.
func (d *driftQuery) hasDriftObservedItem(content *atoll.Content) bool {
	return slices.ContainsFunc(content.Items, func(it atoll.Item) bool {
		return it.Treatment.Observation().ReportsDrift() && (d.object == nil || *d.object == it.Key)
	})
}

// addRow adds the drifted items of a row that the user may read.
func (d *driftQuery) addRow(b state.Bundle, row state.Row, connected bool) {
	hidden, found := row.Status.Drifted, false
	approvals := row.Spec.OpenApprovals(row.Status)
	for _, it := range row.Status.Items {
		if it.Drift == nil {
			continue
		}
		hidden--
		found = found || d.object != nil && *d.object == it.Key
		switch {
		case d.object != nil && *d.object != it.Key, !d.mayGet(it.Key):
		case len(d.out.Objects) >= maxDriftedObjects || d.bytes >= maxDriftBytes:
			d.out.More++
		default:
			one := driftedObject(it)
			d.bytes += sizeOfObject(&one)
			one.Cluster, one.Bundle = row.Cluster, strings.TrimPrefix(b.Ref.Namespace+"/"+b.Ref.Name, "/")
			one.Approval = approvalOf(approvals, it)
			one.Outdated, one.Disconnected = row.Status.Generation < row.Spec.Generation, !connected
			d.out.Objects = append(d.out.Objects, one)
		}
	}
	if !found && hidden > 0 { // the report had no room for them
		d.out.More += int(hidden)
	}
}

// approvalOf returns the open approval of an item's drift; nil without one.
func approvalOf(open []atoll.DriftApproval, it atoll.ItemStatus) *atoll.ApprovalOrigin {
	for _, a := range open {
		if a.ID == it.Drift.ID && a.Item == it.Key.String() {
			return a.ToOrigin()
		}
	}
	return nil
}

func driftedObject(it atoll.ItemStatus) preview.DriftedObject {
	out := preview.DriftedObject{
		Group: it.Key.Group, Kind: it.Key.Kind, Namespace: it.Key.Namespace, Name: it.Key.Name,
		ID: it.Drift.ID, Missing: it.Drift.Missing, MissingSince: timeOf(it.Drift.Since), DifferentFields: int(it.Drift.Total),
	}
	for _, f := range it.Drift.Fields {
		out.Fields = append(out.Fields, preview.DriftedField{Path: f.Path, Live: f.Live, Wanted: f.Wanted, Managers: f.Managers, Since: timeOf(f.Since)})
	}
	return out
}

// sizeOfObject returns about how many bytes the texts of an object have.
func sizeOfObject(o *preview.DriftedObject) int {
	n := len(o.Group) + len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.Cluster) + len(o.Bundle)
	for _, f := range o.Fields {
		n += len(f.Path) + len(f.Live) + len(f.Wanted)
		for _, m := range f.Managers {
			n += len(m)
		}
	}
	return n
}

// timeOf returns a time in Unix seconds; nil for 0.
func timeOf(unix int64) *time.Time {
	if unix == 0 {
		return nil
	}
	at := time.Unix(unix, 0).UTC()
	return &at
}

func (d *driftQuery) sortObjects() {
	slices.SortFunc(d.out.Objects, func(a, b preview.DriftedObject) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
}
