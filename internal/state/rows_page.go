package state

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// page is one TargetSlice as the table keeps it. The table's lock guards it.
type page struct {
	name   string
	number int
	bundle enginev1.BundleRef
	meta   metav1.ObjectMeta
	dict   *dict
	rows   []*row // by cluster name
	bytes  int    // of all lines
	// odd are rows whose spec this version cannot read, since who wrote it was newer in
	// a way that this hub cannot know. They order nothing, and stay in the slice as
	// they are.
	oddSpec, oddStatus map[string]string
}

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

// slice gives the page as an object, with the lines of specs and statuses if wanted.
func (p *page) slice(specs, statuses bool) *enginev1.TargetSlice {
	s := &enginev1.TargetSlice{Spec: enginev1.TargetSliceSpec{Bundle: p.bundle}}
	p.meta.DeepCopyInto(&s.ObjectMeta)
	if specs {
		s.Spec.Words, s.Spec.Rows = p.dict.spec, maps.Clone(p.oddSpec)
		if s.Spec.Rows == nil {
			s.Spec.Rows = make(map[string]string, len(p.rows))
		}
	}
	if statuses {
		s.Status.Words, s.Status.Rows = p.dict.status, make(map[string]string, len(p.rows))
		maps.Copy(s.Status.Rows, p.oddStatus)
	}
	for _, r := range p.rows {
		if specs {
			s.Spec.Rows[r.cluster] = r.spec
		}
		if statuses && r.status != "" {
			s.Status.Rows[r.cluster] = r.status
		}
	}
	return s
}

// fill the page with a slice's lines, and name the clusters whose rows differ from
// before. Lines that are equal keep the memory that they have. The caller holds the
// lock.
func (t *Rows) fill(p *page, s *enginev1.TargetSlice) []string {
	if s.Name != "" {
		p.meta = s.ObjectMeta
		p.meta.ManagedFields = nil
	}
	f := filling{page: p, was: p.dict, before: make(map[string]*row, len(p.rows))}
	p.dict, f.grown = p.dict.next(s.Spec.Words, s.Status.Words)
	for _, r := range p.rows {
		f.before[r.cluster] = r
	}
	p.oddSpec, p.oddStatus, p.bytes = nil, nil, 0
	rows, changed := make([]*row, 0, len(s.Spec.Rows)), []string(nil)
	for cluster, line := range s.Spec.Rows {
		status := s.Status.Rows[cluster]
		p.bytes += len(line) + len(status)
		r, same := t.settle(f, cluster, line, status)
		if r == nil {
			continue
		}
		delete(f.before, cluster)
		if rows = append(rows, r); !same {
			changed = append(changed, cluster)
		}
	}
	for cluster, r := range f.before {
		t.remove(r)
		changed = append(changed, cluster)
	}
	slices.SortFunc(rows, func(a, b *row) int { return strings.Compare(a.cluster, b.cluster) })
	p.rows = rows
	slices.Sort(changed)
	return changed
}

// filling is what a page held before it is filled anew.
type filling struct {
	page   *page
	before map[string]*row
	was    *dict
	grown  bool // words of before mean what they meant
}

// settle one row with its lines as they are now; nil for a line that is no row.
func (t *Rows) settle(f filling, cluster, line, status string) (now *row, same bool) {
	p, old := f.page, f.before[cluster]
	if old != nil && f.grown && old.spec == line && old.status == status {
		return old, true
	}
	if old != nil && !f.grown && f.was.means(old.spec, old.status) == p.dict.means(line, status) {
		old.spec, old.status = line, status
		return old, true
	}
	spec, err := atoll.ParseRowSpec(line, p.dict.spec...)
	if err != nil {
		p.keepOdd(cluster, line, status)
		return nil, false
	}
	if old != nil {
		t.remove(old)
	}
	now = &row{page: p, spec: line, status: status}
	if old != nil && old.spec == line {
		now.spec = old.spec
	}
	t.add(now, cluster, spec.UID)
	return now, false
}

func (p *page) keepOdd(cluster, spec, status string) {
	if p.oddSpec == nil {
		p.oddSpec, p.oddStatus = map[string]string{}, map[string]string{}
	}
	p.oddSpec[cluster] = spec
	if status != "" {
		p.oddStatus[cluster] = status
	}
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
	m.rows = slices.Insert(m.rows, i, r)
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
