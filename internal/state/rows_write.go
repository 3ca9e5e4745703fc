package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	current := t.slicesOf(ref.UID)
	moved := t.moved(ref.UID, base, changes)
	t.mu.RUnlock()
	if moved != "" {
		return fmt.Errorf("bundle %s/%s, cluster %s: %w", ref.Namespace, ref.Name, moved, ErrRowsMoved)
	}
	for _, s := range layOut(ref, current, changes) {
		if err := t.writeSlice(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// moved names a cluster whose row differs from base.
func (t *Rows) moved(bundle string, base []Row, changes map[string]*atoll.RowSpec) string {
	was := map[string]string{}
	for _, r := range base {
		was[r.Cluster] = r.Spec.Encode()
	}
	for cluster := range changes {
		is := ""
		if r, ok := t.byBundle[bundle][cluster]; ok {
			is = r.Spec.Encode()
		}
		if is != was[cluster] {
			return cluster
		}
	}
	return ""
}

func (t *Rows) slicesOf(bundle string) []*enginev1.TargetSlice {
	out := make([]*enginev1.TargetSlice, 0, len(t.slicesBy[bundle]))
	for n := range t.slicesBy[bundle] {
		out = append(out, t.slices[n])
	}
	slices.SortFunc(out, func(a, b *enginev1.TargetSlice) int { return page(a) - page(b) })
	return out
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

// layOut gives the slices that must be written, changed copies of current ones or
// new ones. A row stays where it is; a new row goes to the first slice with room.
func layOut(ref enginev1.BundleRef, current []*enginev1.TargetSlice, changes map[string]*atoll.RowSpec) []*enginev1.TargetSlice {
	pages, touched := slices.Clone(current), map[int]bool{}
	edit := func(i int) *enginev1.TargetSlice {
		if !touched[i] {
			touched[i] = true
			pages[i] = pages[i].DeepCopy()
		}
		if pages[i].Spec.Rows == nil {
			pages[i].Spec.Rows = map[string]string{}
		}
		return pages[i]
	}
	var fresh []string
	for _, cluster := range slices.Sorted(maps.Keys(changes)) {
		i := slices.IndexFunc(pages, func(s *enginev1.TargetSlice) bool { return s.Spec.Rows[cluster] != "" })
		switch row := changes[cluster]; {
		case i >= 0 && row == nil:
			delete(edit(i).Spec.Rows, cluster)
		case i >= 0:
			edit(i).Spec.Rows[cluster] = row.Encode()
		case row != nil:
			fresh = append(fresh, cluster)
		}
	}
	for _, cluster := range fresh {
		i := slices.IndexFunc(pages, hasRoom)
		if i < 0 {
			i, touched[len(pages)] = len(pages), true
			pages = append(pages, newSlice(ref, pages))
		}
		edit(i).Spec.Rows[cluster] = changes[cluster].Encode()
	}
	var out []*enginev1.TargetSlice
	for i, s := range pages {
		if touched[i] {
			out = append(out, s)
		}
	}
	return out
}

func hasRoom(s *enginev1.TargetSlice) bool {
	if len(s.Spec.Rows) >= rowsPerSlice {
		return false
	}
	n := 0
	for c, line := range s.Spec.Rows {
		n += len(line) + len(s.Status.Rows[c])
	}
	return n < bytesPerSlice
}

// newSlice takes the lowest page number that is free, so that two writers who both
// think that a slice is needed name the same one.
func newSlice(ref enginev1.BundleRef, pages []*enginev1.TargetSlice) *enginev1.TargetSlice {
	taken := map[int]bool{}
	for _, s := range pages {
		taken[page(s)] = true
	}
	n := 0
	for taken[n] {
		n++
	}
	return &enginev1.TargetSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   ref.UID + "-" + strconv.Itoa(n),
			Labels: map[string]string{enginev1.LabelBundle: ref.UID},
		},
		Spec: enginev1.TargetSliceSpec{Bundle: ref},
	}
}

func page(s *enginev1.TargetSlice) int {
	n, err := strconv.Atoi(s.Name[strings.LastIndexByte(s.Name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// WriteStatuses writes reports of one Bundle's rows, by cluster UID. A report for a
// row that is gone, and one whose seq is not above the stored one's, is dropped. On
// conflict the slice is read again and what is still due is written. One update per
// slice that holds a changed row.
func (t *Rows) WriteStatuses(ctx context.Context, bundleUID string, reports map[string]atoll.RowStatus) error {
	t.mu.RLock()
	current := t.slicesOf(bundleUID)
	t.mu.RUnlock()
	for _, s := range current {
		if err := t.writeStatus(ctx, s, reports); err != nil {
			return err
		}
	}
	return nil
}

func (t *Rows) writeStatus(ctx context.Context, s *enginev1.TargetSlice, reports map[string]atoll.RowStatus) error {
	for {
		next := withReports(s, reports)
		if next == nil {
			return nil
		}
		err := t.client.Status().Update(ctx, next)
		if err == nil {
			t.put(next)
			return nil
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("write status of target slice %s: %w", s.Name, err)
		}
		var fresh enginev1.TargetSlice
		if err := t.client.Get(ctx, client.ObjectKeyFromObject(s), &fresh); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("read target slice %s after a conflict: %w", s.Name, err)
		}
		t.put(&fresh)
		s = &fresh
	}
}

// withReports gives a copy of the slice with the reports that are news to it, and
// without statuses of rows that are gone; nil when that changes nothing.
func withReports(s *enginev1.TargetSlice, reports map[string]atoll.RowStatus) *enginev1.TargetSlice {
	rows, changed := maps.Clone(s.Status.Rows), false
	if rows == nil {
		rows = map[string]string{}
	}
	for cluster := range s.Status.Rows {
		if _, ok := s.Spec.Rows[cluster]; !ok {
			delete(rows, cluster)
		}
	}
	for cluster, line := range s.Spec.Rows {
		spec, err := atoll.ParseRowSpec(line)
		if err != nil {
			continue
		}
		report, ok := reports[spec.UID]
		if !ok {
			continue
		}
		if old, err := atoll.ParseRowStatus(rows[cluster]); err == nil && old.UID == spec.UID && old.Seq >= report.Seq {
			continue
		}
		report.UID = spec.UID
		rows[cluster], changed = report.Encode(), true
	}
	if !changed {
		return nil
	}
	next := s.DeepCopy()
	next.Status.Rows = rows
	return next
}
