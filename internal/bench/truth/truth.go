// Package truth compares what a hub says with what its simulated agents hold and
// with what was asked for.
//
// Contract: it looks at all rows, all agents and all templates, not at samples, and
// knows nothing but what it is told and what it reads: the rules by which a group of
// clusters is chosen come from the caller. It only reads. A Verdict counts what is
// wrong and quotes the first few cases. A Check is not safe for concurrent use.
package truth

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/lab/fleet"
)

// App is an application as it was asked for: one policy, whose Bundle has its name.
type App struct {
	Namespace, Policy string
	// Deployment whose status is looked at; empty: none.
	Deployment string
	// Replicas of it; each cluster has all of them.
	Replicas int32
	// Items of the Bundle, and their Mark as they were applied (fleet.MarkOf): all else
	// that an agent holds is compared with what the hub says only.
	Items int
	Mark  uint32
	// In tells whether a cluster with these labels is to have it; nil: all are.
	In func(labels map[string]string) bool
}

// Check says what to compare.
type Check struct {
	// API of the hub.
	API rest.Interface
	// Fleets hold the agents of all clusters.
	Fleets []*fleet.Control
	// Apps are all that is placed.
	Apps []App
	// Unhealthy rows are fine: their members fail as they are told to.
	Unhealthy bool
}

const (
	// pageSize of lists: slices are some 100 kB each.
	pageSize = 100
	// metadataOnly asks for no more than what objects are called and labelled, of
	// which pages may be larger.
	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataPage = 1000
)

// cluster as the hub has it.
type cluster struct {
	uid    string
	labels map[string]string
}

// pair of a Bundle and a cluster.
type pair struct{ bundle, cluster int32 }

// row is what is compared with the agent's.
type row struct {
	generation int64
	content    uint64
}

// look is one look at everything.
type look struct {
	*Check
	v        Verdict
	seed     maphash.Seed
	clusters map[string]int32 // by name
	list     []cluster
	uids     map[string]int32 // clusters by UID
	apps     map[string]int32 // by namespace/policy
	bundles  map[string]int32 // applications by their Bundle's UID
	rows     map[pair]row
}

// Look once. An error means that something could not be read.
func (c *Check) Look(ctx context.Context) (Verdict, error) {
	l := look{
		Check: c, seed: maphash.MakeSeed(), clusters: map[string]int32{}, uids: map[string]int32{},
		apps: map[string]int32{}, bundles: map[string]int32{}, rows: map[pair]row{},
	}
	for i, a := range c.Apps {
		l.apps[a.Namespace+"/"+a.Policy] = int32(i)
	}
	for _, part := range []func(context.Context) error{l.readClusters, l.readBundles, l.readSlices, l.readHoldings, l.readTemplates} {
		if err := part(ctx); err != nil {
			return l.v, err
		}
	}
	return l.v, nil
}

func (l *look) readClusters(ctx context.Context) error {
	return pages(ctx, l.API, listing{"/apis/atoll.dev/v1alpha1/clusters", metadataOnly, metadataPage}, func(c *metav1.PartialObjectMetadata) {
		i := int32(len(l.list))
		l.clusters[c.Name], l.uids[string(c.UID)] = i, i
		l.list = append(l.list, cluster{uid: string(c.UID), labels: c.Labels})
	})
}

// wants counts the rows that are asked for.
func (l *look) wants(a App) (n int32) {
	for _, c := range l.list {
		if a.In == nil || a.In(c.labels) {
			n++
		}
	}
	return n
}

func (l *look) readBundles(ctx context.Context) error {
	found := make([]bool, len(l.Apps))
	// Applications of one rule would be counted over the whole fleet each; the rules
	// are functions, so what they are is told by the labels that they see.
	counted := map[string]int32{}
	err := each(ctx, l.API, "/apis/atoll.dev/v1alpha1/bundles", func(b *v1alpha1.Bundle) {
		i, ok := l.apps[b.Namespace+"/"+b.Spec.Source.Name]
		if !ok {
			l.v.Templates.wrong("Bundle %s/%s belongs to no application", b.Namespace, b.Name)
			return
		}
		found[i] = true
		l.bundles[string(b.UID)] = i
		rule := fmt.Sprint(b.Spec.Placement.ClusterAffinity)
		want, ok := counted[rule]
		if !ok {
			want = l.wants(l.Apps[i])
			counted[rule] = want
		}
		l.v.Templates.Looked++
		l.v.wanted += int(want)
		c := b.Status.Clusters
		if c.Desired != want || c.Updated != want || c.Removing != 0 || int(b.Status.Items) != l.Apps[i].Items || !l.Unhealthy && c.Ready != want {
			l.v.Templates.wrong("Bundle %s/%s says %+v of %d items, and waits for %q; it is to have %d clusters and %d items",
				b.Namespace, b.Name, c, b.Status.Items, b.Status.WaitsFor, want, l.Apps[i].Items)
		}
	})
	for i, ok := range found {
		if !ok {
			l.v.Templates.wrong("application %s/%s has no Bundle", l.Apps[i].Namespace, l.Apps[i].Policy)
		}
	}
	return err
}

func (l *look) readSlices(ctx context.Context) error {
	err := each(ctx, l.API, "/apis/engine.atoll.dev/v1alpha1/targetslices", func(s *enginev1.TargetSlice) {
		app, ok := l.bundles[s.Spec.Bundle.UID]
		rows, err := atoll.RowsOf(s)
		if err != nil {
			l.v.RowsRight.wrong("%v", err)
		}
		named := map[string]bool{}
		for _, r := range rows {
			l.v.Rows++
			named[r.Cluster] = true
			if !ok {
				l.v.RowsRight.wrong("slice %s has rows of %s/%s, which is no application", s.Name, s.Spec.Bundle.Namespace, s.Spec.Bundle.Name)
				continue
			}
			l.readRow(app, r)
		}
		for _, line := range atoll.Lines(s.Status.Rows) {
			if !named[line.Cluster] {
				l.v.RowsRight.wrong("slice %s has a status for %s, and no row", s.Name, line.Cluster)
			}
		}
	})
	if l.v.Rows != l.v.wanted {
		l.v.RowsRight.wrong("there are %d rows, and there are to be %d", l.v.Rows, l.v.wanted)
	}
	return err
}

func (l *look) readRow(app int32, r atoll.SliceRow) {
	name, spec := r.Cluster, r.Spec
	where := func() string { return l.Apps[app].Namespace + "/" + l.Apps[app].Policy + " in " + name }
	i, ok := l.clusters[name]
	if !ok {
		l.v.RowsRight.wrong("%s: there is no such cluster", where())
		return
	}
	c := l.list[i]
	key := pair{bundle: app, cluster: i}
	if _, twice := l.rows[key]; twice {
		l.v.RowsRight.wrong("%s: it is placed twice", where())
		return
	}
	status, reported := atoll.RowStatus{}, r.Status != nil
	if reported {
		status = *r.Status
	}
	l.rows[key] = row{generation: spec.Generation, content: maphash.String(l.seed, status.Content)}
	switch in := l.Apps[app].In; {
	case in != nil && !in(c.labels):
		l.v.RowsRight.wrong("%s: the application is not for this cluster", where())
	case spec.UID != c.uid:
		l.v.RowsRight.wrong("%s: the row is of cluster %s, the cluster is %s", where(), spec.UID, c.uid)
	case spec.Phase != atoll.RowActive:
		l.v.RowsRight.wrong("%s: the row is %s", where(), spec.Phase)
	case !reported:
		l.v.RowsRight.wrong("%s: nothing was reported", where())
	case status.UID != "" && status.UID != spec.UID:
		l.v.RowsRight.wrong("%s: the report is of cluster %s", where(), status.UID)
	case status.Generation != spec.Generation || !status.Applied:
		l.v.RowsRight.wrong("%s: generation %d is wanted, %d is reported, applied: %t", where(), spec.Generation, status.Generation, status.Applied)
	case !l.Unhealthy && (status.State != atoll.RowReady || int(status.Ready) != l.Apps[app].Items):
		l.v.RowsRight.wrong("%s: it is %s with %d items ready: %s", where(), status.State, status.Ready, status.Reason)
	}
}

func (l *look) readHoldings(ctx context.Context) error {
	held := 0
	for _, f := range l.Fleets {
		err := f.Holdings(ctx, func(h fleet.Holding) error {
			i, ok := l.uids[h.UID]
			if !ok {
				l.v.Holdings.wrong("agent %s says that it is %q, which is no cluster", h.Name, h.UID)
				return nil
			}
			l.v.Holdings.Looked++
			for uid, b := range h.Bundles {
				held++
				l.readHeld(h.Name, i, uid, b)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if l.v.Holdings.Looked != len(l.list) {
		l.v.Holdings.wrong("there are %d clusters and %d agents", len(l.list), l.v.Holdings.Looked)
	}
	if held != len(l.rows) {
		l.v.Holdings.wrong("there are %d rows, and agents hold %d", len(l.rows), held)
	}
	return nil
}

func (l *look) readHeld(agent string, cluster int32, uid string, b fleet.Held) {
	app, ok := l.bundles[uid]
	if !ok {
		l.v.Holdings.wrong("agent %s holds %s, which is no Bundle", agent, uid)
		return
	}
	a := l.Apps[app]
	r, ok := l.rows[pair{bundle: app, cluster: cluster}]
	switch {
	case !ok:
		l.v.Holdings.wrong("agent %s holds %s/%s, for which there is no row", agent, a.Namespace, a.Policy)
	case b.Generation != r.generation || maphash.String(l.seed, b.Content) != r.content:
		l.v.Holdings.wrong("agent %s holds %s/%s at generation %d with content %q, which the row is not at (generation %d)", agent, a.Namespace, a.Policy, b.Generation, b.Content, r.generation)
	case b.Items != a.Items:
		l.v.Holdings.wrong("agent %s holds %d items of %s/%s instead of %d", agent, b.Items, a.Namespace, a.Policy, a.Items)
	case b.Mark != a.Mark:
		l.v.Holdings.wrong("agent %s holds other objects of %s/%s than were applied (mark %x instead of %x)", agent, a.Namespace, a.Policy, b.Mark, a.Mark)
	case !l.Unhealthy && b.State != atoll.RowReady:
		l.v.Holdings.wrong("agent %s has reported %q of %s/%s", agent, b.State, a.Namespace, a.Policy)
	}
}

func (l *look) readTemplates(ctx context.Context) error {
	want := map[string]int32{}
	for _, a := range l.Apps {
		if a.Deployment != "" {
			want[a.Namespace+"/"+a.Deployment] = a.Replicas
		}
	}
	if len(want) == 0 || l.Unhealthy {
		return nil
	}
	err := each(ctx, l.API, "/apis/apps/v1/deployments", func(d *appsv1.Deployment) {
		n, ok := want[d.Namespace+"/"+d.Name]
		if !ok {
			return
		}
		delete(want, d.Namespace+"/"+d.Name)
		l.v.Templates.Looked++
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.Replicas != n || s.UpdatedReplicas != n || s.ReadyReplicas != n || s.AvailableReplicas != n {
			l.v.Templates.wrong("Deployment %s/%s of generation %d has status %d: %d replicas, %d updated, %d ready, %d available; it is to have %d",
				d.Namespace, d.Name, d.Generation, s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, n)
		}
	})
	for name := range want {
		l.v.Templates.wrong("there is no Deployment %s", name)
	}
	return err
}

// each lists a kind page by page.
func each[T any](ctx context.Context, api rest.Interface, path string, visit func(*T)) error {
	return pages(ctx, api, listing{path, "application/json", pageSize}, visit)
}

// listing says what to list, and how.
type listing struct {
	path, accept string
	page         int
}

// pages of a list, one after the other.
func pages[T any](ctx context.Context, api rest.Interface, of listing, visit func(*T)) error {
	what := of.path[strings.LastIndexByte(of.path, '/')+1:]
	for next := ""; ; {
		body, err := api.Get().AbsPath(of.path).SetHeader("Accept", of.accept).
			Param("limit", fmt.Sprint(of.page)).Param("continue", next).Do(ctx).Raw()
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		var page struct {
			metav1.ListMeta `json:"metadata"`
			Items           []T `json:"items"`
		}
		if err := decode(body, &page); err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
