package placer

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// groupView is what a step sees of the groups of its Bundle; zero where the placement has no workloadAffinity.
type groupView struct {
	groups *schedule.WorkloadGroups
	// keys are those of groups.List. changes is groupIndex.countChanges before the groups were read.
	keys    []groupKey
	changes uint64
}

// statesGroups reports whether the placement of a Bundle has workloadAffinity.
func statesGroups(b *state.Bundle) bool { return b.Spec.Placement.WorkloadAffinity != nil }

// markGroupMemberStale marks a Bundle whose intent, content or existence changed to be read again. One that states no
// workloadAffinity any more leaves its groups at once, because its own steps read no groups.
func (r *PlacementReconciler) markGroupMemberStale(uid string) {
	b, ok := r.Bundles.Get(uid)
	if ok && !statesGroups(&b) {
		r.wakeGroupMembers(r.groups.dropMember(uid), 0)
		return
	}
	r.groups.markBundleStale(b.Ref.Namespace, uid, ok)
}

// revisionChanged reconciles a Bundle with another revision.
func (r *PlacementReconciler) revisionChanged(uid string) {
	r.markGroupMemberStale(uid)
	r.wakeDependents(uid, nil)
	r.enqueueAllRows(uid)
}

// groupRowsChanged counts the rows of a member that changed.
func (r *PlacementReconciler) groupRowsChanged(uid string, clusters []string) {
	r.wakeGroupMembers(r.groups.updateRows(uid, clusters, r.Rows), 0)
}

// wakeGroupMembers reconciles, after a time, members that wait for a change of their group.
func (r *PlacementReconciler) wakeGroupMembers(uids []string, after time.Duration) {
	if len(uids) == 0 || r.previewed != nil {
		return
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		r.index.requireWholeFleet(uid)
		r.bundleLoop.EnqueueAfter(uid, after)
	}
}

// refreshGroups reads the members of a namespace that changed, and at first all of them. Until all can be read, no member is
// decided: the rows of a member that is not known take clusters.
func (r *PlacementReconciler) refreshGroups(ctx context.Context, namespace string) error {
	if !r.groups.isLoaded(namespace) {
		if err := r.loadGroups(ctx, namespace); err != nil {
			return err
		}
	}
	for uid, change := range r.groups.copyStale(namespace) {
		m, err := r.readGroupMember(ctx, namespace, uid)
		if err != nil {
			return err
		}
		r.wakeGroupMembers(r.groups.setMember(m, change, r.Rows.ListOfBundle), 0)
	}
	return nil
}

// loadGroups marks the members of a namespace. A preview begins with the members of the hub.
func (r *PlacementReconciler) loadGroups(ctx context.Context, namespace string) error {
	if r.previewed != nil {
		if err := r.previewed.refreshGroups(ctx, namespace); err != nil {
			return err
		}
		r.previewed.groups.copyNamespace(namespace, r.groups)
	}
	var uids []string
	for _, b := range r.Bundles.InNamespace(namespace) {
		if r.previewed == nil && statesGroups(&b) || slices.Contains(r.usage.supposedBundles, b.Ref.UID) {
			uids = append(uids, b.Ref.UID)
		}
	}
	r.groups.startLoading(namespace, uids)
	return nil
}

// readGroupMember reads the groups of a Bundle. A Bundle that is gone, or that states no workloadAffinity, has none.
func (r *PlacementReconciler) readGroupMember(ctx context.Context, namespace, uid string) (groupMember, error) {
	m := groupMember{uid: uid, namespace: namespace}
	b, ok := r.Bundles.Get(uid)
	if !ok && len(r.Rows.ListOfBundle(uid)) > 0 {
		m.groups, m.name = r.groups.groupsOf(uid) // its rows take their clusters until they are gone
		return m, nil
	}
	if !ok || !statesGroups(&b) || b.Ref.Namespace != namespace {
		return m, nil
	}
	labels, err := r.templateLabelsOf(ctx, b)
	if err != nil {
		return m, err
	}
	m.name = labels.NameMember(b.Ref.Name)
	m.groups = keysOfTerms(namespace, schedule.WorkloadTermsOf(b.Spec.Placement.WorkloadAffinity, labels))
	slices.SortFunc(m.groups, compareGroupKeys)
	m.groups = slices.Compact(m.groups)
	return m, nil
}

// templateLabelsOf reads the labels of a Bundle's templates once for each revision. A content that is lost has none.
func (r *PlacementReconciler) templateLabelsOf(ctx context.Context, b state.Bundle) (schedule.TemplateLabels, error) {
	latest, ok := r.Revisions.LatestOfBundle(b.Ref.UID)
	if !ok {
		return schedule.TemplateLabels{}, nil
	}
	if known, ok := r.groups.labels.Get(latest.Name); ok {
		return known.(schedule.TemplateLabels), nil
	}
	content, err := r.Revisions.GetContent(ctx, latest.Name)
	if apierrors.IsNotFound(err) {
		return schedule.TemplateLabels{}, nil
	}
	if err != nil {
		return schedule.TemplateLabels{}, fmt.Errorf("groups of workloadAffinity: bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	labels, err := schedule.LabelsOfTemplates(content)
	if err != nil {
		return schedule.TemplateLabels{}, fmt.Errorf("groups of workloadAffinity: bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	r.groups.labels.Add(latest.Name, labels)
	return labels, nil
}

func keysOfTerms(namespace string, terms []schedule.WorkloadTerm) (keys []groupKey) {
	for _, t := range terms {
		for _, value := range t.Values {
			keys = append(keys, groupKey{namespace, t.Key, value})
		}
	}
	return keys
}

// viewGroups returns the groups of a Bundle as they are now. A Bundle that is being deleted chooses nothing, so that it needs
// none.
func (r *PlacementReconciler) viewGroups(ctx context.Context, b state.Bundle, rows []state.Row) (v groupView, err error) {
	if !statesGroups(&b) || r.isBundleOrNamespaceDeleting(b) {
		return v, nil
	}
	if err := r.refreshGroups(ctx, b.Ref.Namespace); err != nil {
		return v, err
	}
	labels, err := r.templateLabelsOf(ctx, b)
	if err != nil {
		return v, err
	}
	uid := b.Ref.UID
	v.groups = &schedule.WorkloadGroups{Terms: schedule.WorkloadTermsOf(b.Spec.Placement.WorkloadAffinity, labels)}
	v.keys = keysOfTerms(b.Ref.Namespace, v.groups.Terms)
	v.changes = r.groups.countChanges(uid, v.keys)
	var escapes map[string]bool // read for groups that keep together alone
	if slices.ContainsFunc(v.groups.Terms, func(t schedule.WorkloadTerm) bool { return !t.KeepsApart() && len(t.Values) > 0 }) {
		escapes = r.clustersToEscape(uid, rows)
	}
	v.groups.AddGroups(func(key, value string, apart bool) schedule.WorkloadGroup {
		return r.groups.othersIn(uid, groupKey{b.Ref.Namespace, key, value}, apart, escapes)
	})
	return v, nil
}

// clustersToEscape returns the clusters of a Bundle's rows in which no group is to stay: drained and lost ones, and those that
// leave the fleet.
func (r *PlacementReconciler) clustersToEscape(uid string, rows []state.Row) map[string]bool {
	names := r.groups.placesOf(uid)
	for i := range rows {
		names = append(names, rows[i].Cluster)
	}
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	for _, c := range r.index.clustersNamed(names) {
		if schedule.KeepsGroup(&c) {
			delete(out, c.Name)
		}
	}
	return out
}

// decideInGroups decides about a Bundle while no other member of its namespace is decided, and records the decision.
func (r *PlacementReconciler) decideInGroups(b *state.Bundle, decide func() (stepInput, func(), error)) (snap stepInput, end func(), err error) {
	if !statesGroups(b) {
		return decide()
	}
	unlock := r.groups.lockNamespace(b.Ref.Namespace)
	defer unlock()
	snap, ended, err := decide()
	if err != nil {
		return snap, ended, err
	}
	uid := b.Ref.UID
	r.groups.recordDecision(uid, snap.clustersTaken())
	return snap, func() {
		ended()
		r.wakeAfterStep(r.groups.endDecision(uid, r.Rows))
	}, nil
}

// failedStepDelay is how long members wait that a step woke which was not written. They would otherwise wake each other
// without a pause while the store refuses writes.
const failedStepDelay = 10 * time.Second

// wakeAfterStep reconciles the members that the step of another one woke, and later those that look again because rows are
// not as it was decided.
func (r *PlacementReconciler) wakeAfterStep(woken, wokenByFailure []string) {
	r.wakeGroupMembers(woken, 0)
	r.wakeGroupMembers(wokenByFailure, failedStepDelay)
}

// clustersTaken returns the clusters that the decision takes (true) or leaves; nil for a Bundle that is being deleted, and
// while the hub holds.
func (s *stepInput) clustersTaken() map[string]bool {
	if s.rollout.Deleting || s.rollout.PausedByRestore || s.groups.groups == nil {
		return nil
	}
	out := map[string]bool{}
	for i := range s.rollout.Decision.Verdicts {
		v := &s.rollout.Decision.Verdicts[i]
		row, has := s.rollout.Rows[v.Cluster]
		switch stays := has && row.Spec.Phase.IsChosen() && row.Spec.UID == v.UID; {
		case v.IsHolder() && !stays:
			out[v.Cluster] = true
		case !v.IsHolder() && stays:
			out[v.Cluster] = false
		}
	}
	return out
}

// recordGroupWaits records whether the Bundle waits for changes of its groups. A partial step leaves an earlier wait. Groups
// that others changed during the step are looked at again.
func (r *PlacementReconciler) recordGroupWaits(s *stepInput, v bundleView) {
	if s.groups.groups == nil {
		return
	}
	waits := s.rollout.Decision.WaitsForGroup(v.filter.LimitsClusters())
	if !waits && v.isComplete {
		return
	}
	if uid := s.bundle.Ref.UID; r.groups.setWaits(uid, s.groups, waits) {
		r.wakeGroupMembers([]string{uid}, 0)
	}
}

// writeGroupCondition writes the condition WorkloadAffinityMet when it changes: whether workloadAffinity refuses all clusters
// that fit otherwise.
func (r *PlacementReconciler) writeGroupCondition(ctx context.Context, b state.Bundle, d schedule.Decision) error {
	last := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleAffinityMet)
	isRefused := statesGroups(&b) && d.NoFit && d.GroupRefusal != nil
	if r.SetCondition == nil || !isRefused && (last == nil || last.Status == metav1.ConditionTrue) {
		return nil
	}
	c := metav1.Condition{Type: v1alpha1.BundleAffinityMet, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonAffinityMet), Message: "workloadAffinity refuses no cluster that the Bundle needs"}
	if isRefused {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(d.GroupRefusal.Reason()), d.GroupRefusal.String()
	}
	return r.writeCondition(ctx, b, c)
}
