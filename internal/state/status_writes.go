package state

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// maxBytesOfStatuses bounds a slice whose rows have large statuses, which scripts join: the API
// server and etcd refuse a larger object, and with it the reports of all its rows. Reports over the
// bound are stored without their large statuses.
const maxBytesOfStatuses = 1_200_000

// WriteStatuses writes reports of one Bundle's rows, by cluster UID. A report for a
// row that is gone, and one whose seq is not above the stored one's, is dropped. On
// conflict the slice is read again and what is still due is written. One update per
// slice that holds a changed row.
func (t *RowTable) WriteStatuses(ctx context.Context, bundleUID string, reports map[string]atoll.RowStatus) error {
	byPage := map[*slicePage]map[string]atoll.RowStatus{}
	t.mu.RLock()
	for uid, report := range reports {
		r := t.byClusterUID[uid].rowOfBundle(bundleUID)
		if r == nil {
			continue
		}
		if byPage[r.page] == nil {
			byPage[r.page] = map[string]atoll.RowStatus{}
		}
		report.UID = uid
		byPage[r.page][r.cluster] = report
	}
	t.mu.RUnlock()
	for p, reports := range byPage {
		if err := t.writeStatusOfPage(ctx, p, reports); err != nil {
			return err
		}
	}
	return nil
}

// rowOfBundle returns the member's row of a Bundle, nil without one.
func (m *clusterRows) rowOfBundle(bundle string) *tableRow {
	if m == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(m.rows, bundle, compareByBundleUID); ok {
		return m.rows[i]
	}
	return nil
}

// buildSliceWithReports returns what sliceWithReports returns, under the page's lock.
func (p *slicePage) buildSliceWithReports(reports map[string]atoll.RowStatus) *enginev1.TargetSlice {
	p.fillLock.Lock()
	defer p.fillLock.Unlock()
	return p.sliceWithReports(reports)
}

func (t *RowTable) writeStatusOfPage(ctx context.Context, p *slicePage, reports map[string]atoll.RowStatus) error {
	for {
		next := p.buildSliceWithReports(reports)
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
			return fmt.Errorf("write status of target slice %s: %w", next.Name, err)
		}
		var fresh enginev1.TargetSlice
		if err := t.client.Get(ctx, client.ObjectKeyFromObject(next), &fresh); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("read target slice %s after a conflict: %w", next.Name, err)
		}
		t.put(&fresh)
	}
}

// sliceWithReports returns the page's slice with the reports, by cluster name, that are news
// to it, and without statuses of rows that are gone; nil when that changes nothing.
// Specs are left out: the API server keeps what it has. The caller holds the page's
// filling.
func (p *slicePage) sliceWithReports(reports map[string]atoll.RowStatus) *enginev1.TargetSlice {
	words, news := rowcodec.NewDictionary(p.dictionaries.status), map[string]string{}
	size := p.bytes + totalLength(p.dictionaries.status)
	for _, r := range p.rows {
		report, ok := reports[r.cluster]
		if !ok || report.UID != r.clusterRows.uid {
			continue
		}
		old, err := rowcodec.DecodeStatus(r.status, report.UID, p.dictionaries.status...)
		if r.status != "" && err == nil && old.UID == report.UID && old.Seq >= report.Seq {
			continue
		}
		if size += largeStatusBytes(report) - largeStatusBytes(old); size > maxBytesOfStatuses {
			size -= largeStatusBytes(report)
			report, _ = atoll.HashLargeStatuses(report)
		}
		news[r.cluster] = rowcodec.EncodeStatus(report, words)
	}
	if len(news) == 0 {
		return nil
	}
	next := p.toSliceObjectWithoutRows()
	next.Status.Rows, next.Status.Words = rowcodec.PruneWords(p.joinStatusLines(news), words.Words())
	return next
}

// largeStatusBytes returns the bytes of the large statuses of a report.
func largeStatusBytes(s atoll.RowStatus) (n int) {
	for _, it := range s.Items {
		if it.HasLargeWholeStatus() {
			n += len(it.ReflectedStatus)
		}
	}
	return n
}

func totalLength(words []string) (n int) {
	for _, w := range words {
		n += len(w)
	}
	return n
}
