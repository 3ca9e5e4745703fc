package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// RemovalWindow is the time over which removals are added up, so that many small ones do not
// pass where one large one is held.
const RemovalWindow = 10 * time.Minute

// DirectDeleteLimit is how many rows of a namespace may lose something by direct deletes of
// templates within RemovalWindow.
const DirectDeleteLimit = 1000

// budgetExemptClusters is the number of clusters up to which a budget in percent does not
// apply.
const budgetExemptClusters = 10

// DefaultRemovalBudget limits removals by edit where the Bundle states no budget.
var DefaultRemovalBudget = intstr.FromString("10%")

func (s *rolloutStep) isOrphanRemoval() bool { return s.RemovalMode == v1alpha1.RemoveOrphan }

// holdOverBudget returns the rows that are held, and counts the ones that go without a
// confirmation.
func (s *rolloutStep) holdOverBudget() map[string]bool {
	holds := map[string]bool{}
	hold := s.isEditOverBudget()
	if s.Deleting {
		hold = s.isDeletionOverLimit()
	}
	if hold && !s.confirmed {
		for _, c := range slices.Concat(s.newlyLeaving, s.heldClusters) {
			holds[c] = true
		}
		if s.Deleting {
			for _, c := range s.uncountedLeaving() {
				holds[c] = true
			}
		}
		return holds
	}
	switch {
	case s.confirmed:
	case s.Deleting:
		s.directDeletes += len(s.uncountedLeaving())
	default:
		s.removedByEdit = slices.Concat(s.newlyLeaving, s.heldClusters)
	}
	return holds
}

// omitLostClusters returns the holds without the clusters that are lost: their replicas run elsewhere at once, and only the
// removal of the old copies is held.
func (s *rolloutStep) omitLostClusters(holds map[string]bool) map[string]bool {
	if s.Deleting {
		return holds
	}
	out := maps.Clone(holds)
	maps.DeleteFunc(out, func(c string, _ bool) bool {
		v, _ := s.Decision.FindVerdict(c)
		return v.LeavesLost
	})
	return out
}

// isEditOverBudget reports whether an edit takes more rows out than the budget allows. Rows
// that are only orphaned count too, since adopting them again has a cost. A held row stays
// held until it is confirmed, or until an edit takes back part of the removal and the rest
// is within the budget. Passing time releases nothing.
func (s *rolloutStep) isEditOverBudget() bool {
	if len(s.newlyLeaving)+len(s.heldClusters) == 0 {
		return false
	}
	if s.mustConfirmAny(s.newlyLeaving) || s.mustConfirmAny(s.heldClusters) {
		return true
	}
	// A return may take days. RecentlyRemoved counts such a row for its time.
	leaving := slices.DeleteFunc(slices.Clone(s.leaving), s.awaitsReturn)
	stays, restored, going := 0, false, unionClusterNames(s.newlyLeaving, s.heldClusters, leaving, s.RecentlyRemoved)
	for _, c := range s.staying {
		if row, has := s.Rows[c]; has && row.Spec.Phase != atoll.RowRemoving && row.Spec.Phase != atoll.RowPending {
			stays++
			restored = restored || row.Spec.Phase == atoll.RowHeld
			delete(going, c)
		}
	}
	if len(s.heldClusters) > 0 && !restored {
		return true
	}
	return exceedsBudget(s.RemovalBudget, len(going), stays+len(going))
}

// mustConfirmAny reports whether an item of the rows needs a confirmation. A cluster that leaves the fleet
// and keeps what it has loses nothing.
func (s *rolloutStep) mustConfirmAny(clusters []string) bool {
	return s.MustConfirmRemovals && slices.ContainsFunc(clusters, func(c string) bool {
		v, _ := s.Decision.FindVerdict(c)
		return !v.Orphan
	})
}

func unionClusterNames(lists ...[]string) map[string]bool {
	set := map[string]bool{}
	for _, list := range lists {
		for _, c := range list {
			set[c] = true
		}
	}
	return set
}

// spendRemovalBudget reports whether the budget allows all losing clusters to lose something at
// once, in addition to the ones that are going already. If so, it counts them. sticky: some
// of the loss waits for a confirmation already, so all of it waits.
func (s *rolloutStep) spendRemovalBudget(losing []string, going map[string]bool, sticky bool) bool {
	total := len(going)
	for c, row := range s.Rows {
		if row.Spec.Phase == atoll.RowActive && !going[c] {
			total++
		}
	}
	for _, c := range losing {
		going[c] = true
	}
	slices.Sort(losing)
	if sticky || exceedsBudget(s.RemovalBudget, len(going), total) {
		return false
	}
	s.removedByEdit = append(slices.Clone(s.removedByEdit), losing...)
	return true
}

func exceedsBudget(budget *intstr.IntOrString, going, total int) bool {
	b := DefaultRemovalBudget
	if budget != nil {
		b = *budget
	}
	if b.Type == intstr.Int {
		return going > int(b.IntVal)
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(b.StrVal, "%"))
	if err != nil || percent < 0 || !strings.HasSuffix(b.StrVal, "%") {
		percent = 10
	}
	return total > budgetExemptClusters && going*100 > percent*total
}

// isDeletionOverLimit reports whether the deletion of the Bundle exceeds the limit of direct
// deletes of its namespace.
func (s *rolloutStep) isDeletionOverLimit() bool {
	going := s.uncountedLeaving()
	switch {
	case len(going) == 0:
		return false
	case s.mustConfirmAny(going):
		return true
	case s.isOrphanRemoval():
		return false
	}
	for _, c := range s.heldClusters {
		r := atoll.ParseRowReason(s.Rows[c].Spec.Reason)
		if r.Reason == atoll.ReasonRemovalHeld && (strings.HasPrefix(r.Text, string(atoll.ReasonBundleDeleted)) || strings.HasPrefix(r.Text, string(atoll.ReasonObjectsDeleted))) {
			return true
		}
	}
	return s.RecentDeletes+len(going) > DirectDeleteLimit
}

// holdRowsLosingDeletedItems keeps rows at their revision when the next one takes items out of more
// rows than direct deletes may.
func (s *rolloutStep) holdRowsLosingDeletedItems() {
	var losing []string
	sticky := false
	for c := range s.nextSpecs {
		old := s.Rows[c].Spec
		if len(s.DeletedItems[old.Revision]) == 0 || !s.isToChangeRevision(c) || s.isRemovalAdmitted(c) {
			continue
		}
		losing = append(losing, c)
		sticky = sticky || old.Phase == atoll.RowActive && atoll.ParseRowReason(old.Reason).Reason == atoll.ReasonRemovalHeld
	}
	slices.Sort(losing)
	switch {
	case len(losing) == 0 || s.confirmed:
	case sticky || s.RecentDeletes+len(losing) > DirectDeleteLimit:
		for _, c := range losing {
			s.holdAtRevision(c, s.DeletedItems[s.Rows[c].Spec.Revision])
		}
	default:
		s.directDeletes += len(losing)
	}
}

// holdAtRevision keeps a row at its revision, since the next one takes the items out of
// it.
func (s *rolloutStep) holdAtRevision(c string, items []string) {
	old, spec := s.Rows[c].Spec, s.nextSpecs[c]
	spec.Revision, spec.Variant = old.Revision, old.Variant
	spec.Absent, spec.ExcludedPending = old.Absent, old.ExcludedPending
	spec.MovedAt, spec.FailedAt, spec.AdmittedRemoval = old.MovedAt, old.FailedAt, ""
	spec.PreviousRevision = old.PreviousRevision
	if v, ok := s.CurrentVariants[c]; ok && v != old.Variant && !s.isSuspended(c) {
		// Other rules of its own revision target the cluster now. The items that they
		// exclude wait as well.
		spec.Variant, spec.ExcludedPending = v, s.exclusionStartTimes(c, s.listLosingItems(c))
	}
	keepItemShares(old, spec)
	s.pendingRemoval.addItemRemoval(c, *spec, items, "")
}

// keepItemShares keeps the shares of items that only the row's own revision divides.
func keepItemShares(old atoll.RowSpec, spec *atoll.RowSpec) {
	for item, n := range old.Assigned {
		if _, has := spec.Assigned[item]; has {
			continue
		}
		if spec.Assigned == nil {
			spec.Assigned = map[string]int64{}
		}
		spec.Assigned[item] = n
		if start, ranged := old.OrdinalStarts[item]; ranged {
			spec.OrdinalStarts = maps.Clone(spec.OrdinalStarts)
			if spec.OrdinalStarts == nil {
				spec.OrdinalStarts = map[string]int64{}
			}
			spec.OrdinalStarts[item] = start
		}
	}
}

// requestConfirmation writes the plan's hash into the rows that wait for its confirmation.
func (s *rolloutStep) requestConfirmation() {
	for _, c := range s.leavingClusters() {
		if spec := s.nextSpecs[c]; spec.Phase == atoll.RowHeld {
			s.pendingRemoval.addHeldRow(c, *spec)
		}
	}
	if p := s.pendingRemoval.buildPendingRemoval(s.BundleUID); p != nil {
		for _, e := range s.pendingRemoval.entries {
			spec := s.nextSpecs[e.cluster]
			spec.Reason = atoll.RowReason{Reason: e.reasonCode, Plan: p.Hash, Text: e.reasonText}.String()
		}
	}
	s.addRecalledDeletionReasons()
}

// PendingRemoval is a removal that waits for a confirmation.
type PendingRemoval struct {
	// Hash is the argument of `atoll confirm`.
	Hash string `json:"hash"`
	// Lines describe what the removal takes away, sorted.
	Lines []string `json:"lines"`
}

// SummarizeLines returns the first n lines, and how many more there are.
func (p *PendingRemoval) SummarizeLines(n int) string {
	return phrase.JoinFirstBy("; ", p.Lines, n)
}

// pendingRemovalBuilder collects a PendingRemoval. A row has at most one entry: the first
// one counts, and items that are to go are added to it.
type pendingRemovalBuilder struct {
	entries  []pendingRemovalEntry
	clusters map[string]bool
}

type pendingRemovalEntry struct {
	cluster, reasonText string
	reasonCode          atoll.Reason
	// hashedText is hashed. It holds the time since which the row waits, so that a hash does
	// not come again. displayLine is for people.
	hashedText, displayLine string
}

func (p *pendingRemovalBuilder) add(e pendingRemovalEntry) {
	if p.clusters[e.cluster] {
		return
	}
	if p.clusters == nil {
		p.clusters = map[string]bool{}
	}
	p.clusters[e.cluster] = true
	p.entries = append(p.entries, e)
}

func (p *pendingRemovalBuilder) addHeldRow(c string, spec atoll.RowSpec) {
	p.add(pendingRemovalEntry{
		cluster: c, reasonCode: atoll.ReasonRemovalHeld, reasonText: spec.Reason,
		hashedText:  fmt.Sprintf("held %s %s %d", c, spec.UID, spec.Since),
		displayLine: fmt.Sprintf("remove from %s (%s)", c, spec.Reason),
	})
}

func (p *pendingRemovalBuilder) addUnreadyReplacement(c string, spec atoll.RowSpec, blockers *blockerSet) {
	p.add(pendingRemovalEntry{
		cluster: c, reasonCode: atoll.ReasonReplacementsNotReady, reasonText: spec.Reason,
		hashedText:  fmt.Sprintf("unready %s %s %d", c, spec.UID, spec.Since),
		displayLine: fmt.Sprintf("remove from %s without waiting for %s", c, blockers.formatNames()),
	})
}

func (p *pendingRemovalBuilder) addShareReduction(c string, spec atoll.RowSpec, want map[string]int64, blockers *blockerSet) {
	p.add(pendingRemovalEntry{
		cluster: c, reasonCode: atoll.ReasonReplacementsNotReady, reasonText: "a smaller share",
		hashedText:  fmt.Sprintf("shrink %s %s %d %s", c, spec.UID, spec.MovingSince, atoll.HashJSON(want)),
		displayLine: fmt.Sprintf("shrink in %s to %s without waiting for %s", c, formatShares(want), blockers.formatNames()),
	})
}

// addItemRemoval adds items that are to go. since distinguishes a wait from an earlier wait
// for the same items.
func (p *pendingRemovalBuilder) addItemRemoval(c string, spec atoll.RowSpec, deletes []string, since string) {
	e := pendingRemovalEntry{
		cluster: c, reasonCode: atoll.ReasonRemovalHeld, reasonText: strings.Join(deletes, ", "),
		hashedText:  fmt.Sprintf("items %s %s %q%s", c, spec.UID, deletes, since),
		displayLine: fmt.Sprintf("remove from %s: %s", c, strings.Join(deletes, ", ")),
	}
	if !p.clusters[c] {
		p.add(e)
		return
	}
	i := slices.IndexFunc(p.entries, func(e pendingRemovalEntry) bool { return e.cluster == c })
	was := &p.entries[i]
	was.hashedText, was.reasonText, was.displayLine = was.hashedText+" "+e.hashedText, was.reasonText+", "+e.reasonText, was.displayLine+"; "+e.displayLine
}

// buildPendingRemoval returns what was collected; nil when nothing waits.
func (p *pendingRemovalBuilder) buildPendingRemoval(bundle string) *PendingRemoval {
	if len(p.entries) == 0 {
		return nil
	}
	slices.SortFunc(p.entries, func(a, b pendingRemovalEntry) int { return strings.Compare(a.cluster, b.cluster) })
	out, parts := &PendingRemoval{}, [][]byte{[]byte(bundle)}
	for _, e := range p.entries {
		out.Lines = append(out.Lines, e.displayLine)
		parts = append(parts, []byte(e.hashedText))
	}
	out.Hash = atoll.HashParts(parts...)[:16]
	return out
}

// formatShares returns shares as text: "Deployment/web=3, Deployment/api=1".
func formatShares(want map[string]int64) string {
	var out []string
	for _, item := range slices.Sorted(maps.Keys(want)) {
		name := item
		if key, err := atoll.ParseItemKey(item); err == nil {
			name = key.Kind + "/" + key.Name
		}
		out = append(out, fmt.Sprintf("%s=%d", name, want[item]))
	}
	return strings.Join(out, ", ")
}
