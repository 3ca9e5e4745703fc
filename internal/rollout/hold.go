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
)

// Window over which removals are added up, so that many small ones do not pass
// where a large one would be held.
const Window = 10 * time.Minute

// DeleteLimit is how many rows of a namespace may lose something by direct deletes
// of templates within Window.
const DeleteLimit = 1000

// freeClusters is how many clusters a Bundle may have for a budget in percent not
// to count.
const freeClusters = 10

// DefaultBudget of removals by edit.
var DefaultBudget = intstr.FromString("10%")

func (s *step) orphans() bool { return s.Removal == v1alpha1.RemoveOrphan }

// budget tells which rows are held, and counts those that go without a
// confirmation.
func (s *step) budget() map[string]bool {
	holds := map[string]bool{}
	hold := s.overEdits()
	if s.Deleting {
		hold = s.overDeletes()
	}
	if hold && !s.released {
		for _, c := range slices.Concat(s.outs, s.held) {
			holds[c] = true
		}
		if s.Deleting {
			for _, c := range s.leaving {
				holds[c] = true
			}
		}
		return holds
	}
	switch {
	case s.released:
	case s.Deleting:
		s.deletes += len(s.leavers())
	default:
		s.gone = slices.Concat(s.outs, s.held)
	}
	return holds
}

// overEdits tells whether what an edit takes out is over the budget; what is only
// to be orphaned counts, since taking it back into care is not for free. What is held
// stays held until it is confirmed, or until an edit takes back part of it and the
// rest is within the budget: that time has passed releases nothing.
func (s *step) overEdits() bool {
	if len(s.outs)+len(s.held) == 0 {
		return false
	}
	stays, restored, going := 0, false, map[string]bool{}
	for _, c := range slices.Concat(s.leavers(), s.RecentOuts) {
		going[c] = true
	}
	for _, c := range s.stays {
		if row, has := s.Rows[c]; has && row.Spec.Phase != atoll.RowRemoving {
			stays++
			restored = restored || row.Spec.Phase == atoll.RowHeld
			delete(going, c)
		}
	}
	if len(s.held) > 0 && !restored {
		return true
	}
	return overBudget(s.Budget, len(going), stays+len(going))
}

// affords tells whether the budget lets something be taken out of these clusters at once,
// beside those that are going already; then they count among what is gone. sticky: some of
// it waits for a confirmation, and all of it goes on waiting.
func (s *step) affords(losing []string, going map[string]bool, sticky bool) bool {
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
	if sticky || overBudget(s.Budget, len(going), total) {
		return false
	}
	s.gone = append(slices.Clone(s.gone), losing...)
	return true
}

func overBudget(budget *intstr.IntOrString, going, total int) bool {
	b := DefaultBudget
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
	return total > freeClusters && going*100 > percent*total
}

// overDeletes tells whether the deletion of the Bundle is over what direct deletes
// may take from its namespace.
func (s *step) overDeletes() bool {
	if s.orphans() || len(s.leavers()) == 0 {
		return false
	}
	for _, c := range s.held {
		r := atoll.ParseRowReason(s.Rows[c].Spec.Reason)
		if r.Word == atoll.RowRemovalHeld && strings.HasPrefix(r.Text, atoll.RowBundleDeleted) {
			return true
		}
	}
	return s.RecentDeletes+len(s.leavers()) > DeleteLimit
}

// gateDeletes keeps rows at their revision when the next one takes items out of
// more rows than direct deletes may.
func (s *step) gateDeletes() {
	var losing []string
	sticky := false
	for c, spec := range s.next {
		row, has := s.Rows[c]
		if spec == nil || !has || row.Spec.UID != spec.UID || row.Spec.Phase == atoll.RowRemoving ||
			spec.Phase == atoll.RowRemoving || row.Spec.Revision == spec.Revision || len(s.Deletes[row.Spec.Revision]) == 0 {
			continue
		}
		losing = append(losing, c)
		r := atoll.ParseRowReason(row.Spec.Reason)
		sticky = sticky || row.Spec.Phase == atoll.RowActive && r.Word == atoll.RowRemovalHeld
	}
	slices.Sort(losing)
	switch {
	case len(losing) == 0 || s.released:
	case sticky || s.RecentDeletes+len(losing) > DeleteLimit:
		for _, c := range losing {
			s.holdRevision(c, s.Deletes[s.Rows[c].Spec.Revision])
		}
	default:
		s.deletes += len(losing)
	}
}

// holdRevision keeps a row at its revision, since the next one takes the items out of
// it.
func (s *step) holdRevision(c string, items []string) {
	old, spec := s.Rows[c].Spec, s.next[c]
	spec.Revision, spec.Variant = old.Revision, old.Variant
	spec.NotHere, spec.NotYet = old.NotHere, old.NotYet
	if v, ok := s.OwnVariants[c]; ok && v != old.Variant {
		// Other rules of its own revision target the cluster now. What they keep out
		// waits with all else.
		spec.Variant, spec.NotYet = v, s.waiting(c, s.losing(c))
	}
	keepItems(old, spec)
	s.plan.items(c, *spec, items, "")
}

// keepItems keeps the shares of items that only the row's own revision divides.
func keepItems(old atoll.RowSpec, spec *atoll.RowSpec) {
	for item, n := range old.Assigned {
		if _, has := spec.Assigned[item]; has {
			continue
		}
		if spec.Assigned == nil {
			spec.Assigned = map[string]int64{}
		}
		spec.Assigned[item] = n
		if start, ranged := old.Ordinals[item]; ranged {
			spec.Ordinals = maps.Clone(spec.Ordinals)
			if spec.Ordinals == nil {
				spec.Ordinals = map[string]int64{}
			}
			spec.Ordinals[item] = start
		}
	}
}

// ask writes the plan's hash into the rows that wait for its confirmation.
func (s *step) ask() {
	for _, c := range s.leavers() {
		if spec := s.next[c]; spec.Phase == atoll.RowHeld {
			s.plan.held(c, *spec)
		}
	}
	s.askRecalled()
	p := s.plan.plan(s.Bundle)
	if p == nil {
		return
	}
	for _, e := range s.plan.entries {
		spec := s.next[e.cluster]
		spec.Reason = atoll.RowReason{Word: e.word, Plan: p.Hash, Text: e.text}.String()
	}
}

// Plan is what waits for a confirmation.
type Plan struct {
	// Hash that `atoll confirm` gives.
	Hash string `json:"hash"`
	// Lines say what would go, sorted.
	Lines []string `json:"lines"`
}

// Summary gives the first lines, and how many more there are.
func (p *Plan) Summary(n int) string {
	if len(p.Lines) <= n {
		return strings.Join(p.Lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(p.Lines[:n], "; "), len(p.Lines)-n)
}

// planner collects a plan. A row is in it once at most: the first entry counts, and items
// that are to go add to it.
type planner struct {
	entries  []planEntry
	clusters map[string]bool
}

type planEntry struct {
	cluster, word, text string
	// key is what is hashed: it holds since when the row waits, so that a plan's
	// hash does not come again; line is for people.
	key, line string
}

func (p *planner) add(e planEntry) {
	if p.clusters[e.cluster] {
		return
	}
	if p.clusters == nil {
		p.clusters = map[string]bool{}
	}
	p.clusters[e.cluster] = true
	p.entries = append(p.entries, e)
}

func (p *planner) held(c string, spec atoll.RowSpec) {
	p.add(planEntry{
		cluster: c, word: atoll.RowRemovalHeld, text: spec.Reason,
		key:  fmt.Sprintf("held %s %s %d", c, spec.UID, spec.Since),
		line: fmt.Sprintf("remove from %s (%s)", c, spec.Reason),
	})
}

func (p *planner) unready(c string, spec atoll.RowSpec, blockers *crowd) {
	p.add(planEntry{
		cluster: c, word: atoll.RowReplacementsNotReady, text: spec.Reason,
		key:  fmt.Sprintf("unready %s %s %d", c, spec.UID, spec.Since),
		line: fmt.Sprintf("remove from %s without waiting for %s", c, blockers.names()),
	})
}

func (p *planner) shrink(c string, spec atoll.RowSpec, want map[string]int64, blockers *crowd) {
	p.add(planEntry{
		cluster: c, word: atoll.RowReplacementsNotReady, text: "a smaller share",
		key:  fmt.Sprintf("shrink %s %s %d %s", c, spec.UID, spec.Moving, atoll.HashJSON(want)),
		line: fmt.Sprintf("shrink in %s to %s without waiting for %s", c, sharesOf(want), blockers.names()),
	})
}

// items that are to go; since tells those that wait from the same ones at another time.
func (p *planner) items(c string, spec atoll.RowSpec, deletes []string, since string) {
	e := planEntry{
		cluster: c, word: atoll.RowRemovalHeld, text: strings.Join(deletes, ", "),
		key:  fmt.Sprintf("items %s %s %q%s", c, spec.UID, deletes, since),
		line: fmt.Sprintf("remove from %s: %s", c, strings.Join(deletes, ", ")),
	}
	if !p.clusters[c] {
		p.add(e)
		return
	}
	i := slices.IndexFunc(p.entries, func(e planEntry) bool { return e.cluster == c })
	was := &p.entries[i]
	was.key, was.text, was.line = was.key+" "+e.key, was.text+", "+e.text, was.line+"; "+e.line
}

// plan of what was collected; nil when nothing waits.
func (p *planner) plan(bundle string) *Plan {
	if len(p.entries) == 0 {
		return nil
	}
	slices.SortFunc(p.entries, func(a, b planEntry) int { return strings.Compare(a.cluster, b.cluster) })
	out, parts := &Plan{}, [][]byte{[]byte(bundle)}
	for _, e := range p.entries {
		out.Lines = append(out.Lines, e.line)
		parts = append(parts, []byte(e.key))
	}
	out.Hash = atoll.Hash(parts...)[:16]
	return out
}

// sharesOf in words: "Deployment/web=3, Deployment/api=1".
func sharesOf(want map[string]int64) string {
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
