package state

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/rowcodec"
)

// slicePage is one TargetSlice as the table keeps it. The table's lock guards it. Only the
// holder of fillLock changes it, and may read it without the table's lock, except the hashes of
// its rows.
type slicePage struct {
	name   string
	number int
	bundle enginev1.BundleRef

	fillLock sync.Mutex
	listed   bool // among its Bundle's
	dropped  bool // it was dropped

	meta         metav1.ObjectMeta
	dictionaries *dictionaryPair
	rows         []*tableRow // by cluster name
	bytes        int         // of all lines
	unreadable   []unreadableRow
}

// unreadableRow is a row whose spec this version cannot read, since a newer hub wrote it. It
// orders nothing, and stays in the slice unchanged.
type unreadableRow struct{ cluster, spec, status string }

// dictionaryPair are the words of a page's lines. It is never changed, only replaced.
type dictionaryPair struct{ spec, status []string }

// tableRow is one row of a page: its lines, of which the status is empty where there is
// none. The table's lock guards it.
type tableRow struct {
	page         *slicePage
	clusterRows  *clusterRows
	cluster      string
	spec, status string
	statusHash   string // session.StatusHash of the status, once it was read
}

// rowSnapshot is a row as it is at one moment. Only the constant fields of its row may be read
// without the lock: page and cluster, and the bundle and name of the page.
type rowSnapshot struct {
	row                      *tableRow
	dictionaries             *dictionaryPair
	spec, status, statusHash string
}

func (r *tableRow) takeSnapshot() rowSnapshot {
	return rowSnapshot{r, r.page.dictionaries, r.spec, r.status, r.statusHash}
}

// decodeRow decodes the row. Its spec is readable, as fill has seen. A status that cannot be
// read, and one of another cluster of that name, counts as none.
func (v *rowSnapshot) decodeRow(out *Row) {
	spec, err := rowcodec.DecodeSpec(v.spec, v.dictionaries.spec...)
	if err != nil {
		panic("state: a line was readable and is not: " + err.Error())
	}
	out.Bundle, out.Cluster, out.Slice, out.Spec = v.row.page.bundle, v.row.cluster, v.row.page.name, spec
	if v.status == "" {
		return
	}
	if st, err := rowcodec.DecodeStatus(v.status, spec.UID, v.dictionaries.status...); err == nil && st.UID == spec.UID {
		out.Status = &st
	}
}

// toSliceObjectWithoutRows returns the page as an API object, without rows.
func (p *slicePage) toSliceObjectWithoutRows() *enginev1.TargetSlice {
	s := &enginev1.TargetSlice{Spec: enginev1.TargetSliceSpec{Bundle: p.bundle}}
	p.meta.DeepCopyInto(&s.ObjectMeta)
	return s
}

// joinSpecLines returns the lines of all specs, but for those that edits has: its line instead,
// and none where that is empty. fresh are clusters in edits that have no line yet.
func (p *slicePage) joinSpecLines(edits map[string]string) string {
	lines := make([]rowcodec.Line, 0, len(p.rows)+len(p.unreadable)+len(edits))
	add := func(cluster, line string) {
		if edited, ok := edits[cluster]; ok {
			line = edited
			delete(edits, cluster)
		}
		if line != "" {
			lines = append(lines, rowcodec.Line{Cluster: cluster, Text: line})
		}
	}
	for _, r := range p.rows {
		add(r.cluster, r.spec)
	}
	for _, o := range p.unreadable {
		add(o.cluster, o.spec)
	}
	for cluster, line := range edits {
		lines = append(lines, rowcodec.Line{Cluster: cluster, Text: line})
	}
	return rowcodec.JoinLines(lines)
}

// joinStatusLines returns the lines of all statuses, but for those that news has.
func (p *slicePage) joinStatusLines(news map[string]string) string {
	lines := make([]rowcodec.Line, 0, len(p.rows)+len(p.unreadable))
	add := func(cluster, line string) {
		if n, ok := news[cluster]; ok {
			line = n
		}
		if line != "" {
			lines = append(lines, rowcodec.Line{Cluster: cluster, Text: line})
		}
	}
	for _, r := range p.rows {
		add(r.cluster, r.status)
	}
	for _, o := range p.unreadable {
		add(o.cluster, o.status)
	}
	return rowcodec.JoinLines(lines)
}

// pageUpdate is what a page is to hold, worked out from a slice's lines.
type pageUpdate struct {
	// panicked is the first panic of a subscriber to transitions.
	panicked     *reconcile.Panic
	page         *slicePage
	meta         metav1.ObjectMeta
	dictionaries *dictionaryPair
	unreadable   []unreadableRow
	// bytes of all lines.
	bytes int
	// lines of the rows, and gone ones that have none.
	lines      *[]filledRow
	removed    []*tableRow
	hasNewRows bool // some rows are
	// changed are the clusters whose rows differ from before.
	changed []string
	// ordered are those of them whose specs do, or may.
	ordered          []string
	keepsWordIndexes bool // words of before mean what they meant
	// transitions of the changed rows, when isObserved.
	isObserved  bool
	transitions []RowTransition
}

// filledRow is one row with its lines. The UID is of one that is not in the table yet.
type filledRow struct {
	row               *tableRow
	spec, status, uid string
	unchanged         bool
}

// computePageUpdate works out what the page is to hold of a slice. The caller holds its filling; no
// value that readers use is changed.
func (p *slicePage) computePageUpdate(s *enginev1.TargetSlice, isObserved bool) *pageUpdate {
	f := &pageUpdate{page: p, meta: p.meta, bytes: len(s.Spec.Rows) + len(s.Status.Rows), isObserved: isObserved}
	if s.Name != "" {
		f.meta = s.ObjectMeta
		f.meta.ManagedFields = nil
	}
	f.dictionaries, f.keepsWordIndexes = p.dictionaries.replaceWords(s.Spec.Words, s.Status.Words)
	old, specs, statuses := p.rows, rowcodec.SplitLines(s.Spec.Rows), rowcodec.SplitLines(s.Status.Rows)
	f.lines = filledRowPool.Get().(*[]filledRow)
	for _, spec := range specs {
		for len(old) > 0 && old[0].cluster < spec.Cluster {
			f.removeRow(old[0])
			old = old[1:]
		}
		for len(statuses) > 0 && statuses[0].Cluster < spec.Cluster {
			statuses = statuses[1:]
		}
		status, before := "", (*tableRow)(nil)
		if len(statuses) > 0 && statuses[0].Cluster == spec.Cluster {
			status = statuses[0].Text
		}
		if len(old) > 0 && old[0].cluster == spec.Cluster {
			before, old = old[0], old[1:]
		}
		f.addOrUpdateRow(before, spec, status)
	}
	for _, r := range old {
		f.removeRow(r)
	}
	return f
}

func (f *pageUpdate) removeRow(r *tableRow) {
	f.addTransition(r, rowcodec.Line{Cluster: r.cluster}, "")
	f.removed, f.changed, f.ordered = append(f.removed, r), append(f.changed, r.cluster), append(f.ordered, r.cluster)
}

// addOrUpdateRow adds one row with its lines as they are now. One of the same cluster stays what it
// is, and takes the memory of the new text even where that is equal, so that it keeps no old
// text alive.
func (f *pageUpdate) addOrUpdateRow(old *tableRow, line rowcodec.Line, status string) {
	if old != nil && f.equalsStatus(old, line.Text, status) {
		f.appendRow(filledRow{row: old, spec: line.Text, status: status, unchanged: true})
		return
	}
	spec, err := rowcodec.DecodeSpec(line.Text, f.dictionaries.spec...)
	if err != nil {
		f.unreadable = append(f.unreadable, unreadableRow{line.Cluster, line.Text, status})
		if old != nil {
			f.removeRow(old)
		}
		return
	}
	f.addTransition(old, line, status)
	f.changed = append(f.changed, line.Cluster)
	if old == nil || !f.keepsWordIndexes || old.spec != line.Text {
		f.ordered = append(f.ordered, line.Cluster)
	}
	if old != nil && old.clusterRows.uid == spec.UID {
		f.appendRow(filledRow{row: old, spec: line.Text, status: status})
		return
	}
	if old != nil {
		f.removed = append(f.removed, old)
	}
	f.hasNewRows = true
	f.appendRow(filledRow{row: &tableRow{page: f.page, cluster: line.Cluster}, spec: line.Text, status: status, uid: spec.UID})
}

// addTransition adds the change of a row. old is nil for a new row, and the line is empty for one
// that goes.
func (f *pageUpdate) addTransition(old *tableRow, line rowcodec.Line, status string) {
	if !f.isObserved {
		return
	}
	change := RowTransition{Bundle: f.page.bundle.UID, Cluster: line.Cluster}
	if old != nil {
		change.Before = rowcodec.SummarizeRow(old.spec, old.status, f.page.dictionaries.spec, f.page.dictionaries.status)
	}
	if line.Text != "" {
		change.After = rowcodec.SummarizeRow(line.Text, status, f.dictionaries.spec, f.dictionaries.status)
	}
	f.transitions = append(f.transitions, change)
}

func (f *pageUpdate) appendRow(l filledRow) { *f.lines = append(*f.lines, l) }

// filledRowPool keeps the memory of fillings: slices are put all the time.
var filledRowPool = sync.Pool{New: func() any { return new([]filledRow) }}

// applyPageUpdate applies a filling in the table. The caller holds the table's lock.
func (t *RowTable) applyPageUpdate(f *pageUpdate) {
	p := f.page
	if !p.listed {
		t.addPage(p)
	}
	p.meta, p.dictionaries, p.unreadable, p.bytes = f.meta, f.dictionaries, f.unreadable, f.bytes
	for _, r := range f.removed {
		t.removeFromIndexes(r)
	}
	for _, l := range *f.lines {
		r, had := l.row, l.row.spec
		if r.spec, r.status = l.spec, l.status; !l.unchanged {
			r.statusHash = ""
		}
		switch {
		case l.uid != "":
			t.addToIndexes(r, r.cluster, l.uid)
		case l.unchanged:
		case t.findRow(p.bundle.UID, r.cluster) != r: // another slice has it too
			t.addToIndexes(r, r.cluster, r.clusterRows.uid)
		case had != r.spec:
			r.clusterRows.requestedPods += rowcodec.DecodeRequestedPods(r.spec) - rowcodec.DecodeRequestedPods(had)
		}
	}
	if f.hasNewRows || len(f.removed) > 0 {
		p.rows = make([]*tableRow, len(*f.lines))
		for i, l := range *f.lines {
			p.rows[i] = l.row
		}
	}
	clear(*f.lines)
	*f.lines = (*f.lines)[:0]
	filledRowPool.Put(f.lines)
}

// equalsStatus reports whether the lines are equal to the row.
func (f *pageUpdate) equalsStatus(old *tableRow, spec, status string) bool {
	if f.keepsWordIndexes {
		return old.spec == spec && old.status == status
	}
	return f.page.dictionaries.expandLines(old.spec, old.status) == f.dictionaries.expandLines(spec, status)
}

// replaceWords returns the words of a page that is filled again, with the memory of equal old
// words. grown: all old words keep their index.
func (d *dictionaryPair) replaceWords(spec, status []string) (n *dictionaryPair, grown bool) {
	if d == nil {
		return &dictionaryPair{spec, status}, false
	}
	if slices.Equal(d.spec, spec) && slices.Equal(d.status, status) {
		return d, true
	}
	spec, first := reuseWords(d.spec, spec)
	status, second := reuseWords(d.status, status)
	return &dictionaryPair{spec, status}, first && second
}

// reuseWords reuses the memory of old words in a new list.
func reuseWords(old, list []string) (out []string, grown bool) {
	same := 0
	for same < len(old) && same < len(list) && old[same] == list[same] {
		same++
	}
	return append(slices.Clip(old[:same]), list[same:]...), same == len(old)
}

// expandLines returns two lines with all words in place, whatever their index.
func (d *dictionaryPair) expandLines(spec, status string) [2]string {
	return [2]string{rowcodec.ExpandWords(spec, d.spec), rowcodec.ExpandWords(status, d.status)}
}

// addToIndexes adds a row to the indexes.
func (t *RowTable) addToIndexes(r *tableRow, cluster, uid string) {
	m := t.byClusterUID[uid]
	if m == nil {
		m = &clusterRows{uid: strings.Clone(uid), name: strings.Clone(cluster)}
		t.byClusterUID[m.uid] = m
	}
	r.clusterRows, r.cluster = m, m.name
	if cluster != m.name {
		r.cluster = strings.Clone(cluster)
	}
	b := t.byBundle[r.page.bundle.UID]
	if other := b.rows[cluster]; other != nil {
		t.removeFromIndexes(other)
	}
	b.rows[r.cluster] = r
	i, _ := slices.BinarySearchFunc(m.rows, r.page.bundle.UID, compareByBundleUID)
	m.rows, m.requestedPods = slices.Insert(m.rows, i, r), m.requestedPods+rowcodec.DecodeRequestedPods(r.spec)
}

func compareByBundleUID(r *tableRow, uid string) int { return strings.Compare(r.page.bundle.UID, uid) }

// removeFromIndexes removes a row from the indexes, if it is still in them.
func (t *RowTable) removeFromIndexes(r *tableRow) {
	b := t.byBundle[r.page.bundle.UID]
	if b.rows[r.cluster] != r {
		return
	}
	delete(b.rows, r.cluster)
	i, _ := slices.BinarySearchFunc(r.clusterRows.rows, r.page.bundle.UID, compareByBundleUID)
	for r.clusterRows.rows[i] != r {
		i++
	}
	r.clusterRows.requestedPods -= rowcodec.DecodeRequestedPods(r.spec)
	if r.clusterRows.rows = slices.Delete(r.clusterRows.rows, i, i+1); len(r.clusterRows.rows) == 0 {
		delete(t.byClusterUID, r.clusterRows.uid)
	}
}

// pageNumberOf returns the number of the page, from its slice's name; -1 for a name that Atoll did not give.
func pageNumberOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}
