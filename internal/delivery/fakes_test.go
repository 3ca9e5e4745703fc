package delivery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	certificates "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
)

// memClusters is the table of members in memory.
type memClusters struct {
	mu     sync.Mutex
	byName map[string]*v1alpha1.Cluster
	byUID  map[types.UID]string
	online map[string]bool
	fns    []func(string)
	onDown func()
}

func (t *memClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byName[name]
	return c, ok
}

func (t *memClusters) GetByUID(uid string) (*v1alpha1.Cluster, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byName[t.byUID[types.UID(uid)]]
	return c, ok && string(c.UID) == uid
}

func (t *memClusters) SetOnline(uid string, on bool) {
	t.mu.Lock()
	fn := t.onDown
	if !on {
		t.onDown = nil
	}
	t.mu.Unlock()
	if !on && fn != nil {
		fn()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.online[uid] = on
}

// whenDown calls fn before it is noted that a stream went, once.
func (t *memClusters) whenDown(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onDown = fn
}

func (t *memClusters) isOnline(uid string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.online[uid]
}

func (t *memClusters) Subscribe(fn func(string)) { t.fns = append(t.fns, fn) }

func (t *memClusters) putCluster(c *v1alpha1.Cluster) {
	t.mu.Lock()
	t.byName[c.Name], t.byUID[c.UID] = c, c.Name
	t.mu.Unlock()
	for _, fn := range t.fns {
		fn(c.Name)
	}
}

func (t *memClusters) removeCluster(name string) {
	t.mu.Lock()
	delete(t.byName, name)
	t.mu.Unlock()
	for _, fn := range t.fns {
		fn(name)
	}
}

// memRows is the table of rows in memory, 200 to a slice as in the store.
type memRows struct {
	mu     sync.Mutex
	rows   map[string]map[string]state.Row // bundle → cluster
	byUID  map[string]string               // cluster's name
	counts map[string]int                  // rows by cluster UID
	fns    []func(string, []string)
	writes int // one per slice
	fail   error
}

func (t *memRows) ListOfCluster(uid string) []state.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []state.Row
	for _, rows := range t.rows {
		if r, ok := rows[t.byUID[uid]]; ok && r.Spec.UID == uid {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Bundle.UID, b.Bundle.UID) })
	return out
}

func (t *memRows) ListOfSmallBundle(uid string) (out []state.Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows[uid]) > state.SmallBundle {
		return nil
	}
	for _, r := range t.rows[uid] {
		out = append(out, r)
	}
	return out
}

func (t *memRows) CountOfCluster(uid string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[uid]
}

func (t *memRows) Get(bundle, cluster string) (state.Row, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rows[bundle][cluster]
	return r, ok
}

func (t *memRows) Subscribe(fn func(string, []string)) { t.fns = append(t.fns, fn) }

func (t *memRows) WriteStatuses(_ context.Context, bundle string, reports map[string]atoll.RowStatus) error {
	t.mu.Lock()
	if t.fail != nil {
		defer t.mu.Unlock()
		return t.fail
	}
	slicesHit, changed := map[string]bool{}, []string{}
	for name, r := range t.rows[bundle] {
		report, ok := reports[r.Spec.UID]
		if !ok || r.Status != nil && r.Status.Seq >= report.Seq {
			continue
		}
		r.Status = &report
		t.rows[bundle][name] = r
		slicesHit[r.Slice] = true
		changed = append(changed, name)
	}
	t.writes += len(slicesHit)
	t.mu.Unlock()
	t.notifyChanged(bundle, changed)
	return nil
}

func (t *memRows) notifyChanged(bundle string, clusters []string) {
	for _, fn := range t.fns {
		fn(bundle, clusters)
	}
}

// setStatus the same of all rows of a bundle.
func (t *memRows) setStatus(bundle string, st atoll.RowStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cluster, r := range t.rows[bundle] {
		st.UID = r.Spec.UID
		own := st
		r.Status = &own
		t.rows[bundle][cluster] = r
	}
}

// setRows rows of a bundle, by cluster.
func (t *memRows) setRows(bundle string, specs map[string]atoll.RowSpec) {
	t.mu.Lock()
	if t.rows[bundle] == nil {
		t.rows[bundle] = map[string]state.Row{}
	}
	for cluster, spec := range specs {
		r := t.rows[bundle][cluster]
		if r.Spec.UID != spec.UID {
			put(&t.counts, spec.UID, t.counts[spec.UID]+1)
		}
		if r.Slice == "" {
			r.Slice = bundle + "-" + strconv.Itoa(len(t.rows[bundle])/200)
		}
		r.Bundle, r.Cluster, r.Spec = enginev1.BundleRef{UID: bundle, Namespace: "shop", Name: bundle}, cluster, spec
		if r.Status != nil && r.Status.UID != spec.UID {
			r.Status = nil
		}
		t.rows[bundle][cluster] = r
		put(&t.byUID, spec.UID, cluster)
	}
	t.mu.Unlock()
	t.notifyChanged(bundle, slices.Sorted(maps.Keys(specs)))
}

func (t *memRows) removeRow(bundle, cluster string) {
	t.mu.Lock()
	if r, ok := t.rows[bundle][cluster]; ok {
		t.counts[r.Spec.UID]--
	}
	delete(t.rows[bundle], cluster)
	t.mu.Unlock()
	t.notifyChanged(bundle, []string{cluster})
}

func (t *memRows) countWrites() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes
}

// memInventory notes what the gateway tells.
type memInventory struct {
	mu              sync.Mutex
	up              map[string]int
	seen            map[string][]*pb.Inventory
	unclaimed       map[string][]string
	known           map[string]bool
	certificates    map[string]certificateReport
	carriages       map[string]string
	misbehaviours   map[string]string
	onUp, onObserve func(uid string)
}

// setHooks a stream comes, and when an inventory does, call these before it is noted.
func (t *memInventory) setHooks(up, observe func(uid string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onUp, t.onObserve = up, observe
}

func (t *memInventory) currentHooks() (up, observe func(uid string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	up, observe = t.onUp, t.onObserve
	if up == nil {
		up = func(string) {}
	}
	if observe == nil {
		observe = func(string) {}
	}
	return up, observe
}

func (t *memInventory) StreamUp(uid, carriage string) {
	up, _ := t.currentHooks()
	up(uid)
	t.addStreams(uid, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	put(&t.carriages, uid, carriage)
}

func (t *memInventory) transportOf(uid string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.carriages[uid]
}

func (t *memInventory) StreamDown(uid string, _ time.Time) { t.addStreams(uid, -1) }

func (t *memInventory) addStreams(uid string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up[uid] += n
}

func (t *memInventory) RecordInventory(uid string, i *pb.Inventory) {
	_, observe := t.currentHooks()
	observe(uid)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[uid] = append(t.seen[uid], i)
	if len(i.GetApis()) > 0 {
		t.known[i.GetApisHash()] = true
	}
}

func (t *memInventory) IsAPISetStored(_ context.Context, hash string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[hash], nil
}

// certificateReport of an agent's certificate.
type certificateReport struct {
	ends       time.Time
	generation int
	overdue    bool
}

func (t *memInventory) RecordCertificate(uid string, ends time.Time, generation int, overdue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	put(&t.certificates, uid, certificateReport{ends, generation, overdue})
}

func (t *memInventory) certificateOf(uid string) certificateReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.certificates[uid]
}

func (t *memInventory) RecordMisbehaviour(uid, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.misbehaviours == nil {
		t.misbehaviours = map[string]string{}
	}
	t.misbehaviours[uid] = what
}

func (t *memInventory) misbehaviourOf(uid string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.misbehaviours[uid]
}

func (t *memInventory) RecordUnclaimed(uid string, bundles []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unclaimed[uid] = bundles
}

func (t *memInventory) unclaimedOf(uid string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unclaimed[uid]
}

func (t *memInventory) inventoriesOf(uid string) []*pb.Inventory {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen[uid])
}

// memRequests is the fake clientset's store of requests, which cannot list by watch.
type memRequests struct {
	certificates.CertificateSigningRequestInterface
}

func (memRequests) IsWatchListSemanticsUnSupported() bool { return true }

// clusterFollower keeps the table of Clusters as a watch of the store would: fake clients
// have no UIDs, so they are given here.
type clusterFollower struct {
	clusters *memClusters
	mu       sync.Mutex
	n        int
}

func (f *clusterFollower) createObject(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	f.mu.Lock()
	f.n++
	obj.SetUID(uidOf(f.n))
	f.mu.Unlock()
	if err := c.Create(ctx, obj, opts...); err != nil {
		return err
	}
	f.recordCluster(obj)
	return nil
}

func (f *clusterFollower) updateObject(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
	if err := c.Update(ctx, obj, opts...); err != nil {
		return err
	}
	f.recordCluster(obj)
	return nil
}

func (f *clusterFollower) deleteObject(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if err := c.Delete(ctx, obj, opts...); err != nil {
		return err
	}
	if _, ok := obj.(*v1alpha1.Cluster); ok {
		f.clusters.removeCluster(obj.GetName())
	}
	return nil
}

func (f *clusterFollower) recordCluster(obj client.Object) {
	if c, ok := obj.(*v1alpha1.Cluster); ok {
		f.clusters.putCluster(c.DeepCopy())
	}
}

// testStore is the store of a testHub.
type testStore struct{ hub *testHub }

func (s testStore) StorePosition() (chainID string, revision int64) {
	chain := s.hub.hub.Load().Chain
	return chain[len(chain)-1].ID, s.hub.revision.Load()
}

func (s testStore) HubState() *enginev1.HubState { return s.hub.hub.Load() }

func (s testStore) OnRowAhead(bundle, cluster string, generation int64) {
	s.hub.ahead <- fmt.Sprintf("%s %s %d", bundle, cluster, generation)
}

// testRestore is the restore of a testHub.
type testRestore struct {
	rewinds    chan string
	recalling  bool
	remembered chan Remembered // nil: they are dropped
}

func (r *testRestore) OnRewind(reason string) { r.rewinds <- reason }

func (r *testRestore) IsRecalling() bool { return r.recalling }

func (r *testRestore) OnRemembered(removals Remembered) {
	if r.remembered != nil {
		r.remembered <- removals
	}
}

// testDepartures are the clusters that leave a testHub.
type testDepartures struct{ hub *testHub }

func (d testDepartures) RecordDepartureBlocker(_ context.Context, c *v1alpha1.Cluster, waits string, since time.Time) error {
	d.hub.waits <- fmt.Sprint(c.Name, " ", waits, " ", since.Unix())
	return nil
}

// ForgetDepartedCluster deletes a Cluster whose agent has left, and records what it left behind.
func (d testDepartures) ForgetDepartedCluster(ctx context.Context, c *v1alpha1.Cluster, behind []string) error {
	d.hub.departed <- c.Name + " " + strings.Join(behind, ",")
	return d.hub.client.Delete(ctx, c)
}
