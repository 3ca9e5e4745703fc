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
	"atoll.dev/atoll/internal/rowcodec"
)

// A slice is full at so many rows or so many bytes of rows, spec and status
// together; what it holds may still grow past that, new rows go elsewhere.
const (
	maxRowsPerSlice  = 200
	maxBytesPerSlice = 400_000
)

// ErrRowsMoved: rows changed since they were read. The caller must read and decide again.
var ErrRowsMoved = errors.New("the rows changed since they were read")

// WriteSpecs writes row specs of one Bundle: changes by cluster name, nil takes a
// row away. base is what the changes were computed from; if a row that is to
// change is not as in base, or the store moved, nothing more is written and the
// error is ErrRowsMoved. One update per slice that holds a changed row.
func (t *RowTable) WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	t.mu.RLock()
	moved := t.findChangedCluster(ref.UID, base, changes)
	var edited []*enginev1.TargetSlice
	if moved == "" {
		edited = t.planSliceWrites(ref, changes)
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

// findChangedCluster names a cluster whose row differs from base. The caller holds the lock.
func (t *RowTable) findChangedCluster(bundle string, base []Row, changes map[string]*atoll.RowSpec) string {
	was := make(map[string]*atoll.RowSpec, len(changes))
	for i := range base {
		if _, ok := changes[base[i].Cluster]; ok {
			was[base[i].Cluster] = &base[i].Spec
		}
	}
	for cluster := range changes {
		is, was := t.findRow(bundle, cluster), was[cluster]
		if (is == nil) != (was == nil) {
			return cluster
		}
		if is == nil {
			continue
		}
		if now, err := rowcodec.DecodeSpec(is.spec, is.page.dictionaries.spec...); err != nil || !now.Equal(*was) {
			return cluster
		}
	}
	return ""
}

// findRow returns a row; the caller holds the lock.
func (t *RowTable) findRow(bundle, cluster string) *tableRow {
	if b := t.byBundle[bundle]; b != nil {
		return b.rows[cluster]
	}
	return nil
}

func (t *RowTable) writeSlice(ctx context.Context, s *enginev1.TargetSlice) error {
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

// sliceEdit is a slice on its way to be written. Its status is left out: the API server
// keeps what it has.
type sliceEdit struct {
	page       *slicePage
	dictionary *rowcodec.Dictionary
	lines      map[string]string // by cluster; empty: the row goes
	rows       int
	bytes      int
}

func newSliceEdit(p *slicePage) *sliceEdit {
	return &sliceEdit{page: p, dictionary: rowcodec.NewDictionary(p.dictionaries.spec), lines: map[string]string{}, rows: len(p.rows) + len(p.unreadable), bytes: p.bytes}
}

func (e *sliceEdit) setRow(cluster string, spec *atoll.RowSpec) {
	e.lines[cluster] = rowcodec.EncodeSpec(*spec, e.dictionary)
}

func (e *sliceEdit) removeRow(cluster string) {
	e.lines[cluster] = ""
	e.rows--
}

func (e *sliceEdit) addRow(cluster string, spec *atoll.RowSpec) {
	e.setRow(cluster, spec)
	e.rows++
	e.bytes += len(cluster) + len(e.lines[cluster])
}

func (e *sliceEdit) hasCapacity() bool { return e.rows < maxRowsPerSlice && e.bytes < maxBytesPerSlice }

func (e *sliceEdit) toSliceObject() *enginev1.TargetSlice {
	s := e.page.toSliceObjectWithoutRows()
	s.Spec.Rows, s.Spec.Words = rowcodec.PruneWords(e.page.joinSpecLines(e.lines), e.dictionary.Words())
	return s
}

// sliceLayout of a Bundle's rows on slices while they are edited.
type sliceLayout struct {
	ref              enginev1.BundleRef
	pages            []*slicePage // by number
	edits            map[int]*sliceEdit
	fullPages        int // so many of pages have no room, from the first on
	lowestFreeNumber int // no number below this one is free
}

// planSliceWrites returns the slices that must be written, changed copies of current ones or
// new ones. A row stays where it is; a new row goes to the first slice with room.
// The caller holds the lock.
func (t *RowTable) planSliceWrites(ref enginev1.BundleRef, changes map[string]*atoll.RowSpec) []*enginev1.TargetSlice {
	l := sliceLayout{ref: ref, edits: map[int]*sliceEdit{}}
	if b := t.byBundle[ref.UID]; b != nil {
		l.pages = b.pages
	}
	var fresh []string
	for _, cluster := range slices.Sorted(maps.Keys(changes)) {
		row := changes[cluster]
		switch r := t.findRow(ref.UID, cluster); {
		case r != nil && row == nil:
			l.editOfPage(r.page).removeRow(cluster)
		case r != nil:
			l.editOfPage(r.page).setRow(cluster, row)
		case row != nil:
			fresh = append(fresh, cluster)
		}
	}
	for _, cluster := range fresh {
		l.editWithCapacity().addRow(cluster, changes[cluster])
	}
	out := make([]*enginev1.TargetSlice, 0, len(l.edits))
	for _, n := range slices.Sorted(maps.Keys(l.edits)) {
		out = append(out, l.edits[n].toSliceObject())
	}
	return out
}

// findPageByNumber returns the page of that number; nil when there is none, or its slice is named otherwise.
func (l *sliceLayout) findPageByNumber(n int) *slicePage {
	i, ok := slices.BinarySearchFunc(l.pages, n, func(p *slicePage, n int) int { return p.number - n })
	if !ok {
		return nil
	}
	return l.pages[i]
}

func (l *sliceLayout) editOfPage(p *slicePage) *sliceEdit {
	e := l.edits[p.number]
	if e == nil {
		e = newSliceEdit(p)
		l.edits[p.number] = e
	}
	return e
}

// editWithCapacity returns the slice to which the next new row goes: the first one with room, or
// a new one of the lowest number that is free, so that two writers that both add a slice choose
// the same name.
func (l *sliceLayout) editWithCapacity() *sliceEdit {
	for ; l.fullPages < len(l.pages); l.fullPages++ {
		p := l.pages[l.fullPages]
		if e := l.edits[p.number]; e != nil && e.hasCapacity() {
			return e
		} else if e == nil && newSliceEdit(p).hasCapacity() {
			return l.editOfPage(p)
		}
	}
	for ; ; l.lowestFreeNumber++ {
		if l.findPageByNumber(l.lowestFreeNumber) != nil {
			continue
		}
		e := l.edits[l.lowestFreeNumber]
		if e == nil {
			e = newSliceEdit(newSlicePage(l.ref, l.lowestFreeNumber))
			l.edits[l.lowestFreeNumber] = e
		}
		if e.hasCapacity() {
			return e
		}
	}
}

// newSlicePage is a page that is not in the store yet.
func newSlicePage(ref enginev1.BundleRef, n int) *slicePage {
	return &slicePage{number: n, bundle: ref, dictionaries: &dictionaryPair{}, meta: metav1.ObjectMeta{
		Name:   ref.UID + "-" + strconv.Itoa(n),
		Labels: map[string]string{enginev1.LabelBundle: ref.UID},
	}}
}
