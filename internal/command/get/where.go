package get

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// itemPlace is a cluster that an object is placed in.
type itemPlace struct {
	cluster string
	state   atoll.RowState
	// disconnected: nothing waits for it.
	away bool
	// leaving: it is on its way out, and not counted.
	leaving bool
	// isPending: an old copy elsewhere must end first.
	isPending bool
}

// itemPlaces are the places of one object, by cluster.
type itemPlaces []itemPlace

// placeIndex has the places of objects, by their keys; of the only ones in Bundles that have no more of
// them than a UID, the rows.
type placeIndex struct {
	keys map[atoll.ItemKey]itemPlaces
	only map[types.UID][]client.Row
	away map[string]bool
}

// locationOf returns the location of an object; false where it is in no Bundle.
func (w placeIndex) locationOf(key atoll.ItemKey, uid types.UID) (itemPlaces, bool) {
	rows, alone := w.only[uid]
	at, ok := w.keys[key]
	if !alone {
		return at, ok
	}
	at = slices.Clone(at)
	for _, r := range rows {
		if p, ok := itemPlaceInRow(key, r, w.away[r.Cluster]); ok {
			at = append(at, p)
		}
	}
	at.sortByCluster()
	return at, true
}

// restrictTo restricts to some clusters.
func (p itemPlaces) restrictTo(clusters []string) itemPlaces {
	return slices.DeleteFunc(slices.Clone(p), func(one itemPlace) bool { return !slices.Contains(clusters, one.cluster) })
}

// readyText returns "READY/ALL": the clusters where the object is ready, of the clusters that are
// to have it.
func (p itemPlaces) readyText() string {
	ready, all := 0, 0
	for _, one := range p {
		if one.leaving {
			continue
		}
		all++
		if one.state == atoll.RowReady {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, all)
}

// worst first.
var severity = []atoll.RowState{atoll.RowFailed, atoll.RowDegraded, atoll.RowProgressing, atoll.RowReady}

// stateText is the worst of clusters that are there, and how many are not.
func (p itemPlaces) stateText() string {
	worst, away, leaving := len(severity), 0, 0
	for _, one := range p {
		switch {
		case one.leaving:
			leaving++
		case one.away:
			away++
		default:
			worst = min(worst, slices.Index(severity, one.state))
		}
	}
	var words []string
	if worst < len(severity) {
		words = append(words, string(severity[worst]))
	}
	if away > 0 {
		words = append(words, fmt.Sprintf("%d away", away))
	}
	if leaving > 0 {
		words = append(words, fmt.Sprintf("%d leaving", leaving))
	}
	return strings.Join(words, ", ")
}

// clusterNamesText returns the names of the clusters, with what is not ready of them.
func (p itemPlaces) clusterNamesText() string {
	var words []string
	for _, one := range p {
		word := one.cluster
		switch {
		case one.leaving:
			word += "(leaving)"
		case one.isPending:
			word += "(pending)"
		case one.away:
			word += "(away)"
		case one.state != atoll.RowReady:
			word += "(" + string(one.state) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// itemPlaceInRow returns the place of an item in a row's cluster; false where the row keeps it out.
func itemPlaceInRow(key atoll.ItemKey, r client.Row, away bool) (itemPlace, bool) {
	p := itemPlace{cluster: r.Cluster, state: atoll.RowProgressing, away: away, isPending: r.Spec.Phase == atoll.RowPending, leaving: !r.Spec.Phase.IsChosen()}
	if r.Spec.Phase == atoll.RowVacant || slices.Contains(r.Spec.Absent, key.String()) {
		return p, false
	}
	s := r.Status
	if s == nil || s.Generation < r.Spec.Generation {
		return p, true
	}
	i := slices.IndexFunc(s.Items, func(it atoll.ItemStatus) bool { return it.Key == key })
	switch {
	case i < 0:
		if s.Applied && s.UnlistedNotReady == 0 {
			p.state = atoll.RowReady
		}
	case s.Items[i].Error:
		p.state = atoll.RowFailed
	case s.Items[i].Health == atoll.Degraded:
		p.state = atoll.RowDegraded
	case s.Items[i].Health == atoll.Healthy:
		p.state = atoll.RowReady
	}
	return p, true
}

const (
	// readAtOnce revisions are read at a time.
	readAtOnce = 8
	// The rows of up to fewBundles are read by Bundle; with more, all rows are read.
	fewBundles = 100
	// fewClusters are read each by itself; with more, all are.
	fewClusters = 8
)

// placeFinder finds the clusters of objects. It keeps the revisions that it read, because they never
// change.
type placeFinder struct {
	client    *client.Connection
	namespace string // empty: all, and what is in none
	now       time.Time
	items     map[string][]atoll.ItemKey // by revision
}

func newFinder(c *client.Connection, namespace string, now time.Time) *placeFinder {
	return &placeFinder{client: c, namespace: namespace, now: now, items: map[string][]atoll.ItemKey{}}
}

// soleItem object of a Bundle, as the Bundle itself names it.
type soleItem struct {
	key atoll.ItemKey // empty where the UID alone is known
	uid types.UID
}

// soleItemOf returns the only item of a Bundle; false where only its Revisions show the items.
func soleItemOf(b *v1alpha1.Bundle) (o soleItem, ok bool) {
	if b.Status.Items != 1 {
		return o, false
	}
	if b.Spec.Source.Kind == v1alpha1.SourceAnnotation {
		o.uid = types.UID(b.Spec.Source.UID)
		return o, o.uid != ""
	}
	kind, name, ok := strings.Cut(b.Spec.Group, "/") // which is so for groupBy: Object alone
	if !ok {
		return o, false
	}
	gk := schema.ParseGroupKind(kind)
	o.key = atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: b.Namespace, Name: name}
	return o, true
}

// soleItemByBundle returns the items of the Bundles that have one, by namespace and name.
func soleItemByBundle(bundles []v1alpha1.Bundle) map[[2]string]soleItem {
	out := map[[2]string]soleItem{}
	for i := range bundles {
		if o, ok := soleItemOf(&bundles[i]); ok {
			out[[2]string{bundles[i].Namespace, bundles[i].Name}] = o
		}
	}
	return out
}

// addPlaces adds the places of a row's items.
func (w placeIndex) addPlaces(keys []atoll.ItemKey, r client.Row) {
	for _, key := range keys {
		if p, ok := itemPlaceInRow(key, r, w.away[r.Cluster]); ok {
			w.keys[key] = append(w.keys[key], p)
		}
	}
}

// findPlaces finds where objects run.
func (f *placeFinder) findPlaces(ctx context.Context) (placeIndex, error) {
	out := placeIndex{map[atoll.ItemKey]itemPlaces{}, map[types.UID][]client.Row{}, nil}
	bundles, err := f.listBundles(ctx)
	if err != nil || len(bundles) == 0 {
		return out, err
	}
	rows, err := client.ListRows(ctx, f.client, targetSliceSelector(bundles, f.namespace), func(r client.Row) bool {
		return r.Spec.Revision != "" && (f.namespace == "" || r.Namespace == f.namespace)
	})
	if err != nil {
		return out, err
	}
	if out.away, err = f.disconnectedClusters(ctx, rows); err != nil {
		return out, err
	}
	known := soleItemByBundle(bundles)
	if err := f.readRevisionItems(ctx, rows, known); err != nil {
		return out, err
	}
	for _, r := range rows {
		keys := f.items[r.Spec.Revision]
		if o, ok := known[[2]string{r.Namespace, r.Bundle}]; ok {
			if o.uid != "" {
				out.only[o.uid] = append(out.only[o.uid], r)
				continue
			}
			keys = []atoll.ItemKey{o.key}
		}
		out.addPlaces(keys, r)
	}
	for _, p := range out.keys {
		p.sortByCluster()
	}
	return out, nil
}

func (p itemPlaces) sortByCluster() {
	slices.SortFunc(p, func(a, b itemPlace) int { return cmp.Compare(a.cluster, b.cluster) })
}

// listBundles lists the Bundles in the namespace, or all.
func (f *placeFinder) listBundles(ctx context.Context) ([]v1alpha1.Bundle, error) {
	all, err := client.List[v1alpha1.Bundle](ctx, f.client, client.Bundles, f.namespace, metav1.ListOptions{})
	if err != nil || f.namespace != "" {
		return all, err
	}
	// These, which have the same fields, have no namespace filter.
	wide, err := client.List[v1alpha1.Bundle](ctx, f.client, client.ClusterBundles, "", metav1.ListOptions{})
	return append(all, wide...), err
}

// targetSliceSelector returns the label selector of the Bundles' TargetSlices. An empty selector
// selects all. Empty selects all.
func targetSliceSelector(bundles []v1alpha1.Bundle, namespace string) string {
	if namespace == "" || len(bundles) > fewBundles {
		return ""
	}
	uids := make([]string, len(bundles))
	for i := range bundles {
		uids[i] = string(bundles[i].UID)
	}
	return fmt.Sprintf("%s in (%s)", enginev1.LabelBundle, strings.Join(uids, ","))
}

// disconnectedClusters returns which of the rows' clusters are.
func (f *placeFinder) disconnectedClusters(ctx context.Context, rows []client.Row) (map[string]bool, error) {
	away := map[string]bool{}
	names := map[string]bool{}
	for _, r := range rows {
		names[r.Cluster] = true
	}
	if len(names) > fewClusters {
		all, err := absentClusters(ctx, f.client, f.now)
		for name, a := range all {
			away[name] = a.away
		}
		return away, err
	}
	for name := range names {
		c, err := client.Get[v1alpha1.Cluster](ctx, f.client, client.Clusters, "", name)
		switch {
		case err == nil:
			away[name] = absenceOf(*c, f.now).away
		case !apierrors.IsNotFound(err): // a row may outlive its cluster
			return nil, err
		}
	}
	return away, nil
}

// readRevisionItems reads what is in revisions of Bundles of which it is not known.
func (f *placeFinder) readRevisionItems(ctx context.Context, rows []client.Row, known map[[2]string]soleItem) error {
	var mu sync.Mutex
	wanted := map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for _, r := range rows {
		if _, single := known[[2]string{r.Namespace, r.Bundle}]; single || wanted[r.Spec.Revision] {
			continue
		}
		mu.Lock()
		_, had := f.items[r.Spec.Revision]
		mu.Unlock()
		if had {
			continue
		}
		wanted[r.Spec.Revision] = true
		g.Go(func() error {
			keys, hidden, err := client.ItemKeys(ctx, f.client, r.Spec.Revision)
			if err == nil {
				err = hidden
			}
			if err == nil {
				mu.Lock()
				f.items[r.Spec.Revision] = keys
				mu.Unlock()
			}
			return err
		})
	}
	return g.Wait()
}
