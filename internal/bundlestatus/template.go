package bundlestatus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
)

// templateMemo is what is remembered of a template's status between two looks.
type templateMemo struct {
	due writeSchedule
	// stuck is a status that the server did not take as it is (its schema lacks a
	// field, or refuses it), and the template's version at which that was found. The
	// same is not sent twice.
	stuck   map[string]any
	version string
	// states stores Intent's answer for a version of template and item.
	statesKey   statesKey
	states      bool
	lastWritten settledReport
	joined      joinMemo
}

// settledReport is what of a template was last found to be in its status already, so that
// in an application of many objects those of which nothing changed cost little.
type settledReport struct {
	template *unstructured.Unstructured
	item     *atoll.Item
	rows     []kinds.RowItem
	observed int64
}

// fewSaid rows are remembered at most.
const fewSaid = 8

func (s *settledReport) recordSettled(l templateState, rows []kinds.RowItem, observed int64) {
	if *s = (settledReport{}); len(rows) <= fewSaid {
		*s = settledReport{l.template, l.item, rows, observed}
	}
}

func (s *settledReport) matchesReport(l templateState, rows []kinds.RowItem, observed int64) bool {
	return s.template == l.template && s.item == l.item && s.observed == observed && slices.EqualFunc(s.rows, rows, func(a, b kinds.RowItem) bool {
		return a.Cluster == b.Cluster && a.EqualClusters == b.EqualClusters && sameReport(a, b)
	})
}

// sameReport reports whether clusters report the same of an item.
func sameReport(a, b kinds.RowItem) bool {
	assigned := a.Assigned == b.Assigned || a.Assigned != nil && b.Assigned != nil && *a.Assigned == *b.Assigned
	return assigned && bytes.Equal(a.Reflected, b.Reflected) &&
		a.Health == b.Health && a.Reason == b.Reason && a.Message == b.Message && a.Disconnected == b.Disconnected && a.Stale == b.Stale
}

type statesKey struct{ version, hash, source string }

// writeTemplateStatuses writes the status of every template of the Bundle whose status is
// due. One that fails does not keep the others from theirs.
func (r *BundleReconciler) writeTemplateStatuses(ctx context.Context, s *bundleSnapshot, m *bundleMemo) error {
	if s.content == nil || s.isDeleting() {
		return nil
	}
	reports, known := itemReports(s.rows), script.NewInterpreters(s.content.Interpreters)
	var single *ungroupedRows // rows one by one; nil before they are read
	live := map[string]*templateMemo{}
	var errs []error
	for i := range s.content.Items {
		item := &s.content.Items[i]
		joins := known.JoinsStatuses(schema.FromAPIVersionAndKind(item.APIVersion, item.Key.Kind))
		t := r.templateIfStatusAuthor(s, item, joins)
		if t == nil {
			continue
		}
		tm := m.templates[item.UID]
		if tm == nil {
			tm = &templateMemo{}
		}
		live[item.UID] = tm
		look := templateState{item: item, template: t, rows: s.rows, reports: reports[item.Key], memo: tm, interpreters: known, joins: joins}
		if look.apart = joins || kinds.AggregatedStatusNamesClusters(t, s.total); look.apart {
			if single == nil {
				single = r.listUngroupedRows(s.uid)
			}
			look.rows, look.reports = single.rows, single.reports[item.Key]
		}
		if err := r.writeTemplateStatus(ctx, s, m, look); err != nil {
			errs = append(errs, err)
		}
	}
	m.templates = live
	r.dropOldJoinFailures(m)
	return errors.Join(errs...)
}

// templateIfStatusAuthor returns the template of an item if the Bundle is to write its status, or nil.
// joins: a script joins what clusters report of the kind.
func (r *BundleReconciler) templateIfStatusAuthor(s *bundleSnapshot, item *atoll.Item, joins bool) *unstructured.Unstructured {
	if !joins && !kinds.HasAggregatedStatus(schema.GroupKind{Group: item.Key.Group, Kind: item.Key.Kind}) || !r.index.isStatusAuthor(item.Key, s.uid) {
		return nil
	}
	t, ok := r.Templates.Get(item.Key)
	if !ok || string(t.GetUID()) != item.UID || t.GetDeletionTimestamp() != nil {
		return nil
	}
	return t
}

// itemReports sorts what rows report by item and cluster.
func itemReports(rows []Row) map[atoll.ItemKey]map[string]*atoll.ItemStatus {
	out := map[atoll.ItemKey]map[string]*atoll.ItemStatus{}
	for _, row := range rows {
		if row.Status == nil {
			continue
		}
		for i := range row.Status.Items {
			it := &row.Status.Items[i]
			if out[it.Key] == nil {
				out[it.Key] = map[string]*atoll.ItemStatus{}
			}
			out[it.Key][row.Cluster] = it
		}
	}
	return out
}

// ungroupedRows is rows of which each stands for itself.
type ungroupedRows struct {
	rows    []Row
	reports map[atoll.ItemKey]map[string]*atoll.ItemStatus
}

// listUngroupedRows lists the rows of a Bundle one by one, for a status that a script joins from
// every cluster's report. It costs the Bundle's rows at each look.
func (r *BundleReconciler) listUngroupedRows(uid string) *ungroupedRows {
	all := r.listRowsOf(uid, func(Row) bool { return true })
	return &ungroupedRows{all, itemReports(all)}
}

// templateState is one template, its status and its memory.
type templateState struct {
	item         *atoll.Item
	template     *unstructured.Unstructured
	rows         []Row
	reports      map[string]*atoll.ItemStatus
	memo         *templateMemo
	interpreters script.Interpreters
	// joins: a script joins what clusters report.
	joins bool
	// apart: each row stands for itself.
	apart bool
}

func (r *BundleReconciler) writeTemplateStatus(ctx context.Context, s *bundleSnapshot, m *bundleMemo, l templateState) error {
	if isNowhere, err := r.writeNowhereStatus(ctx, s, m, l); isNowhere || err != nil {
		return err
	}
	rows, observed, done := collectRowItems(s, l, r.isItemStated(l))
	w := itemReport{rows: rows, observed: observed}
	if l.joins {
		w.question = l.interpreters.AggregationHash(l.template, rows, observed)
	}
	if l.isStatusSettled(w) {
		return nil
	}
	next, ok, err := r.nextTemplateStatus(l, w)
	if err != nil {
		l.markStatusSettled(w)
		r.recordJoinFailure(m, l.item.UID, err, time.Now())
		r.recordRefusal(m, refusal{l.item.Key, atoll.ReasonInterpreterFailed}, err.Error(), time.Now())
		return nil
	}
	r.clearJoinFailure(m, l.item.UID)
	old, _ := l.template.Object["status"].(map[string]any)
	switch {
	case !ok:
		l.markStatusSettled(w)
		return nil
	case kinds.EqualStatusesIgnoringEmpty(old, next), l.memo.wasSentInVain(l.template, next):
		l.markStatusSettled(w, l.template.GetResourceVersion())
		return nil
	}
	return r.sendTemplateStatus(ctx, s, m, l, change{w, old, next, done})
}

// change of a template's status. done: every reachable cluster is healthy at what the template
// states.
type change struct {
	itemReport
	old, next map[string]any
	done      bool
}

// sendTemplateStatus sends a template its status, if it is due.
func (r *BundleReconciler) sendTemplateStatus(ctx context.Context, s *bundleSnapshot, m *bundleMemo, l templateState, c change) error {
	now, next := time.Now(), runtime.DeepCopyJSON(c.next)
	says := c.done || isStatusNews(c.old, next)
	if !says {
		if left := l.memo.due.nextWriteDelay(r.upkeep, templateWriteInterval(s.total), now); left > 0 {
			m.wakeAfter(left)
			return nil
		}
	}
	kinds.FillTimePlaceholders(next, now)
	stored, err := r.Writer.WriteTemplateStatus(ctx, l.template, next)
	switch {
	case err == nil:
		l.memo.due = writeSchedule{written: now, significant: says}
		r.countWrite(objectTemplate, says)
		l.memo.storeAlteredStatus(stored, next, c.next)
		if c.question != "" {
			l.markStatusSettled(c.itemReport, l.template.GetResourceVersion(), stored.GetResourceVersion())
		}
		return nil
	case errors.Is(err, ErrNoStatus), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		if !errors.Is(err, ErrNoStatus) {
			r.Log.Warn("a template cannot take the status that its clusters report", "template", l.item.Key.String(), "err", err)
		}
		l.memo.stuck, l.memo.version = c.next, l.template.GetResourceVersion()
		l.markStatusSettled(c.itemReport, l.template.GetResourceVersion())
		return nil
	case apierrors.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("write the status of template %s: %w", l.item.Key, err)
}

// isItemStated reports whether the item is what the template states now.
func (r *BundleReconciler) isItemStated(l templateState) bool {
	key := statesKey{l.template.GetResourceVersion(), l.item.Hash, l.item.SourceFingerprint}
	if l.memo.statesKey != key {
		l.memo.statesKey, l.memo.states = key, r.Intent.StatesItem(l.template, l.item)
	}
	return l.memo.states
}

// wasSentInVain reports whether the same status was sent before, in vain.
func (m *templateMemo) wasSentInVain(t *unstructured.Unstructured, next map[string]any) bool {
	return m.stuck != nil && m.version == t.GetResourceVersion() && kinds.EqualStatusesIgnoringEmpty(m.stuck, next)
}

// storeAlteredStatus stores a status that the server stored otherwise than it was sent, as it was
// computed.
func (m *templateMemo) storeAlteredStatus(stored *unstructured.Unstructured, sent, computed map[string]any) {
	m.stuck, m.version = nil, ""
	got, _ := stored.Object["status"].(map[string]any)
	if !kinds.EqualStatusesIgnoringEmpty(got, sent) {
		m.stuck, m.version = computed, stored.GetResourceVersion()
	}
}

// collectRowItems calls back with the item in every row that is to have it; observed is the
// template's generation if every reachable row has applied it; done reports whether
// every reachable one is healthy at that.
func collectRowItems(s *bundleSnapshot, l templateState, states bool) (rows []kinds.RowItem, observed int64, done bool) {
	rows, observed, done = make([]kinds.RowItem, 0, len(l.rows)), l.template.GetGeneration(), true
	for _, row := range l.rows {
		if row.Spec.Phase != atoll.RowActive {
			if row.Spec.Phase == atoll.RowPending {
				observed, done = 0, false
			}
			continue
		}
		ri := rowItem(row, l.item, l.reports[row.Cluster])
		ri.EqualClusters = row.More
		v := s.contents[row.Spec.Revision][l.item.Key]
		ri.Stale = ri.Stale || !states || v != version{l.item.UID, l.item.Hash}
		if !ri.Disconnected {
			if ri.Stale {
				observed = 0
			}
			done = done && !ri.Stale && ri.Health == atoll.Healthy
		}
		// Rows that differ in other items may be equal in this one.
		if i := indexOfEqualReport(rows, ri); i >= 0 && !l.apart {
			rows[i].EqualClusters += ri.EqualClusters + 1
			continue
		}
		rows = append(rows, ri)
	}
	return rows, observed, done
}

// indexOfEqualReport returns which of the first rows reports the same of an item; -1: none does.
func indexOfEqualReport(rows []kinds.RowItem, ri kinds.RowItem) int {
	return slices.IndexFunc(rows[:min(len(rows), fewSaid)], func(o kinds.RowItem) bool { return sameReport(o, ri) })
}

// hasOtherContent reports whether the cluster reports that the object does not have the item's content.
func hasOtherContent(report *atoll.ItemStatus) bool { return report.Error || report.Drift != nil }

// rowItem is one row's word about an item; report is nil where the row does not
// list it. Stale is true if the row's revision of the item is not applied.
func rowItem(row Row, item *atoll.Item, report *atoll.ItemStatus) kinds.RowItem {
	ri := kinds.RowItem{Cluster: row.Cluster, Disconnected: !row.Reachable}
	if n, ok := row.Spec.Assigned[item.Key.String()]; ok && item.Divided {
		ri.Assigned = &n
	}
	st := row.Status
	current := st != nil && st.Generation == row.Spec.Generation
	applied := current && st.HasTriedItems()
	switch {
	case report != nil:
		ri.Reflected, ri.Health = report.ReflectedStatus, report.Health
		ri.Reason, ri.Message = string(report.Reason), report.Message
		ri.Stale = !applied || hasOtherContent(report)
	case applied && st.UnlistedNotReady > 0:
		ri.Health = atoll.Unknown
	case applied && item.State != atoll.ItemRemovalHeld:
		ri.Health = atoll.Healthy
	default:
		ri.Stale = true
	}
	return ri
}

// isStatusNews reports whether a status is news in kind: its first one, another
// generation observed, a condition or a phase turned, an address.
func isStatusNews(old, next map[string]any) bool {
	if len(old) == 0 || kinds.EqualStatusesIgnoringEmpty(old, nil) {
		return true
	}
	return !reflect.DeepEqual(statusSummary(old), statusSummary(next))
}

func statusSummary(st map[string]any) map[string]any {
	conditions := map[string][]any{}
	out := map[string]any{"conditions": conditions}
	for _, key := range []string{"observedGeneration", "phase", "loadBalancer", "startTime"} {
		if v, ok := st[key]; ok {
			out[key] = v
		}
	}
	for _, c := range kinds.StatusAndParentConditions(st) {
		kind := fmt.Sprint(c["type"])
		conditions[kind] = append(conditions[kind], c["status"])
	}
	return out
}
