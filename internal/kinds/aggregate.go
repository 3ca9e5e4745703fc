package kinds

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// RowItem is the report of one cluster about one item.
type RowItem struct {
	Cluster string
	// Reflected status as Reflect returns it; nil where the cluster reported none.
	Reflected json.RawMessage
	// Health that the cluster reported; empty where it has not reported the item.
	Health atoll.Health
	// Reason and Message of that health.
	Reason, Message string
	// Assigned replicas of a divided item in this cluster.
	Assigned *int64
	// Disconnected: the cluster has no live stream. The status leaves it out, except for its
	// addresses: silence is not an instruction to stop serving.
	Disconnected bool
	// Stale: the cluster has applied other content than the template's present one.
	Stale bool
	// EqualClusters is the number of further clusters with the same report. Cluster is the first
	// of them by name.
	EqualClusters int
}

// TimePlaceholder marks a time that FillTimePlaceholders sets.
const TimePlaceholder = ""

// AggregateStatus returns the status of the template from the reports of its clusters. An item
// that is duplicated gets the whole status of the least finished connected cluster. An item that
// is divided gets the sums of the counts of all connected clusters. Addresses are joined.
// Replicas that an override or an autoscaler takes from a member count as present, so that a
// client that waits for the template's number does not wait for ever.
//
// observed is the template's generation if every connected row has applied it, or any lower
// number otherwise. status.observedGeneration becomes observed once the controller of every
// connected member has observed it too, and never decreases.
//
// notAfter bounds the times that clusters report, in Unix seconds. Later ones are ignored, so that a
// member whose clock is wrong cannot hide the times of the others. 0: no bound but that of the
// format.
//
// The order of rows does not matter. The result replaces the template's status. It keeps the
// times that are still valid, and has TimePlaceholder where a time is new; see FillTimePlaceholders. ok is
// false when there is nothing to write: Atoll writes no status of the kind, no connected cluster
// reported, or the template's status is final.
func AggregateStatus(template *unstructured.Unstructured, divided bool, rows []RowItem, observed, notAfter int64) (status map[string]any, ok bool) {
	k := traitsOf(template)
	aggregate := k.aggregate
	switch {
	case aggregate != nil:
	case k.usesGenericStatus:
		aggregate = aggregateGeneric
	default:
		return nil, false
	}
	a := newAggregation(template, divided, rows, observed)
	a.traits, a.notAfter = k, notAfter
	return aggregate(a)
}

// FillTimePlaceholders replaces every TimePlaceholder in the conditions and the top-level times of the
// status, in place. It reports whether there was one.
func FillTimePlaceholders(status map[string]any, now time.Time) bool {
	at, stamped := now.UTC().Format(time.RFC3339), false
	fill := func(m map[string]any) {
		for _, key := range timeFields {
			if v, ok := m[key].(string); ok && v == TimePlaceholder {
				m[key], stamped = at, true
			}
		}
	}
	fill(status)
	for _, c := range StatusAndParentConditions(status) {
		fill(c)
	}
	return stamped
}

var timeFields = []string{"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "startTime", "completionTime"}

// EqualStatusesIgnoringEmpty reports whether two statuses are equal. Absent, null, zero and empty values are equal,
// and so are integers of any type.
func EqualStatusesIgnoringEmpty(a, b map[string]any) bool { return equalValuesIgnoringEmpty(a, b) }

func equalValuesIgnoringEmpty(a, b any) bool {
	if isEmptyValue(a) || isEmptyValue(b) {
		return isEmptyValue(a) && isEmptyValue(b)
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && equalMapsIgnoringEmpty(x, y)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equalValuesIgnoringEmpty)
	}
	return normalizeScalar(a) == normalizeScalar(b)
}

func equalMapsIgnoringEmpty(x, y map[string]any) bool {
	for k, v := range x {
		if !equalValuesIgnoringEmpty(v, y[k]) {
			return false
		}
	}
	for k, v := range y {
		if _, ok := x[k]; !ok && !isEmptyValue(v) {
			return false
		}
	}
	return true
}

func isEmptyValue(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, e := range v {
			if !isEmptyValue(e) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	s := normalizeScalar(v)
	return s == int64(0) || s == "" || s == false
}

func normalizeScalar(v any) any {
	if n, ok := integerField(map[string]any{"": v}, ""); ok {
		return n
	}
	return v
}

// statusAggregation is the input of a kind's aggregate function.
type statusAggregation struct {
	template       *unstructured.Unstructured
	traits         *kindTraits
	templateStatus map[string]any
	divided        bool
	// rows of connected clusters and of disconnected ones, in no order.
	rows, disconnected []clusterRow
	observed           int64
	notAfter           int64 // bounds the times of rows; 0: no bound
}

// plausibleTime returns a time that was reported or stored; 0 where it is not plausible.
func (a *statusAggregation) plausibleTime(unix int64) int64 {
	if unix < 0 || unix > atoll.MaxUnixSeconds || a.notAfter != 0 && unix > a.notAfter {
		return 0
	}
	return unix
}

// clusterRow is small, and equal reports are decoded once: there can be 10,000 rows.
type clusterRow struct {
	*RowItem
	*reflectedStatus
	// reported: the cluster has reported the item's status.
	reported bool
}

// emptyReflection stands for a cluster without a report.
var emptyReflection = &reflectedStatus{}

func newAggregation(template *unstructured.Unstructured, divided bool, items []RowItem, observed int64) *statusAggregation {
	a := &statusAggregation{template: template, templateStatus: statusOf(template), divided: divided, rows: make([]clusterRow, 0, len(items))}
	caughtUp := true
	decoded := map[string]*reflectedStatus{}
	for i := range items {
		item := &items[i]
		r := clusterRow{RowItem: item, reflectedStatus: decodeReflected(item.Reflected, decoded)}
		if r.reported = r.reflectedStatus != nil; !r.reported && item.Health == atoll.Healthy {
			r.reflectedStatus, r.reported = assumeHealthyStatus(template, item)
		}
		if r.reflectedStatus == nil {
			r.reflectedStatus = emptyReflection
		}
		if item.Disconnected {
			a.disconnected = append(a.disconnected, r)
			continue
		}
		a.rows = append(a.rows, r)
		caughtUp = caughtUp && r.isCurrent()
	}
	a.observed = lastObservedGeneration(a.templateStatus)
	if caughtUp {
		a.observed = max(a.observed, observed)
	}
	return a
}

// lastObservedGeneration returns the observed generation at the top of the status, or else the
// latest of its conditions.
func lastObservedGeneration(st map[string]any) int64 {
	if n, ok := observedGenerationOf(st); ok {
		return n
	}
	return LatestConditionGeneration(st)
}

// LatestConditionGeneration returns the latest observedGeneration of the conditions; 0 where
// none has one.
func LatestConditionGeneration(status map[string]any) (n int64) {
	for _, c := range StatusAndParentConditions(status) {
		n = max(n, countField(c, "observedGeneration"))
	}
	return n
}

// decodeReflected decodes each text once; nil for no text, or one that cannot be decoded.
func decodeReflected(text json.RawMessage, decoded map[string]*reflectedStatus) *reflectedStatus {
	if len(text) == 0 {
		return nil
	}
	if r, known := decoded[string(text)]; known {
		return r
	}
	r := &reflectedStatus{}
	if json.Unmarshal(text, r) != nil {
		r = nil
	}
	decoded[string(text)] = r
	return r
}

// assumeHealthyStatus returns the status of a healthy workload whose row had no space for it.
func assumeHealthyStatus(template *unstructured.Unstructured, item *RowItem) (*reflectedStatus, bool) {
	n, _, ok := ReplicasOf(template)
	if !ok {
		return nil, false
	}
	if item.Assigned != nil {
		n = *item.Assigned
	}
	return &reflectedStatus{N: []int64{n, n, n, n, n, n}, F: flagAvailable + flagDone}, true
}

// hasNothingToWrite reports that no cluster is connected, or that the template has no status yet
// and the clusters that decide it have not reported.
func (a *statusAggregation) hasNothingToWrite() bool {
	if len(a.rows) == 0 {
		return true
	}
	if !isEmptyValue(a.templateStatus) {
		return false
	}
	reported := 0
	for _, r := range a.rows {
		if r.reported {
			reported++
		}
	}
	return reported == 0 || !a.divided && reported < len(a.rows)
}

// leastFinishedRow returns the least finished connected row. progress returns numbers of a reported
// row that grow as it gets finished, the most significant first.
func (a *statusAggregation) leastFinishedRow(progress func(r clusterRow) []int64) clusterRow {
	// Rows with equal reports and equal health have equal progress.
	type report struct {
		reflected *reflectedStatus
		health    atoll.Health
	}
	progressOf := map[report][]int64{}
	cached := func(r clusterRow) []int64 {
		s := report{r.reflectedStatus, r.Health}
		p, known := progressOf[s]
		if !known {
			p = progress(r)
			progressOf[s] = p
		}
		return p
	}
	return slices.MinFunc(a.rows, func(x, y clusterRow) int {
		if x.reported == y.reported && x.Stale == y.Stale && x.reflectedStatus == y.reflectedStatus && x.Health == y.Health {
			return cmp.Compare(x.Cluster, y.Cluster)
		}
		return cmp.Or(
			compareBool(x.reported, y.reported),
			compareBool(!x.Stale, !y.Stale),
			compareBool(!x.hasFlag(flagOutdated), !y.hasFlag(flagOutdated)),
			slices.Compare(cached(x), cached(y)),
			cmp.Compare(x.Cluster, y.Cluster),
		)
	})
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

var healthRank = map[atoll.Health]int64{
	atoll.Degraded: 0, atoll.Unknown: 1, "": 1, atoll.Progressing: 2, atoll.Suspended: 3, atoll.Healthy: 4,
}

// copyTemplateStatus copies the template's status, for kinds of which Atoll writes a part.
func (a *statusAggregation) copyTemplateStatus() map[string]any {
	if a.templateStatus == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(a.templateStatus)
}

// buildCondition builds a condition with the times of the template's own where they still hold.
func (a *statusAggregation) buildCondition(c condition, updateTime bool) map[string]any {
	m := map[string]any{"type": c.conditionType, "status": c.status, "lastTransitionTime": TimePlaceholder}
	if c.reason != "" {
		m["reason"] = c.reason
	}
	if c.message != "" {
		m["message"] = c.message
	}
	if updateTime {
		m["lastUpdateTime"] = TimePlaceholder
	}
	for _, raw := range listField(a.templateStatus, "conditions") {
		old, _ := raw.(map[string]any)
		if stringField(old, "type") != c.conditionType || stringField(old, "status") != c.status {
			continue
		}
		if t := stringField(old, "lastTransitionTime"); t != "" {
			m["lastTransitionTime"] = t
		}
		if t := stringField(old, "lastUpdateTime"); updateTime && t != "" && stringField(old, "reason") == c.reason {
			m["lastUpdateTime"] = t
		}
	}
	return m
}

// conditionsWithMessages returns the row's conditions. Rows carry no messages of conditions,
// except for the one that decided the row's health.
func (r clusterRow) conditionsWithMessages() []condition {
	cs := unpackConditions(r.C)
	for i := range cs {
		if r.Message != "" && r.Reason == cs[i].reason && r.Health != atoll.Healthy {
			cs[i].message = "cluster " + r.Cluster + ": " + r.Message
		}
	}
	return cs
}

// buildStandardConditions builds metav1 conditions, whose message is required.
func (a *statusAggregation) buildStandardConditions(cs []condition) []any {
	out := make([]any, 0, len(cs))
	for _, c := range cs {
		m := a.buildCondition(c, false)
		m["message"] = c.message
		if c.hasObserved {
			m["observedGeneration"] = a.observed
		}
		out = append(out, m)
	}
	return out
}

// setNonZeroCounts writes counts other than zero under their names.
func setNonZeroCounts(st map[string]any, names []string, n []int64) {
	for i, name := range names {
		if name != "" && n[i] != 0 {
			st[name] = n[i]
		}
	}
}

// sumCounts sums the first width counts of the rows.
func (a *statusAggregation) sumCounts(width int) []int64 {
	n := make([]int64, width)
	for _, r := range a.rows {
		for i := range n {
			n[i] = quantity.AddCapped(n[i], quantity.MultiplyCapped(int64(r.EqualClusters)+1, r.countAt(i)))
		}
	}
	return n
}

func (r clusterRow) firstCounts(width int) []int64 {
	n := make([]int64, width)
	for i := range n {
		n[i] = r.countAt(i)
	}
	return n
}

// allRowsHave reports whether all connected rows are reported and have the flag.
func (a *statusAggregation) allRowsHave(flag string) bool {
	for _, r := range a.rows {
		if !r.reported || !r.hasFlag(flag) {
			return false
		}
	}
	return true
}

// firstClusterWith returns the first cluster, by name, whose row has the flag.
func (a *statusAggregation) firstClusterWith(flag string) (cluster string, ok bool) {
	for _, r := range a.rows {
		if r.hasFlag(flag) && (!ok || r.Cluster < cluster) {
			cluster, ok = r.Cluster, true
		}
	}
	return cluster, ok
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
