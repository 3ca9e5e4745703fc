// Package verify compares a hub's state with the state of its simulated agents and with the
// applied objects.
//
// Contract: it compares all rows, all agents and all templates, not samples. Its inputs are
// its arguments and its reads alone: the caller gives the rules by which a group of
// clusters is chosen. It only reads. A Verdict counts errors and quotes the first few. A
// FleetCheck is not safe for concurrent use.
package verify

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
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/lab/fleet"
)

// WantedApp is the wanted state of an application: one policy, whose Bundle has its name.
type WantedApp struct {
	Namespace, Policy string
	// Deployment is the Deployment whose status is compared; empty means none.
	Deployment string
	// Replicas are its replicas; each cluster has all of them.
	Replicas int32
	// Items is the number of the Bundle's items, and Mark their mark as applied
	// (fleet.MarkOf). The rest of an agent's state is compared with the hub's state only.
	Items int
	Mark  uint32
	// In reports whether a cluster with these labels has the application; nil means all
	// clusters.
	In func(labels map[string]string) bool
}

// FleetCheck configures a comparison.
type FleetCheck struct {
	// API is the client of the hub.
	API rest.Interface
	// Fleets hold the agents of all clusters.
	Fleets []*fleet.SimulatorClient
	// Apps are all placed applications.
	Apps []WantedApp
	// Unhealthy accepts unhealthy rows: their members fail on purpose.
	Unhealthy bool
}

const (
	// pageSize is the page size of lists: slices are some 100 kB each.
	pageSize = 100
	// metadataOnly requests names and labels only, which allows larger pages.
	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataPage = 1000
)

// hubCluster is a cluster of the hub.
type hubCluster struct {
	uid    string
	labels map[string]string
}

// bundleCluster is a pair of a Bundle and a cluster.
type bundleCluster struct{ bundle, cluster int32 }

// expectedRow is the part of a row that is compared with the agent's state.
type expectedRow struct {
	generation  int64
	contentHash uint64
}

// fleetObservation is one comparison of everything.
type fleetObservation struct {
	*FleetCheck
	verdict     Verdict
	seed        maphash.Seed
	clusters    map[string]int32 // by name
	clusterList []hubCluster
	uids        map[string]int32 // clusters by UID
	apps        map[string]int32 // by namespace/policy
	bundles     map[string]int32 // applications by their Bundle's UID
	rows        map[bundleCluster]expectedRow
}

// CompareOnce compares once. An error means that a read failed.
func (c *FleetCheck) CompareOnce(ctx context.Context) (Verdict, error) {
	l := fleetObservation{
		FleetCheck: c, seed: maphash.MakeSeed(), clusters: map[string]int32{}, uids: map[string]int32{},
		apps: map[string]int32{}, bundles: map[string]int32{}, rows: map[bundleCluster]expectedRow{},
	}
	for i, a := range c.Apps {
		l.apps[a.Namespace+"/"+a.Policy] = int32(i)
	}
	for _, part := range []func(context.Context) error{l.readClusters, l.readAndCheckBundles, l.readAndCheckSlices, l.checkAgentHoldings, l.checkTemplateStatuses} {
		if err := part(ctx); err != nil {
			return l.verdict, err
		}
	}
	return l.verdict, nil
}

func (l *fleetObservation) readClusters(ctx context.Context) error {
	return forEachListed(ctx, l.API, listRequest{"/apis/atoll.dev/v1alpha1/clusters", metadataOnly, metadataPage}, func(c *metav1.PartialObjectMetadata) {
		i := int32(len(l.clusterList))
		l.clusters[c.Name], l.uids[string(c.UID)] = i, i
		l.clusterList = append(l.clusterList, hubCluster{uid: string(c.UID), labels: c.Labels})
	})
}

// countWantedRows counts the wanted rows.
func (l *fleetObservation) countWantedRows(a WantedApp) (n int32) {
	for _, c := range l.clusterList {
		if a.In == nil || a.In(c.labels) {
			n++
		}
	}
	return n
}

func (l *fleetObservation) readAndCheckBundles(ctx context.Context) error {
	found := make([]bool, len(l.Apps))
	// Counting each application over the whole fleet would be slow. The rules are
	// functions, so equal rules are found by the label sets that they accept.
	counted := map[string]int32{}
	err := forEachObject(ctx, l.API, "/apis/atoll.dev/v1alpha1/bundles", func(b *v1alpha1.Bundle) {
		i, ok := l.apps[b.Namespace+"/"+b.Spec.Source.Name]
		if !ok {
			l.verdict.Templates.addFinding("Bundle %s/%s belongs to no application", b.Namespace, b.Name)
			return
		}
		found[i] = true
		l.bundles[string(b.UID)] = i
		rule := fmt.Sprint(b.Spec.Placement.ClusterAffinity)
		want, ok := counted[rule]
		if !ok {
			want = l.countWantedRows(l.Apps[i])
			counted[rule] = want
		}
		l.verdict.Templates.Looked++
		l.verdict.wantedRows += int(want)
		c := b.Status.Clusters
		if c.Desired != want || c.Updated != want || c.Removing != 0 || int(b.Status.Items) != l.Apps[i].Items || !l.Unhealthy && c.Ready != want {
			l.verdict.Templates.addFinding("Bundle %s/%s shows %+v of %d items, and waits for %q; it is to have %d clusters and %d items",
				b.Namespace, b.Name, c, b.Status.Items, b.Status.WaitsFor, want, l.Apps[i].Items)
		}
	})
	for i, ok := range found {
		if !ok {
			l.verdict.Templates.addFinding("application %s/%s has no Bundle", l.Apps[i].Namespace, l.Apps[i].Policy)
		}
	}
	return err
}

func (l *fleetObservation) readAndCheckSlices(ctx context.Context) error {
	err := forEachObject(ctx, l.API, "/apis/engine.atoll.dev/v1alpha1/targetslices", func(s *enginev1.TargetSlice) {
		app, ok := l.bundles[s.Spec.Bundle.UID]
		rows, err := rowcodec.DecodeSlice(s)
		if err != nil {
			l.verdict.RowsRight.addFinding("%v", err)
		}
		named := map[string]bool{}
		for _, r := range rows {
			l.verdict.Rows++
			named[r.Cluster] = true
			if !ok {
				l.verdict.RowsRight.addFinding("slice %s has rows of %s/%s, which is no application", s.Name, s.Spec.Bundle.Namespace, s.Spec.Bundle.Name)
				continue
			}
			l.checkSliceRow(app, r)
		}
		for _, line := range rowcodec.SplitLines(s.Status.Rows) {
			if !named[line.Cluster] {
				l.verdict.RowsRight.addFinding("slice %s has a status for %s, and no row", s.Name, line.Cluster)
			}
		}
	})
	if l.verdict.Rows != l.verdict.wantedRows {
		l.verdict.RowsRight.addFinding("there are %d rows, and there are to be %d", l.verdict.Rows, l.verdict.wantedRows)
	}
	return err
}

func (l *fleetObservation) checkSliceRow(app int32, r rowcodec.SliceRow) {
	name := r.Cluster
	where := func() string { return l.Apps[app].Namespace + "/" + l.Apps[app].Policy + " in " + name }
	i, ok := l.clusters[name]
	if !ok {
		l.verdict.RowsRight.addFinding("%s: there is no such cluster", where())
		return
	}
	c := l.clusterList[i]
	key := bundleCluster{bundle: app, cluster: i}
	if _, twice := l.rows[key]; twice {
		l.verdict.RowsRight.addFinding("%s: it is placed twice", where())
		return
	}
	content := ""
	if r.Status != nil {
		content = r.Status.Content
	}
	l.rows[key] = expectedRow{generation: r.Spec.Generation, contentHash: maphash.String(l.seed, content)}
	if finding := l.findRowFault(app, c, r); finding != "" {
		l.verdict.RowsRight.addFinding("%s: %s", where(), finding)
	}
}

// findRowFault returns what is wrong with a row; empty where nothing is.
func (l *fleetObservation) findRowFault(app int32, c hubCluster, r rowcodec.SliceRow) string {
	spec, status := r.Spec, r.Status
	switch in := l.Apps[app].In; {
	case in != nil && !in(c.labels):
		return "the application is not for this cluster"
	case spec.UID != c.uid:
		return fmt.Sprintf("the row is of cluster %s, the cluster is %s", spec.UID, c.uid)
	case spec.Phase != atoll.RowActive:
		return fmt.Sprintf("the row is %s", spec.Phase)
	case status == nil:
		return "nothing was reported"
	case status.UID != "" && status.UID != spec.UID:
		return fmt.Sprintf("the report is of cluster %s", status.UID)
	case status.Generation != spec.Generation, !status.Applied:
		return fmt.Sprintf("generation %d is ordered, %d is reported, applied: %t", spec.Generation, status.Generation, status.Applied)
	case !l.Unhealthy && (status.State != atoll.RowReady || int(status.Ready) != l.Apps[app].Items):
		return fmt.Sprintf("it is %s with %d items ready: %s", status.State, status.Ready, status.Reason)
	}
	return ""
}

func (l *fleetObservation) checkAgentHoldings(ctx context.Context) error {
	held := 0
	for _, f := range l.Fleets {
		err := f.ForEachAgentState(ctx, func(h fleet.AgentState) error {
			i, ok := l.uids[h.UID]
			if !ok {
				l.verdict.Holdings.addFinding("agent %s has UID %q, which is no cluster's", h.Name, h.UID)
				return nil
			}
			l.verdict.Holdings.Looked++
			for uid, b := range h.Bundles {
				held++
				l.checkHeldBundle(h.Name, i, uid, b)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if l.verdict.Holdings.Looked != len(l.clusterList) {
		l.verdict.Holdings.addFinding("there are %d clusters and %d agents", len(l.clusterList), l.verdict.Holdings.Looked)
	}
	if held != len(l.rows) {
		l.verdict.Holdings.addFinding("there are %d rows, and agents hold %d", len(l.rows), held)
	}
	return nil
}

func (l *fleetObservation) checkHeldBundle(agent string, cluster int32, uid string, b fleet.BundleState) {
	app, ok := l.bundles[uid]
	if !ok {
		l.verdict.Holdings.addFinding("agent %s holds %s, which is no Bundle", agent, uid)
		return
	}
	a := l.Apps[app]
	r, ok := l.rows[bundleCluster{bundle: app, cluster: cluster}]
	switch {
	case !ok:
		l.verdict.Holdings.addFinding("agent %s holds %s/%s, for which there is no row", agent, a.Namespace, a.Policy)
	case b.Generation != r.generation || maphash.String(l.seed, b.Content) != r.contentHash:
		l.verdict.Holdings.addFinding("agent %s holds %s/%s at generation %d with content %q, which the row is not at (generation %d)", agent, a.Namespace, a.Policy, b.Generation, b.Content, r.generation)
	case b.Items != a.Items:
		l.verdict.Holdings.addFinding("agent %s holds %d items of %s/%s instead of %d", agent, b.Items, a.Namespace, a.Policy, a.Items)
	case b.Mark != a.Mark:
		l.verdict.Holdings.addFinding("agent %s holds other objects of %s/%s than were applied (mark %x instead of %x)", agent, a.Namespace, a.Policy, b.Mark, a.Mark)
	case !l.Unhealthy && b.State != atoll.RowReady:
		l.verdict.Holdings.addFinding("agent %s has reported %q of %s/%s", agent, b.State, a.Namespace, a.Policy)
	}
}

func (l *fleetObservation) checkTemplateStatuses(ctx context.Context) error {
	want := map[string]int32{}
	for _, a := range l.Apps {
		if a.Deployment != "" {
			want[a.Namespace+"/"+a.Deployment] = a.Replicas
		}
	}
	if len(want) == 0 || l.Unhealthy {
		return nil
	}
	err := forEachObject(ctx, l.API, "/apis/apps/v1/deployments", func(d *appsv1.Deployment) {
		n, ok := want[d.Namespace+"/"+d.Name]
		if !ok {
			return
		}
		delete(want, d.Namespace+"/"+d.Name)
		l.verdict.Templates.Looked++
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.Replicas != n || s.UpdatedReplicas != n || s.ReadyReplicas != n || s.AvailableReplicas != n {
			l.verdict.Templates.addFinding("Deployment %s/%s of generation %d has status %d: %d replicas, %d updated, %d ready, %d available; it is to have %d",
				d.Namespace, d.Name, d.Generation, s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, n)
		}
	})
	for name := range want {
		l.verdict.Templates.addFinding("there is no Deployment %s", name)
	}
	return err
}

// forEachObject lists a kind page by page.
func forEachObject[T any](ctx context.Context, api rest.Interface, path string, visit func(*T)) error {
	return forEachListed(ctx, api, listRequest{path, "application/json", pageSize}, visit)
}

// listRequest is a list request.
type listRequest struct {
	path, accept string
	page         int
}

// forEachListed visits the objects of a list, page by page.
func forEachListed[T any](ctx context.Context, api rest.Interface, of listRequest, visit func(*T)) error {
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
