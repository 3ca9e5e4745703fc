package bundlestatus

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// fewNames of equal rows are kept in order, and leastNames of them are known whenever a Bundle is
// reconciled: one more than the longest message has.
const (
	fewNames   = 64
	leastNames = mostNamed + 1
)

// rowGroups groups the rows of one Bundle by their content: of a hundred thousand rows nearly all have
// one of few contents, and the Bundle's status is computed from these, with their numbers. A
// changed row leaves one group and joins another; the others are not touched.
//
// markChanged may be called at any time, also during a look.
type rowGroups struct {
	noteMu sync.Mutex
	noted  map[string]struct{} // rows that may have changed, since built

	mu     sync.Mutex
	built  bool
	grace  bool // built while clusters that were Ready count as waited for
	view   rolloutView
	of     map[string]*group
	groups map[string]*group
	// feedback of the rows is counted by itself: nearly each cluster may report other values.
	feedback *feedbackTally
	key      []byte // scratch
}

// group of equal rows.
type group struct {
	key   string
	row   Row // one of them
	count int
	// first of them by cluster name, in order: all, or at least so many that none
	// that is left out comes before one that is here.
	first []string
}

func newRowGroups() *rowGroups { return &rowGroups{noted: map[string]struct{}{}} }

// markChanged records that rows may have changed.
func (l *rowGroups) markChanged(clusters ...string) {
	l.noteMu.Lock()
	defer l.noteMu.Unlock()
	for _, c := range clusters {
		l.noted[c] = struct{}{}
	}
}

// takeChanged takes what was noted; what comes from now on is the next look's.
func (l *rowGroups) takeChanged() map[string]struct{} {
	l.noteMu.Lock()
	defer l.noteMu.Unlock()
	noted := l.noted
	if len(noted) > 0 {
		l.noted = map[string]struct{}{}
	}
	return noted
}

// rowSource is where a roll reads the rows of its Bundle.
type rowSource struct {
	all func() []Row
	one func(cluster string) (Row, bool)
	// grace: clusters that were Ready at the hub's start still count as waited for.
	grace bool
	// view of the Bundle's rollout, by which rows differ.
	view rolloutView
}

// readRows looks at the rows as they are now: one of each group, in the order of the first
// cluster of each, and how many rows there are in all.
func (l *rowGroups) readRows(from rowSource) (rows []Row, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	noted := l.takeChanged()
	if !l.built || l.grace && !from.grace || !l.view.isSame(from.view) {
		l.of, l.groups, l.view, l.feedback = map[string]*group{}, map[string]*group{}, from.view, newFeedbackTally()
		for _, row := range from.all() {
			l.addRow(row)
		}
		l.built, l.grace = true, from.grace
	} else {
		for c := range noted {
			row, ok := from.one(c)
			if old := l.of[c]; ok && old != nil && old.key == string(l.rowSignature(&row)) {
				l.feedback.countRow(&row)
				continue
			}
			if l.removeCluster(c); ok {
				l.addRow(row)
			}
		}
	}
	l.refillFirstNames()
	rows = make([]Row, 0, len(l.groups))
	for _, g := range l.groups {
		row := g.row
		row.Cluster, row.More, row.Names = g.first[0], g.count-1, slices.Clone(g.first[:min(len(g.first), leastNames)])
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return rows, len(l.of)
}

// listClustersWhere lists the clusters of the groups whose row matches.
func (l *rowGroups) listClustersWhere(is func(Row) bool) (clusters []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chosen := map[*group]bool{}
	for _, g := range l.groups {
		if is(g.row) {
			chosen[g] = true
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	for c, g := range l.of {
		if chosen[g] {
			clusters = append(clusters, c)
		}
	}
	slices.Sort(clusters)
	return clusters
}

// listFeedback returns the feedback of the rows that were read last.
func (l *rowGroups) listFeedback(content *atoll.Content) []v1alpha1.BundleFeedback {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.feedback.listFeedback(content)
}

func (l *rowGroups) addRow(row Row) {
	l.feedback.countRow(&row)
	key := l.rowSignature(&row)
	g := l.groups[string(key)]
	if g == nil {
		g = &group{key: string(key), row: row}
		l.groups[g.key] = g
	}
	l.of[row.Cluster] = g
	all := len(g.first) == g.count
	g.count++
	i, _ := slices.BinarySearch(g.first, row.Cluster)
	if i == len(g.first) && !all {
		return
	}
	if g.first = slices.Insert(g.first, i, row.Cluster); len(g.first) > fewNames {
		g.first = g.first[:fewNames]
	}
}

func (l *rowGroups) removeCluster(cluster string) {
	l.feedback.removeCluster(cluster)
	g := l.of[cluster]
	if g == nil {
		return
	}
	delete(l.of, cluster)
	if g.count--; g.count == 0 {
		delete(l.groups, g.key)
		return
	}
	if i, has := slices.BinarySearch(g.first, cluster); has {
		g.first = slices.Delete(g.first, i, i+1)
	}
}

// refillFirstNames refills the first names of groups that lost them.
func (l *rowGroups) refillFirstNames() {
	lost := map[*group]bool{}
	for _, g := range l.groups {
		if len(g.first) < min(g.count, leastNames) {
			g.first, lost[g] = g.first[:0], true
		}
	}
	if len(lost) == 0 {
		return
	}
	for c, g := range l.of {
		if !lost[g] || len(g.first) == fewNames && c > g.first[fewNames-1] {
			continue
		}
		i, _ := slices.BinarySearch(g.first, c)
		if g.first = slices.Insert(g.first, i, c); len(g.first) > fewNames {
			g.first = g.first[:fewNames]
		}
	}
}

// rowSignature returns the content of a row without its cluster's name, and without feedback, numbers and
// times that no message has. The result holds until the next call.
func (l *rowGroups) rowSignature(r *Row) []byte {
	b := l.key[:0]
	text := func(s string) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	flags := func(all ...bool) {
		n := byte(0)
		for i, f := range all {
			if f {
				n |= 1 << i
			}
		}
		b = append(b, n)
	}
	flags(r.Reachable, r.Waited, r.Known, r.Spec.Orphan, r.Spec.Recall != nil, r.Status != nil)
	b = binary.AppendVarint(b, int64(r.CheckIn))
	if l.view.isBounded() {
		b = r.appendTurn(b, l.view.terms)
	}
	text(string(r.Spec.Phase))
	text(r.Spec.Reason)
	text(r.Spec.Revision)
	b = binary.AppendUvarint(b, uint64(len(r.Spec.Assigned)))
	if len(r.Spec.Assigned) > 0 { // the start of ordinals appears in no message
		for _, item := range slices.Sorted(maps.Keys(r.Spec.Assigned)) {
			text(item)
			b = binary.AppendVarint(b, r.Spec.Assigned[item])
		}
	}
	if st := r.Status; st != nil {
		flags(st.Generation < r.Spec.Generation, st.Generation > r.Spec.Generation, st.Applied, st.AllTombstonesDone, st.NamespaceKept)
		text(string(st.State))
		text(string(st.Reason))
		text(st.Message)
		b = binary.AppendVarint(b, int64(st.UnlistedNotReady))
		b = binary.AppendUvarint(b, uint64(len(st.DoneTombstones)))
		for _, gone := range st.DoneTombstones {
			text(gone)
		}
		b = binary.AppendUvarint(b, uint64(len(st.Items)))
		for i := range st.Items {
			it := &st.Items[i]
			flags(it.Error, it.Completed, it.Drift != nil)
			for _, s := range [...]string{it.Key.Group, it.Key.Kind, it.Key.Namespace, it.Key.Name, string(it.Health), string(it.Reason), it.Message} {
				text(s)
			}
			b = append(binary.AppendUvarint(b, uint64(len(it.ReflectedStatus))), it.ReflectedStatus...)
			if it.Drift != nil {
				text(drift.Describe(it.Drift))
			}
		}
	}
	l.key = b
	return b
}

// appendTurn appends what distinguishes rows in a rollout. The default has no stage that could fail.
func (r *Row) appendTurn(b []byte, terms *rollout.Terms) []byte {
	if r.Suspended {
		b = append(b, 's')
	}
	if b = strconv.AppendBool(b, r.Spec.FailedAt != 0 || r.isExcused); !terms.IsDefault() {
		began, failed := r.inRollout().TurnTimes()
		for _, n := range [...]int64{int64(r.Stage), int64(r.Windows), began, failed} {
			b = binary.AppendVarint(b, n)
		}
	}
	if !r.CountsUntil.IsZero() {
		b = binary.AppendVarint(b, r.CountsUntil.Unix())
	}
	b = append(binary.AppendUvarint(b, uint64(len(r.Spec.PreviousRevision))), r.Spec.PreviousRevision...)
	if !r.Deadline.IsZero() {
		b = binary.AppendVarint(binary.AppendVarint(b, r.Deadline.Unix()), r.Spec.MovedAt)
	}
	return b
}

// rowGroupsOf returns the roll of a Bundle's rows; nil when the Bundle was not reconciled yet and make
// is false.
func (r *BundleReconciler) rowGroupsOf(uid string, make bool) *rowGroups {
	r.rollsMu.Lock()
	defer r.rollsMu.Unlock()
	l := r.rolls[uid]
	if l == nil && make {
		l = newRowGroups()
		r.rolls[uid] = l
	}
	return l
}

// markRowsChanged records that rows of a Bundle may have changed. Before the first look there is nothing
// to bring up to date.
func (r *BundleReconciler) markRowsChanged(uid string, clusters ...string) {
	if l := r.rowGroupsOf(uid, false); l != nil {
		l.markChanged(clusters...)
	}
}

// readGroupedRows returns one row of each group of equal rows, and the number of all rows.
func (r *BundleReconciler) readGroupedRows(uid string, view rolloutView) (rows []Row, total int) {
	return r.rowGroupsOf(uid, true).readRows(rowSource{
		all: func() []Row {
			all := r.Rows.ListOfBundle(uid)
			rows := make([]Row, 0, len(all))
			for _, row := range all {
				rows = append(rows, r.rowInRollout(row, view))
			}
			return rows
		},
		one: func(cluster string) (Row, bool) {
			row, ok := r.Rows.Get(uid, cluster)
			return r.rowInRollout(row, view), ok
		},
		grace: r.isStarting(), view: view,
	})
}

// listRowsOf lists the rows of a Bundle for which the condition holds, by cluster name.
func (r *BundleReconciler) listRowsOf(bundleUID string, are func(Row) bool) (rows []Row) {
	for _, c := range r.rowGroupsOf(bundleUID, true).listClustersWhere(are) {
		if row, ok := r.Rows.Get(bundleUID, c); ok {
			if view := r.rowView(row); are(view) {
				rows = append(rows, view)
			}
		}
	}
	return rows
}

// plainRows returns the rows as the row table holds them.
func plainRows(rows []Row) []state.Row {
	out := make([]state.Row, 0, len(rows))
	for _, row := range rows {
		out = append(out, row.Row)
	}
	return out
}

// clusterNames returns the names of the clusters whose rows are alike, or the first of them.
func (r Row) clusterNames() []string {
	if len(r.Names) > 0 {
		return r.Names
	}
	return []string{r.Cluster}
}

// rowCount returns the number of rows that the row stands for.
func (r Row) rowCount() int32 { return int32(r.More) + 1 }
