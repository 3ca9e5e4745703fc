package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A slice is full at so many rows or so many bytes of rows, spec and status
// together; what it holds may still grow past that, new rows go elsewhere.
const (
	rowsPerSlice  = 200
	bytesPerSlice = 400_000
)

// ErrRowsMoved says that rows changed since they were read: read again, decide
// again.
var ErrRowsMoved = errors.New("the rows changed since they were read")

// WriteSpecs writes row specs of one Bundle: changes by cluster name, nil takes a
// row away. base is what the changes were computed from; if a row that is to
// change is not as in base, or the store moved, nothing more is written and the
// error is ErrRowsMoved. One update per slice that holds a changed row.
func (t *Rows) WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	t.mu.RLock()
	moved := t.moved(ref.UID, base, changes)
	var edited []*enginev1.TargetSlice
	if moved == "" {
		edited = t.layOut(ref, changes)
	}
	t.mu.RUnlock()
	if moved != "" {
		return fmt.Errorf("bundle %s/%s, cluster %s: %w", ref.Namespace, ref.Name, moved, ErrRowsMoved)
	}
	for _, s := range edited {
		if err := t.writeSlice(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// moved names a cluster whose row differs from base. The caller holds the lock.
func (t *Rows) moved(bundle string, base []Row, changes map[string]*atoll.RowSpec) string {
	was := make(map[string]*atoll.RowSpec, len(changes))
	for i := range base {
		if _, ok := changes[base[i].Cluster]; ok {
			was[base[i].Cluster] = &base[i].Spec
		}
	}
	for cluster := range changes {
		is, was := t.find(bundle, cluster), was[cluster]
		if (is == nil) != (was == nil) {
			return cluster
		}
		if is == nil {
			continue
		}
		if now, err := atoll.ParseRowSpec(is.spec, is.page.dict.spec...); err != nil || !now.Equal(*was) {
			return cluster
		}
	}
	return ""
}

// find a row; the caller holds the lock.
func (t *Rows) find(bundle, cluster string) *row {
	if b := t.byBundle[bundle]; b != nil {
		return b.rows[cluster]
	}
	return nil
}

func (t *Rows) writeSlice(ctx context.Context, s *enginev1.TargetSlice) error {
	var err error
	if s.ResourceVersion == "" {
		err = t.client.Create(ctx, s)
	} else {
		err = t.client.Update(ctx, s)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return fmt.Errorf("target slice %s: %w", s.Name, ErrRowsMoved)
	case err != nil:
		return fmt.Errorf("write target slice %s: %w", s.Name, err)
	}
	t.put(s)
	return nil
}

// edit is a slice on its way to be written. Its status is left out: the API server
// keeps what it has.
type edit struct {
	page  *page
	words *atoll.Words
	lines map[string]string // by cluster; empty: the row goes
	rows  int
	bytes int
}

func newEdit(p *page) *edit {
	return &edit{page: p, words: atoll.NewWords(p.dict.spec), lines: map[string]string{}, rows: len(p.rows) + len(p.odd), bytes: p.bytes}
}

func (e *edit) set(cluster string, spec *atoll.RowSpec) {
	e.lines[cluster] = spec.EncodeWith(e.words)
}

func (e *edit) remove(cluster string) {
	e.lines[cluster] = ""
	e.rows--
}

func (e *edit) add(cluster string, spec *atoll.RowSpec) {
	e.set(cluster, spec)
	e.rows++
	e.bytes += len(cluster) + len(e.lines[cluster])
}

func (e *edit) hasRoom() bool { return e.rows < rowsPerSlice && e.bytes < bytesPerSlice }

func (e *edit) slice() *enginev1.TargetSlice {
	s := e.page.slice()
	s.Spec.Rows, s.Spec.Words = atoll.PruneWords(e.page.specs(e.lines), e.words.List())
	return s
}

// layout of a Bundle's rows on slices while they are edited.
type layout struct {
	ref   enginev1.BundleRef
	pages []*page // by number
	edits map[int]*edit
	full  int // so many of pages have no room, from the first on
	free  int // no number below this one is free
}

// layOut gives the slices that must be written, changed copies of current ones or
// new ones. A row stays where it is; a new row goes to the first slice with room.
// The caller holds the lock.
func (t *Rows) layOut(ref enginev1.BundleRef, changes map[string]*atoll.RowSpec) []*enginev1.TargetSlice {
	l := layout{ref: ref, edits: map[int]*edit{}}
	if b := t.byBundle[ref.UID]; b != nil {
		l.pages = b.pages
	}
	var fresh []string
	for _, cluster := range slices.Sorted(maps.Keys(changes)) {
		row := changes[cluster]
		switch r := t.find(ref.UID, cluster); {
		case r != nil && row == nil:
			l.edit(r.page).remove(cluster)
		case r != nil:
			l.edit(r.page).set(cluster, row)
		case row != nil:
			fresh = append(fresh, cluster)
		}
	}
	for _, cluster := range fresh {
		l.room().add(cluster, changes[cluster])
	}
	out := make([]*enginev1.TargetSlice, 0, len(l.edits))
	for _, n := range slices.Sorted(maps.Keys(l.edits)) {
		out = append(out, l.edits[n].slice())
	}
	return out
}

// page of that number; nil when there is none, or its slice is named otherwise.
func (l *layout) page(n int) *page {
	i, ok := slices.BinarySearchFunc(l.pages, n, func(p *page, n int) int { return p.number - n })
	if !ok {
		return nil
	}
	return l.pages[i]
}

func (l *layout) edit(p *page) *edit {
	e := l.edits[p.number]
	if e == nil {
		e = newEdit(p)
		l.edits[p.number] = e
	}
	return e
}

// room gives the slice to which the next new row goes: the first one with room, or a
// new one of the lowest number that is free, so that two writers who both think that a
// slice is needed name the same one.
func (l *layout) room() *edit {
	for ; l.full < len(l.pages); l.full++ {
		p := l.pages[l.full]
		if e := l.edits[p.number]; e != nil && e.hasRoom() {
			return e
		} else if e == nil && newEdit(p).hasRoom() {
			return l.edit(p)
		}
	}
	for ; ; l.free++ {
		if l.page(l.free) != nil {
			continue
		}
		e := l.edits[l.free]
		if e == nil {
			e = newEdit(newPage(l.ref, l.free))
			l.edits[l.free] = e
		}
		if e.hasRoom() {
			return e
		}
	}
}

// newPage is a page that is not in the store yet.
func newPage(ref enginev1.BundleRef, n int) *page {
	return &page{number: n, bundle: ref, dict: &dict{}, meta: metav1.ObjectMeta{
		Name:   ref.UID + "-" + strconv.Itoa(n),
		Labels: map[string]string{enginev1.LabelBundle: ref.UID},
	}}
}
