package bundlestatus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/state"
)

func (m memRows) BundlesWithRows() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.rows {
		out = append(out, uid)
	}
	return out
}

func (m memRows) ListOfBundle(uid string) (out []state.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows[uid] {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

func (m memRows) Get(uid, cluster string) (state.Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.rows[uid][cluster]
	return r, ok
}

func (m memRows) ListOfCluster(uid string) (out []state.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rows := range m.rows {
		for _, r := range rows {
			if r.Spec.UID == uid {
				out = append(out, r)
			}
		}
	}
	return out
}

func (m memRows) EmptySlices(uid string) (empty []*enginev1.TargetSlice, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slices {
		if s.Spec.Bundle.UID != uid {
			continue
		}
		if all++; s.Spec.Rows == "" {
			empty = append(empty, s)
		}
	}
	slices.SortFunc(empty, func(a, b *enginev1.TargetSlice) int { return strings.Compare(a.Name, b.Name) })
	return empty, all
}

func (m memRows) WriteSpecs(_ context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	m.mu.Lock()
	if err := m.noteWrite("rows"); err != nil {
		m.mu.Unlock()
		return err
	}
	var changed []string
	for c, spec := range changes {
		i := slices.IndexFunc(base, func(r state.Row) bool { return r.Cluster == c })
		old, had := m.rows[ref.UID][c]
		if had != (i >= 0) || had && rowcodec.EncodeSpec(base[i].Spec, nil) != rowcodec.EncodeSpec(old.Spec, nil) {
			m.mu.Unlock()
			return fmt.Errorf("cluster %s: %w", c, state.ErrRowsMoved)
		}
		changed = append(changed, c)
		if spec == nil {
			setLine(m.slices[old.Slice], c, "")
			delete(m.rows[ref.UID], c)
			continue
		}
		m.keepRow(ref, c, *spec)
	}
	if len(m.rows[ref.UID]) == 0 {
		delete(m.rows, ref.UID)
	}
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(ref.UID, changed)
	}
	return nil
}

func (m memRows) keepRow(ref enginev1.BundleRef, cluster string, spec atoll.RowSpec) {
	row, had := m.rows[ref.UID][cluster]
	if !had {
		row = state.Row{Bundle: ref, Cluster: cluster, Slice: ref.UID + "-0"}
	}
	row.Spec = spec
	if m.rows[ref.UID] == nil {
		m.rows[ref.UID] = map[string]state.Row{}
	}
	m.rows[ref.UID][cluster] = row
	if m.slices[row.Slice] == nil {
		m.slices[row.Slice] = &enginev1.TargetSlice{
			ObjectMeta: metav1.ObjectMeta{Name: row.Slice, ResourceVersion: m.next()},
			Spec:       enginev1.TargetSliceSpec{Bundle: ref},
		}
	}
	setLine(m.slices[row.Slice], cluster, rowcodec.EncodeSpec(spec, nil))
}

// setLine of a cluster; an empty one takes it away.
func setLine(s *enginev1.TargetSlice, cluster, line string) {
	lines := slices.DeleteFunc(rowcodec.SplitLines(s.Spec.Rows), func(l rowcodec.Line) bool { return l.Cluster == cluster })
	if line != "" {
		lines = append(lines, rowcodec.Line{Cluster: cluster, Text: line})
	}
	s.Spec.Rows = rowcodec.JoinLines(lines)
}
