package sourcesets

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/generate"
	"atoll.dev/atoll/internal/sources/render"
)

// gathered is what the generators of a SourceSet find.
type gathered struct {
	generate.Facts
	// problems are why a generator cannot be read.
	problems []generate.Problem
	// unread are Repositories with a listing that is not read yet.
	unread []types.NamespacedName
	// commits by the path of their generator.
	commits map[string]string
	// histories by the index of the generator.
	histories map[int]generate.History
	// repositories are those that were read, with their generations.
	repositories map[types.NamespacedName]*v1alpha1.Repository
}

// gatherFacts returns what the generators of a SourceSet find, as far as it is read.
func (r *Reconciler) gatherFacts(set *v1alpha1.SourceSet) *gathered {
	g := &gathered{
		Facts: generate.Facts{Listings: map[string]*render.Listing{}}, commits: map[string]string{}, histories: map[int]generate.History{}, repositories: map[types.NamespacedName]*v1alpha1.Repository{},
	}
	leaves := generate.ListLeaves(&set.Spec)
	r.dropOtherListings(set, leaves)
	for i := range leaves {
		if reading := leaves[i].Reading(); reading != nil {
			r.gatherListing(g, set, &leaves[i], reading)
		}
	}
	if slices.ContainsFunc(leaves, func(l generate.Leaf) bool { return l.UsesClusters() }) {
		g.Clusters = r.listClusters(set.Namespace)
	}
	return g
}

// dropOtherListings drops the listings of generators that the SourceSet does not have any more.
func (r *Reconciler) dropOtherListings(set *v1alpha1.SourceSet, leaves []generate.Leaf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.listings[client.ObjectKeyFromObject(set)], func(path string, _ *listing) bool {
		return !slices.ContainsFunc(leaves, func(l generate.Leaf) bool { return l.Path == path })
	})
}

// gatherListing adds what one generator lists of a Repository.
func (r *Reconciler) gatherListing(g *gathered, set *v1alpha1.SourceSet, l *generate.Leaf, reading *generate.Reading) {
	key := types.NamespacedName{Namespace: set.Namespace, Name: reading.Repository}
	fail := func(why fetch.Failure) {
		g.problems = append(g.problems, generate.Problem{Reason: why.Reason, Generator: l.Path, Message: why.Message})
	}
	repo, ok := r.Repositories.Get(key)
	switch {
	case !ok || repo.DeletionTimestamp != nil:
		fail(fetch.Failure{Reason: atoll.ReasonRepositoryMissing, Message: fmt.Sprintf("the Repository %s does not exist in the namespace", key.Name)})
		return
	case repo.Spec.Suspend:
		fail(fetch.Failure{Reason: atoll.ReasonSuspended, Message: fmt.Sprintf("the Repository %s is suspended", key.Name)})
		return
	}
	ref, err := changes.PlaceOf(&repo.Spec).ResolveRef(reading.Ref, reading.Repository, "spec."+l.Path+".ref")
	var failure *fetch.Failure
	if errors.As(err, &failure) {
		fail(*failure)
		return
	}
	g.repositories[key] = repo
	r.mu.Lock()
	defer r.mu.Unlock()
	known, failed := r.listings[client.ObjectKeyFromObject(set)][l.Path], r.failures[key]
	isRead := known.isRead(identifyRequest(repo, ref, reading))
	switch {
	case failed.uid == repo.UID && failed.generation == repo.Generation && (!isRead || failed.count > 1):
		fail(failed.why)
	case !isRead:
		g.unread = append(g.unread, key)
	case known.failure != nil:
		fail(*known.failure)
	case len(known.problems) > 0:
		g.addProblems(l, known)
	default:
		g.addListing(set, l, known)
	}
}

// addProblems adds the problems of files that a generator lists.
func (g *gathered) addProblems(l *generate.Leaf, known *listing) {
	for _, p := range known.problems {
		g.problems = append(g.problems, generate.Problem{Reason: atoll.ReasonContentInvalid, Generator: l.Path, File: p.File, Line: p.Line, Message: p.Message})
	}
}

// addListing adds what a generator listed, and whether its commit follows the one of the status.
func (g *gathered) addListing(set *v1alpha1.SourceSet, l *generate.Leaf, known *listing) {
	g.Listings[l.Path], g.commits[l.Path] = known.content, known.commit
	before := commitOf(set, l.Path)
	history := generate.HistoryUnknown
	switch {
	case before == known.commit:
		history = generate.HistoryFollows
	case before == "":
		history = generate.HistoryRewritten // nothing is recorded that it could follow
	case known.compared == [2]string{before, known.commit} && known.descends:
		history = generate.HistoryFollows
	case known.compared == [2]string{before, known.commit}:
		history = generate.HistoryRewritten
	}
	g.histories[l.Generator] = max(g.histories[l.Generator], history)
}

// commitOf returns the commit of a generator that the Sources come from; empty for none.
func commitOf(set *v1alpha1.SourceSet, path string) string {
	i := slices.IndexFunc(set.Status.Revisions, func(of v1alpha1.GeneratorRevision) bool { return of.Generator == path })
	if i < 0 {
		return ""
	}
	return set.Status.Revisions[i].Commit
}

// requestComparisons has the commits compared for which removals wait. A comparison that is requested already is not requested again.
func (r *Reconciler) requestComparisons(set *v1alpha1.SourceSet, waiting []v1alpha1.GeneratedSource) {
	leaves := generate.ListLeaves(&set.Spec)
	var repositories []types.NamespacedName
	r.mu.Lock()
	for i := range leaves {
		reading, before := leaves[i].Reading(), commitOf(set, leaves[i].Path)
		known := r.listings[client.ObjectKeyFromObject(set)][leaves[i].Path]
		isWaiting := slices.ContainsFunc(waiting, func(o v1alpha1.GeneratedSource) bool { return int(o.Generator) == leaves[i].Generator })
		if reading == nil || known == nil || !isWaiting || known.commit == before || known.compareFrom == before || known.compared == [2]string{before, known.commit} {
			continue
		}
		known.compareFrom = before
		repositories = append(repositories, types.NamespacedName{Namespace: set.Namespace, Name: reading.Repository})
	}
	r.mu.Unlock()
	for _, key := range repositories {
		r.checkRepository(key)
	}
}

// isUnchanged reports whether the Repositories that were read are the same now, and are not suspended.
func (r *Reconciler) isUnchanged(g *gathered) bool {
	for key, before := range g.repositories {
		now, ok := r.Repositories.Get(key)
		if !ok || now.UID != before.UID || now.Generation != before.Generation || now.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// listClusters lists the Clusters that a namespace may place on: those that are accepted, and in one of its ClusterSets.
func (r *Reconciler) listClusters(namespace string) (out []generate.Cluster) {
	allowed := r.ClusterSets.AllowedSets(namespace)
	for _, c := range r.Clusters.List() {
		if r.mayPlaceOn(allowed, c) {
			out = append(out, generate.Cluster{Name: c.Name, Labels: c.Labels})
		}
	}
	return out
}

// mayPlaceOn reports whether a namespace may place on a Cluster. One that is being deleted keeps its Sources until it is gone.
func (r *Reconciler) mayPlaceOn(allowed []string, c *v1alpha1.Cluster) bool {
	return c.Spec.Accepted && slices.ContainsFunc(r.ClusterSets.OfCluster(c.Name), func(set string) bool { return slices.Contains(allowed, set) })
}

// findBarred returns the Clusters of made Sources that exist and that the namespace may no longer place on. A lost right is no removal.
func (r *Reconciler) findBarred(set *v1alpha1.SourceSet) map[string]bool {
	allowed, out := r.ClusterSets.AllowedSets(set.Namespace), map[string]bool{}
	for _, o := range set.Status.Inventory {
		if o.Cluster == "" || out[o.Cluster] {
			continue
		}
		if c, exists := r.Clusters.Get(o.Cluster); exists && !r.mayPlaceOn(allowed, c) {
			out[o.Cluster] = true
		}
	}
	return out
}
