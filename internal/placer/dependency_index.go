package placer

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// dependencyIndex stores which Bundles policies place, which depend on which policies, and which wait for them. It is filled when
// the first Bundle states a dependency: before that, it costs nothing. A change of a row then costs the Bundles that wait for it.
type dependencyIndex struct {
	mu       sync.Mutex
	isLoaded bool
	bundles  map[string]*orderedBundle // by UID
	policies map[v1alpha1.PolicyRef]*orderedPolicy
}

// orderedBundle is a Bundle of a policy.
type orderedBundle struct {
	policy    v1alpha1.PolicyRef
	dependsOn []v1alpha1.PolicyDependency
	waits     orderWaits
}

// orderWaits are the clusters in which a Bundle waits for rows of others; any means that each change of them counts.
type orderWaits struct {
	any      bool
	clusters []string // sorted
}

// concernsClusters reports whether rows of these clusters, or nil for all, are waited for.
func (w orderWaits) concernsClusters(clusters []string) bool {
	return w.any || clusters == nil || slices.ContainsFunc(clusters, func(c string) bool {
		_, waits := slices.BinarySearch(w.clusters, c)
		return waits
	})
}

// orderedPolicy is a policy with Bundles, or on which Bundles depend.
type orderedPolicy struct {
	bundles, dependents map[string]struct{}
	// dependsOn of the Bundle that was recorded last.
	dependsOn []v1alpha1.PolicyDependency
	// waiting are the dependents that wait for rows of the policy, and removed those of its Bundles that wait for rows of dependents.
	waiting, removed map[string]struct{}
}

func newDependencyIndex() *dependencyIndex {
	return &dependencyIndex{bundles: map[string]*orderedBundle{}, policies: map[v1alpha1.PolicyRef]*orderedPolicy{}}
}

// load reads all Bundles, once.
func (x *dependencyIndex) load(list func() []state.Bundle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isLoaded {
		return
	}
	x.isLoaded = true
	for _, b := range list() {
		x.setBundle(b.Ref.UID, b.Spec.Source.PolicyOf(b.Ref.Namespace), b.Spec.DependsOn)
	}
}

// hasLoaded reports whether a Bundle states a dependency, or did.
func (x *dependencyIndex) hasLoaded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isLoaded
}

// recordBundle records a Bundle as the table has it, and returns the Bundles whose wait may have changed.
func (x *dependencyIndex) recordBundle(uid string, table Bundles) (woken []string) {
	b, exists := table.Get(uid)
	if exists && len(b.Spec.DependsOn) > 0 {
		x.load(table.List)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.isLoaded {
		return nil
	}
	if b, exists = table.Get(uid); !exists { // read with the lock, so that no older state replaces a newer one
		return x.dropBundle(uid)
	}
	policy := b.Spec.Source.PolicyOf(b.Ref.Namespace)
	if was := x.bundles[uid]; was != nil && was.policy == policy && reflect.DeepEqual(was.dependsOn, b.Spec.DependsOn) {
		return nil
	}
	woken = x.listAround(uid)
	x.setBundle(uid, policy, b.Spec.DependsOn)
	return mergeNames(woken, x.listAround(uid))
}

// setBundle records a Bundle; one of no policy is in no order. The caller holds the lock.
func (x *dependencyIndex) setBundle(uid string, policy v1alpha1.PolicyRef, dependsOn []v1alpha1.PolicyDependency) {
	waits := orderWaits{}
	if was := x.bundles[uid]; was != nil {
		waits = was.waits
		x.removeBundle(uid, was)
	}
	if policy == (v1alpha1.PolicyRef{}) {
		return
	}
	b := &orderedBundle{policy: policy, dependsOn: dependsOn}
	x.bundles[uid] = b
	p := x.ensurePolicy(policy)
	p.bundles[uid], p.dependsOn = struct{}{}, dependsOn
	for i := range dependsOn {
		x.ensurePolicy(dependsOn[i].RefFrom(policy)).dependents[uid] = struct{}{}
	}
	x.setWaits(uid, b, waits)
}

// dropBundle removes a Bundle that is gone. The caller holds the lock.
func (x *dependencyIndex) dropBundle(uid string) (woken []string) {
	b := x.bundles[uid]
	if b == nil {
		return nil
	}
	woken = x.listAround(uid)
	x.removeBundle(uid, b)
	return slices.DeleteFunc(woken, func(other string) bool { return other == uid })
}

// removeBundle removes a Bundle and its waits. The caller holds the lock.
func (x *dependencyIndex) removeBundle(uid string, b *orderedBundle) {
	x.setWaits(uid, b, orderWaits{})
	delete(x.bundles, uid)
	p := x.policies[b.policy]
	if delete(p.bundles, uid); len(p.bundles) == 0 {
		p.dependsOn = nil
	}
	x.dropEmptyPolicy(b.policy)
	for i := range b.dependsOn {
		ref := b.dependsOn[i].RefFrom(b.policy)
		if p := x.policies[ref]; p != nil {
			delete(p.dependents, uid)
			x.dropEmptyPolicy(ref)
		}
	}
}

func (x *dependencyIndex) ensurePolicy(ref v1alpha1.PolicyRef) *orderedPolicy {
	p := x.policies[ref]
	if p == nil {
		p = &orderedPolicy{bundles: map[string]struct{}{}, dependents: map[string]struct{}{}, waiting: map[string]struct{}{}, removed: map[string]struct{}{}}
		x.policies[ref] = p
	}
	return p
}

func (x *dependencyIndex) dropEmptyPolicy(ref v1alpha1.PolicyRef) {
	if p := x.policies[ref]; p != nil && len(p.bundles)+len(p.dependents) == 0 {
		delete(x.policies, ref)
	}
}

// setWaits records in which clusters a Bundle waits for others. The caller holds the lock.
func (x *dependencyIndex) setWaits(uid string, b *orderedBundle, waits orderWaits) {
	b.waits = waits
	set := func(of map[string]struct{}) {
		if delete(of, uid); waits.any || len(waits.clusters) > 0 {
			of[uid] = struct{}{}
		}
	}
	set(x.policies[b.policy].removed)
	for i := range b.dependsOn {
		set(x.policies[b.dependsOn[i].RefFrom(b.policy)].waiting)
	}
}

// beginStep makes each change of a row count on which a Bundle may depend, until endStep: the step reads them from now on.
func (x *dependencyIndex) beginStep(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.bundles[uid]; b != nil && x.isOrdered(b) {
		x.setWaits(uid, b, orderWaits{any: true})
	}
}

// endStep records in which clusters a Bundle waits for others after a step.
func (x *dependencyIndex) endStep(uid string, clusters []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.bundles[uid]
	if b == nil {
		return
	}
	isOfAll := slices.ContainsFunc(b.dependsOn, func(d v1alpha1.PolicyDependency) bool { return d.IsOfAllClusters() })
	x.setWaits(uid, b, orderWaits{any: isOfAll && len(clusters) > 0, clusters: clusters})
}

// isOrdered reports whether a Bundle may have to wait for others. The caller holds the lock.
func (x *dependencyIndex) isOrdered(b *orderedBundle) bool {
	return len(b.dependsOn) > 0 || len(x.policies[b.policy].dependents) > 0
}

// mayWait reports whether a Bundle may have to wait for others.
func (x *dependencyIndex) mayWait(uid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.bundles[uid]
	return b != nil && x.isOrdered(b)
}

// listWaiting returns the Bundles that wait for rows of a Bundle in some clusters, or, where clusters is nil, in any.
func (x *dependencyIndex) listWaiting(uid string, clusters []string) (uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.bundles[uid]
	if b == nil {
		return nil
	}
	add := func(of map[string]struct{}) {
		for other := range of {
			if other != uid && x.bundles[other].waits.concernsClusters(clusters) {
				uids = append(uids, other)
			}
		}
	}
	add(x.policies[b.policy].waiting)
	for i := range b.dependsOn {
		add(x.policies[b.dependsOn[i].RefFrom(b.policy)].removed)
	}
	return uids
}

// listAround returns the Bundles whose wait follows from what a Bundle depends on, over several steps: those that wait for it, those that wait
// for these, and those that wait for it to leave. The caller holds the lock.
func (x *dependencyIndex) listAround(uid string) []string {
	b := x.bundles[uid]
	if b == nil {
		return nil
	}
	found, queue, seen := map[string]struct{}{}, []v1alpha1.PolicyRef{b.policy}, map[v1alpha1.PolicyRef]bool{b.policy: true}
	for ; len(queue) > 0; queue = queue[1:] {
		for other := range x.policies[queue[0]].waiting {
			found[other] = struct{}{}
			if next := x.bundles[other].policy; !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	for i := range b.dependsOn {
		maps.Copy(found, x.policies[b.dependsOn[i].RefFrom(b.policy)].removed)
	}
	return slices.Collect(maps.Keys(found))
}

func mergeNames(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// bundlesOf lists the Bundles of a policy but one, by UID.
func (x *dependencyIndex) bundlesOf(policy v1alpha1.PolicyRef, but string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listSorted(policy, but, func(p *orderedPolicy) map[string]struct{} { return p.bundles })
}

// dependentsOf lists the Bundles that depend on a policy but one, by UID.
func (x *dependencyIndex) dependentsOf(policy v1alpha1.PolicyRef, but string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listSorted(policy, but, func(p *orderedPolicy) map[string]struct{} { return p.dependents })
}

// listSorted lists Bundles of a policy. The caller holds the lock.
func (x *dependencyIndex) listSorted(policy v1alpha1.PolicyRef, but string, of func(*orderedPolicy) map[string]struct{}) []string {
	p := x.policies[policy]
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(of(p))), func(uid string) bool { return uid == but })
}

// policyOf returns the policy of a Bundle; the zero value: it has none.
func (x *dependencyIndex) policyOf(uid string) v1alpha1.PolicyRef {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.bundles[uid]; b != nil {
		return b.policy
	}
	return v1alpha1.PolicyRef{}
}

// findPath returns the policies by which a policy depends on another one, over one or more steps, both included; nil: it does not.
func (x *dependencyIndex) findPath(from, to v1alpha1.PolicyRef) []v1alpha1.PolicyRef {
	x.mu.Lock()
	defer x.mu.Unlock()
	return rollout.FindDependencyPath(from, to, func(of v1alpha1.PolicyRef) []v1alpha1.PolicyDependency {
		if p := x.policies[of]; p != nil {
			return p.dependsOn
		}
		return nil
	})
}
