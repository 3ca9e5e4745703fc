package state

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// WriteStatuses writes reports of one Bundle's rows, by cluster UID. A report for a
// row that is gone, and one whose seq is not above the stored one's, is dropped. On
// conflict the slice is read again and what is still due is written. One update per
// slice that holds a changed row.
func (t *Rows) WriteStatuses(ctx context.Context, bundleUID string, reports map[string]atoll.RowStatus) error {
	byPage := map[*page]map[string]atoll.RowStatus{}
	t.mu.RLock()
	for uid, report := range reports {
		r := t.byMember[uid].of(bundleUID)
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
		if err := t.writeStatus(ctx, p, reports); err != nil {
			return err
		}
	}
	return nil
}

// of gives the member's row of a Bundle, nil without one.
func (m *memberRows) of(bundle string) *row {
	if m == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(m.rows, bundle, byBundleUID); ok {
		return m.rows[i]
	}
	return nil
}

func (t *Rows) writeStatus(ctx context.Context, p *page, reports map[string]atoll.RowStatus) error {
	for {
		p.filling.Lock()
		next := p.withReports(reports)
		p.filling.Unlock()
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

// withReports gives the page's slice with the reports, by cluster name, that are news
// to it, and without statuses of rows that are gone; nil when that changes nothing.
// Specs are left out: the API server keeps what it has. The caller holds the page's
// filling.
func (p *page) withReports(reports map[string]atoll.RowStatus) *enginev1.TargetSlice {
	words, news := atoll.NewWords(p.dict.status), map[string]string{}
	for _, r := range p.rows {
		report, ok := reports[r.cluster]
		if !ok || report.UID != r.member.uid {
			continue
		}
		old, err := atoll.ParseRowStatus(r.status, report.UID, p.dict.status...)
		if r.status != "" && err == nil && old.UID == report.UID && old.Seq >= report.Seq {
			continue
		}
		news[r.cluster] = report.EncodeWith(words)
	}
	if len(news) == 0 {
		return nil
	}
	next := p.slice()
	next.Status.Rows, next.Status.Words = atoll.PruneWords(p.statuses(news), words.List())
	return next
}
