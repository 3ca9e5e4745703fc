package clusterstatus

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/session"
)

// How sets of APIs are kept few
//
// Members of one kind serve the same APIs, so that a set is stored once, under its hash. Each member
// may add sets at the rate pace.NewAPISets. The leader deletes a set that no Cluster names for a
// whole collectInterval.

const (
	// collectInterval is how often the leader looks for sets that no Cluster names.
	collectInterval = 2 * time.Hour
	// storedFor is how long a hub relies on having seen a set in the store. It is shorter than
	// collectInterval, so that no hub relies on a set that another one deletes.
	storedFor = 30 * time.Minute
)

// apiPattern matches one element of a set: "group/version/Kind", core as "/v1/Pod".
var apiPattern = regexp.MustCompile(`^[a-z0-9.-]{0,253}/[a-z0-9]{1,63}/[A-Za-z0-9]{1,63}$`)

// apiSets is a hub's index of the stored sets. The lock of the Reconciler guards it.
type apiSets struct {
	storedAt map[string]time.Time // by hash: when the store was seen to have it
	users    map[string]int       // by hash: Clusters that name it
	usedBy   map[string]string    // by cluster name: the hash
	unused   map[string]bool      // hashes that no Cluster named at some time since the last collection
}

func newAPISets() apiSets {
	return apiSets{storedAt: map[string]time.Time{}, users: map[string]int{}, usedBy: map[string]string{}, unused: map[string]bool{}}
}

// isStored reports whether the store has the set, as far as this hub can rely on it.
func (s *apiSets) isStored(hash string, now time.Time) bool {
	at, ok := s.storedAt[hash]
	return ok && now.Sub(at) < storedFor
}

// setUse notes the set that a Cluster names; empty: none, or the Cluster is gone.
func (s *apiSets) setUse(cluster, hash string) {
	old := s.usedBy[cluster]
	if old == hash {
		return
	}
	if old != "" {
		delete(s.usedBy, cluster)
		if s.users[old]--; s.users[old] == 0 {
			delete(s.users, old)
			s.unused[old] = true
		}
	}
	if hash != "" {
		s.usedBy[cluster] = hash
		s.users[hash]++
	}
}

// takeUnused returns the sets that no Cluster has named since the last call, and drops them.
func (s *apiSets) takeUnused() (hashes []string) {
	for hash := range s.unused {
		if s.users[hash] == 0 {
			hashes = append(hashes, hash)
		}
	}
	clear(s.unused)
	slices.Sort(hashes)
	return hashes
}

// IsAPISetStored reports whether the store has the list of that hash.
func (r *ClusterStatusReconciler) IsAPISetStored(ctx context.Context, hash string) (bool, error) {
	r.mu.Lock()
	stored := r.apiSets.isStored(hash, time.Now())
	r.mu.Unlock()
	if stored {
		return true, nil
	}
	err := r.o.Client.Get(ctx, client.ObjectKey{Name: hash}, &enginev1.APISet{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the set of APIs %s: %w", hash, err)
	}
	r.markAPISetStored(hash)
	return true, nil
}

func (r *ClusterStatusReconciler) markAPISetStored(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apiSets.storedAt[hash] = time.Now()
}

// storeReportedAPIs stores the APIs that a member reported, once. A malformed list is dropped. wait
// is how long the member must wait before it may add a set; its list is kept until then.
func (r *ClusterStatusReconciler) storeReportedAPIs(ctx context.Context, m *member, hash string, apis []string) (wait time.Duration, err error) {
	now := time.Now()
	done, wait := r.reportedAPIsWriteDelay(m, hash, apis, now)
	if wait > 0 {
		return wait, nil
	}
	added := false
	if !done {
		err := r.o.Client.Create(ctx, &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: hash}, APIs: apis})
		if added = err == nil; !added && !apierrors.IsAlreadyExists(err) {
			return 0, fmt.Errorf("store the set of APIs %s: %w", hash, err)
		}
		r.markAPISetStored(hash)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if added { // a set that another cluster added costs nothing
		m.newAPISets.TakeTokens(now, 1)
	}
	m.apis = nil
	return 0, nil
}

// reportedAPIsWriteDelay reports whether a list needs no write, because it is stored or malformed, and
// otherwise how long its member must wait before it may add a set.
func (r *ClusterStatusReconciler) reportedAPIsWriteDelay(m *member, hash string, apis []string, now time.Time) (done bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.apiSets.isStored(hash, now) || !isValidAPIList(apis) || session.APIsHash(apis) != hash {
		return true, 0
	}
	return false, m.newAPISets.WaitTime(now)
}

func isValidAPIList(apis []string) bool {
	return slices.IsSorted(apis) && !slices.ContainsFunc(apis, func(api string) bool { return !apiPattern.MatchString(api) })
}

// deleteUnusedAPISets deletes sets that no Cluster names, until ctx ends.
func (r *ClusterStatusReconciler) deleteUnusedAPISets(ctx context.Context) {
	listed := false
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !r.isLeader() {
			listed = false
			continue
		}
		if !listed {
			listed = r.tryRecordUnusedAPISets(ctx)
			continue // deleted at the next turn, unless a Cluster names it by then
		}
		r.mu.Lock()
		unused := r.apiSets.takeUnused()
		r.mu.Unlock()
		for _, hash := range unused {
			r.deleteAPISet(ctx, hash)
		}
	}
}

// tryRecordUnusedAPISets notes the sets in the store that no Cluster names. It reports whether it could.
func (r *ClusterStatusReconciler) tryRecordUnusedAPISets(ctx context.Context) bool {
	var sets metav1.PartialObjectMetadataList
	sets.SetGroupVersionKind(enginev1.GroupVersion.WithKind("APISetList"))
	if err := r.o.Client.List(ctx, &sets); err != nil {
		if ctx.Err() == nil {
			r.o.Logger.Warn("cannot list the sets of APIs; those that no cluster names stay for now", "err", err)
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range sets.Items {
		if hash := sets.Items[i].Name; r.apiSets.users[hash] == 0 {
			r.apiSets.unused[hash] = true
		}
	}
	return true
}

func (r *ClusterStatusReconciler) deleteAPISet(ctx context.Context, hash string) {
	err := r.o.Client.Delete(ctx, &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: hash}})
	if client.IgnoreNotFound(err) != nil {
		if ctx.Err() == nil {
			r.o.Logger.Warn("cannot delete a set of APIs that no cluster names; the hub tries again", "set", hash, "err", err)
		}
		r.mu.Lock()
		r.apiSets.unused[hash] = true
		r.mu.Unlock()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.apiSets.storedAt, hash)
}
