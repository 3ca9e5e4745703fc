package state

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// page is one TargetSlice as the table keeps it. The table's lock guards it. Who holds
// filling is the only one who changes it, and may read it without the table's lock, but
// for the hashes of its rows.
type page struct {
	name   string
	number int
	bundle enginev1.BundleRef

	filling sync.Mutex
	listed  bool // among its Bundle's
	gone    bool // it was dropped

	meta  metav1.ObjectMeta
	dict  *dict
	rows  []*row // by cluster name
	bytes int    // of all lines
	odd   []odd
}

// odd is a row whose spec this version cannot read, since who wrote it was newer in a
// way that this hub cannot know. It orders nothing, and stays in the slice as it is.
type odd struct{ cluster, spec, status string }

// dict are the words of a page's lines. It is never changed, only replaced.
type dict struct{ spec, status []string }

// row is one row of a page: its lines, of which the status is empty where there is
// none. The table's lock guards it.
type row struct {
	page         *page
	member       *memberRows
	cluster      string
	spec, status string
	hash         string // session.StatusHash of the status, once it was asked for
}

// view is a row as it is at one moment. Of its row, only what never changes may be
// read without the lock: page and cluster, and of the page its bundle and name.
type view struct {
	of                 *row
	dict               *dict
	spec, status, hash string
}

func (r *row) view() view { return view{r, r.page.dict, r.spec, r.status, r.hash} }

// decode the row. Its spec is readable, as fill has seen. A status that cannot be
// read, and one of another cluster of that name, counts as none.
func (v *view) decode(out *Row) {
	spec, err := atoll.ParseRowSpec(v.spec, v.dict.spec...)
	if err != nil {
		panic("state: a line was readable and is not: " + err.Error())
	}
	out.Bundle, out.Cluster, out.Slice, out.Spec = v.of.page.bundle, v.of.cluster, v.of.page.name, spec
	if v.status == "" {
		return
	}
	if st, err := atoll.ParseRowStatus(v.status, spec.UID, v.dict.status...); err == nil && st.UID == spec.UID {
		out.Status = &st
	}
}

// slice gives the page as an object, without rows.
func (p *page) slice() *enginev1.TargetSlice {
	s := &enginev1.TargetSlice{Spec: enginev1.TargetSliceSpec{Bundle: p.bundle}}
	p.meta.DeepCopyInto(&s.ObjectMeta)
	return s
}

// specs gives the lines of all specs, but for those that edits has: its line instead,
// and none where that is empty. fresh are clusters in edits that have no line yet.
func (p *page) specs(edits map[string]string) string {
	lines := make([]atoll.Line, 0, len(p.rows)+len(p.odd)+len(edits))
	add := func(cluster, line string) {
		if edited, ok := edits[cluster]; ok {
			line = edited
			delete(edits, cluster)
		}
		if line != "" {
			lines = append(lines, atoll.Line{Cluster: cluster, Text: line})
		}
	}
	for _, r := range p.rows {
		add(r.cluster, r.spec)
	}
	for _, o := range p.odd {
		add(o.cluster, o.spec)
	}
	for cluster, line := range edits {
		lines = append(lines, atoll.Line{Cluster: cluster, Text: line})
	}
	return atoll.JoinLines(lines)
}

// statuses gives the lines of all statuses, but for those that news has.
func (p *page) statuses(news map[string]string) string {
	lines := make([]atoll.Line, 0, len(p.rows)+len(p.odd))
	add := func(cluster, line string) {
		if n, ok := news[cluster]; ok {
			line = n
		}
		if line != "" {
			lines = append(lines, atoll.Line{Cluster: cluster, Text: line})
		}
	}
	for _, r := range p.rows {
		add(r.cluster, r.status)
	}
	for _, o := range p.odd {
		add(o.cluster, o.status)
	}
	return atoll.JoinLines(lines)
}

// filling is what a page is to hold, worked out from a slice's lines.
type filling struct {
	page *page
	meta metav1.ObjectMeta
	dict *dict
	odd  []odd
	// bytes of all lines.
	bytes int
	// lines of the rows, and gone ones that have none.
	lines *[]filled
	gone  []*row
	fresh bool // some rows are
	// changed are the clusters whose rows differ from before.
	changed []string
	// ordered are those of them whose specs do, or may.
	ordered []string
	grown   bool // words of before mean what they meant
}

// filled is one row with its lines. The UID is of one that is not in the table yet.
type filled struct {
	row               *row
	spec, status, uid string
	same              bool
}

// fill works out what the page is to hold of a slice. The caller holds its filling;
// nothing that anybody reads is changed.
func (p *page) fill(s *enginev1.TargetSlice) *filling {
	f := &filling{page: p, meta: p.meta, bytes: len(s.Spec.Rows) + len(s.Status.Rows)}
	if s.Name != "" {
		f.meta = s.ObjectMeta
		f.meta.ManagedFields = nil
	}
	f.dict, f.grown = p.dict.next(s.Spec.Words, s.Status.Words)
	old, specs, statuses := p.rows, atoll.Lines(s.Spec.Rows), atoll.Lines(s.Status.Rows)
	f.lines = linesPool.Get().(*[]filled)
	for _, spec := range specs {
		for len(old) > 0 && old[0].cluster < spec.Cluster {
			f.leave(old[0])
			old = old[1:]
		}
		for len(statuses) > 0 && statuses[0].Cluster < spec.Cluster {
			statuses = statuses[1:]
		}
		status, before := "", (*row)(nil)
		if len(statuses) > 0 && statuses[0].Cluster == spec.Cluster {
			status = statuses[0].Text
		}
		if len(old) > 0 && old[0].cluster == spec.Cluster {
			before, old = old[0], old[1:]
		}
		f.take(before, spec, status)
	}
	for _, r := range old {
		f.leave(r)
	}
	return f
}

func (f *filling) leave(r *row) {
	f.gone, f.changed, f.ordered = append(f.gone, r), append(f.changed, r.cluster), append(f.ordered, r.cluster)
}

// take one row with its lines as they are now. One of the same cluster stays what it
// is, and takes on the memory of the new text even where that says the same, so that
// none of it lies in an old one.
func (f *filling) take(old *row, line atoll.Line, status string) {
	if old != nil && f.same(old, line.Text, status) {
		f.add(filled{row: old, spec: line.Text, status: status, same: true})
		return
	}
	spec, err := atoll.ParseRowSpec(line.Text, f.dict.spec...)
	if err != nil {
		f.odd = append(f.odd, odd{line.Cluster, line.Text, status})
		if old != nil {
			f.leave(old)
		}
		return
	}
	f.changed = append(f.changed, line.Cluster)
	if old == nil || !f.grown || old.spec != line.Text {
		f.ordered = append(f.ordered, line.Cluster)
	}
	if old != nil && old.member.uid == spec.UID {
		f.add(filled{row: old, spec: line.Text, status: status})
		return
	}
	if old != nil {
		f.gone = append(f.gone, old)
	}
	f.fresh = true
	f.add(filled{row: &row{page: f.page, cluster: line.Cluster}, spec: line.Text, status: status, uid: spec.UID})
}

func (f *filling) add(l filled) { *f.lines = append(*f.lines, l) }

// linesPool keeps the memory of fillings: slices are put all the time.
var linesPool = sync.Pool{New: func() any { return new([]filled) }}

// settle a filling in the table. The caller holds the table's lock.
func (t *Rows) settle(f *filling) {
	p := f.page
	if !p.listed {
		t.addPage(p)
	}
	p.meta, p.dict, p.odd, p.bytes = f.meta, f.dict, f.odd, f.bytes
	for _, r := range f.gone {
		t.remove(r)
	}
	for _, l := range *f.lines {
		r, had := l.row, l.row.spec
		if r.spec, r.status = l.spec, l.status; !l.same {
			r.hash = ""
		}
		if l.uid != "" {
			t.add(r, r.cluster, l.uid)
		} else if !l.same && t.find(p.bundle.UID, r.cluster) != r { // another slice has it too
			t.add(r, r.cluster, r.member.uid)
		} else if !l.same && had != r.spec {
			r.member.pods += atoll.PodsOf(r.spec) - atoll.PodsOf(had)
		}
	}
	if f.fresh || len(f.gone) > 0 {
		p.rows = make([]*row, len(*f.lines))
		for i, l := range *f.lines {
			p.rows[i] = l.row
		}
	}
	clear(*f.lines)
	*f.lines = (*f.lines)[:0]
	linesPool.Put(f.lines)
}

// same tells whether the lines say what the row says.
func (f *filling) same(old *row, spec, status string) bool {
	if f.grown {
		return old.spec == spec && old.status == status
	}
	return f.page.dict.means(old.spec, old.status) == f.dict.means(spec, status)
}

// next gives the words of a page that is filled anew, in the memory of those that are
// there where they are equal. grown tells that all of those are where they were.
func (d *dict) next(spec, status []string) (n *dict, grown bool) {
	if d == nil {
		return &dict{spec, status}, false
	}
	if slices.Equal(d.spec, spec) && slices.Equal(d.status, status) {
		return d, true
	}
	spec, first := reuse(d.spec, spec)
	status, second := reuse(d.status, status)
	return &dict{spec, status}, first && second
}

// reuse the memory of old words in a new list.
func reuse(old, list []string) (out []string, grown bool) {
	same := 0
	for same < len(old) && same < len(list) && old[same] == list[same] {
		same++
	}
	return append(slices.Clip(old[:same]), list[same:]...), same == len(old)
}

// means gives what two lines say, whatever the places of their words.
func (d *dict) means(spec, status string) [2]string {
	return [2]string{atoll.WithoutWords(spec, d.spec), atoll.WithoutWords(status, d.status)}
}

// add a row to the indexes.
func (t *Rows) add(r *row, cluster, uid string) {
	m := t.byMember[uid]
	if m == nil {
		m = &memberRows{uid: strings.Clone(uid), name: strings.Clone(cluster)}
		t.byMember[m.uid] = m
	}
	r.member, r.cluster = m, m.name
	if cluster != m.name {
		r.cluster = strings.Clone(cluster)
	}
	b := t.byBundle[r.page.bundle.UID]
	if other := b.rows[cluster]; other != nil {
		t.remove(other)
	}
	b.rows[r.cluster] = r
	i, _ := slices.BinarySearchFunc(m.rows, r.page.bundle.UID, byBundleUID)
	m.rows, m.pods = slices.Insert(m.rows, i, r), m.pods+atoll.PodsOf(r.spec)
}

func byBundleUID(r *row, uid string) int { return strings.Compare(r.page.bundle.UID, uid) }

// remove a row from the indexes, if it is still in them.
func (t *Rows) remove(r *row) {
	b := t.byBundle[r.page.bundle.UID]
	if b.rows[r.cluster] != r {
		return
	}
	delete(b.rows, r.cluster)
	i, _ := slices.BinarySearchFunc(r.member.rows, r.page.bundle.UID, byBundleUID)
	for r.member.rows[i] != r {
		i++
	}
	r.member.pods -= atoll.PodsOf(r.spec)
	if r.member.rows = slices.Delete(r.member.rows, i, i+1); len(r.member.rows) == 0 {
		delete(t.byMember, r.member.uid)
	}
}

// numberOf the page, from its slice's name; -1 for a name that Atoll did not give.
func numberOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}
