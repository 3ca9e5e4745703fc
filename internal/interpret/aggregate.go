package interpret

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
)

// RowItem is one cluster's word about one item.
type RowItem struct {
	Cluster string
	// Reflected status as Reflect gave it; nil when the cluster reported none.
	Reflected json.RawMessage
	// Health that the cluster reported; empty when it has not reported the item.
	Health atoll.Health
	// Reason and Message that the cluster gave for that health.
	Reason, Message string
	// Assigned replicas of a divided item in this cluster.
	Assigned *int64
	// Away: the cluster has no live stream. It is left out of the status, except
	// for addresses, which are kept: silence is not an instruction to stop serving.
	Away bool
	// Stale: what the cluster applied is not the template's present content.
	Stale bool
	// More clusters say the same; Cluster is the first of them by name.
	More int
}

// Now is the marker that Aggregate leaves where a time is to be filled in.
const Now = ""

// Aggregate makes the status that the template is to have of what its clusters
// report. Duplicated, it is the whole status of the reachable cluster that is
// least finished; divided, counts are summed over reachable clusters. Addresses
// are joined. Where a member was told to run fewer replicas than the template
// states (an override, an autoscaler), the ones it was told not to run count as
// there, so that who waits for the template's number does not wait for ever.
//
// observed is the template's generation if every reachable row has applied it, or
// any lower number otherwise. status.observedGeneration becomes observed once
// every reachable member's own controller has seen it too, and never goes back.
//
// The order of rows does not matter. The result is a whole status to be written in
// place of the template's own, whose still valid times it keeps; where a time is
// new it holds Now, which Stamp fills in. ok is false when there is nothing to
// write: the kind has no status that Atoll writes, no reachable cluster reported,
// or the template's status is final.
func Aggregate(template *unstructured.Unstructured, divided bool, rows []RowItem, observed int64) (status map[string]any, ok bool) {
	k := known(template)
	aggregate := k.aggregate
	switch {
	case aggregate != nil:
	case k.generic:
		aggregate = aggregateGeneric
	default:
		return nil, false
	}
	a := newAggregation(template, divided, rows, observed)
	a.kind = k
	return aggregate(a)
}

// Stamp puts now in place of every Now marker of the status' conditions and
// top-level times, and returns whether there was one. It changes status.
func Stamp(status map[string]any, now time.Time) bool {
	at, stamped := now.UTC().Format(time.RFC3339), false
	fill := func(m map[string]any) {
		for _, key := range timeFields {
			if v, ok := m[key].(string); ok && v == Now {
				m[key], stamped = at, true
			}
		}
	}
	fill(status)
	for _, c := range Conditions(status) {
		fill(c)
	}
	return stamped
}

var timeFields = []string{"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "startTime", "completionTime"}

// Equal tells whether two statuses say the same: absent, null, zero and empty are
// one, and so are integers of any type.
func Equal(a, b map[string]any) bool { return same(a, b) }

func same(a, b any) bool {
	if void(a) || void(b) {
		return void(a) && void(b)
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range x {
			if !same(v, y[k]) {
				return false
			}
		}
		for k, v := range y {
			if _, ok := x[k]; !ok && !void(v) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	}
	return scalar(a) == scalar(b)
}

func void(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, e := range v {
			if !void(e) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	s := scalar(v)
	return s == int64(0) || s == "" || s == false
}

func scalar(v any) any {
	if n, ok := number(map[string]any{"": v}, ""); ok {
		return n
	}
	return v
}

// aggregation is what the kinds' aggregate functions work on.
type aggregation struct {
	template *unstructured.Unstructured
	kind     *kind
	old      map[string]any
	divided  bool
	// rows of reachable clusters, and those that are away, in no order.
	rows, away []row
	observed   int64
}

// row is small, and what many rows say alike is there once: there may be 10,000.
type row struct {
	*RowItem
	*reflected
	// reported: the cluster said something of the item's status.
	reported bool
}

// nothing is what a cluster reflects that has not reported.
var nothing = &reflected{}

func newAggregation(template *unstructured.Unstructured, divided bool, items []RowItem, observed int64) *aggregation {
	a := &aggregation{template: template, old: status(template), divided: divided, rows: make([]row, 0, len(items))}
	caughtUp := true
	said := map[string]*reflected{}
	for i := range items {
		item := &items[i]
		r := row{RowItem: item, reflected: read(item.Reflected, said)}
		if r.reported = r.reflected != nil; !r.reported && item.Health == atoll.Healthy {
			r.reflected, r.reported = assumed(template, item)
		}
		if r.reflected == nil {
			r.reflected = nothing
		}
		if item.Away {
			a.away = append(a.away, r)
			continue
		}
		a.rows = append(a.rows, r)
		caughtUp = caughtUp && r.current()
	}
	a.observed = observedBefore(a.old)
	if caughtUp {
		a.observed = max(a.observed, observed)
	}
	return a
}

// observedBefore is the generation that the template's own status tells of; of kinds that tell
// it in conditions alone, the one that these have.
func observedBefore(st map[string]any) int64 {
	n, told := observedOf(st)
	if told {
		return n
	}
	return LatestObserved(st)
}

// LatestObserved is the latest generation that any of the status' conditions tells of; 0 where
// none does.
func LatestObserved(status map[string]any) (n int64) {
	for _, c := range Conditions(status) {
		n = max(n, count(c, "observedGeneration"))
	}
	return n
}

// read what was reflected, each text once; nil for nothing, or what cannot be read.
func read(text json.RawMessage, said map[string]*reflected) *reflected {
	if len(text) == 0 {
		return nil
	}
	if r, known := said[string(text)]; known {
		return r
	}
	r := &reflected{}
	if json.Unmarshal(text, r) != nil {
		r = nil
	}
	said[string(text)] = r
	return r
}

// assumed is the status of a healthy workload whose row had no room to reflect it.
func assumed(template *unstructured.Unstructured, item *RowItem) (*reflected, bool) {
	n, _, ok := Replicas(template)
	if !ok {
		return nil, false
	}
	if item.Assigned != nil {
		n = *item.Assigned
	}
	return &reflected{N: []int64{n, n, n, n, n, n}, F: flagAvailable + flagDone}, true
}

// quiet tells that there is nothing to write: no cluster is reachable, or the
// template has no status yet and what it would get is the status of a cluster that
// has not reported.
func (a *aggregation) quiet() bool {
	if len(a.rows) == 0 {
		return true
	}
	if !void(a.old) {
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

// least finds the least finished reachable row. progress gives numbers of a
// reported row that grow as it gets finished, most telling first.
func (a *aggregation) least(progress func(r row) []int64) row {
	// Rows that say the same, and are as healthy, are as far.
	type saying struct {
		reflected *reflected
		health    atoll.Health
	}
	far := map[saying][]int64{}
	how := func(r row) []int64 {
		s := saying{r.reflected, r.Health}
		p, known := far[s]
		if !known {
			p = progress(r)
			far[s] = p
		}
		return p
	}
	return slices.MinFunc(a.rows, func(x, y row) int {
		if x.reported == y.reported && x.Stale == y.Stale && x.reflected == y.reflected && x.Health == y.Health {
			return cmp.Compare(x.Cluster, y.Cluster)
		}
		return cmp.Or(
			compareBool(x.reported, y.reported),
			compareBool(!x.Stale, !y.Stale),
			compareBool(!x.has(flagLate), !y.has(flagLate)),
			slices.Compare(how(x), how(y)),
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

// copied is the template's status to build upon, for kinds of which Atoll does not
// write all.
func (a *aggregation) copied() map[string]any {
	if a.old == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(a.old)
}

// condition builds one condition of the status, with the times of the template's
// own where they still hold.
func (a *aggregation) condition(c condition, updateTime bool) map[string]any {
	m := map[string]any{"type": c.kind, "status": c.status, "lastTransitionTime": Now}
	if c.reason != "" {
		m["reason"] = c.reason
	}
	if c.message != "" {
		m["message"] = c.message
	}
	if updateTime {
		m["lastUpdateTime"] = Now
	}
	for _, raw := range list(a.old, "conditions") {
		old, _ := raw.(map[string]any)
		if text(old, "type") != c.kind || text(old, "status") != c.status {
			continue
		}
		if t := text(old, "lastTransitionTime"); t != "" {
			m["lastTransitionTime"] = t
		}
		if t := text(old, "lastUpdateTime"); updateTime && t != "" && text(old, "reason") == c.reason {
			m["lastUpdateTime"] = t
		}
	}
	return m
}

// conditions of the row. Their messages are not reflected; but the one that gave the
// row its health is known.
func (r row) conditions() []condition {
	cs := unpackConditions(r.C)
	for i := range cs {
		if r.Message != "" && r.Reason == cs[i].reason && r.Health != atoll.Healthy {
			cs[i].message = "cluster " + r.Cluster + ": " + r.Message
		}
	}
	return cs
}

// standard builds metav1 conditions, whose message is not optional.
func (a *aggregation) standard(cs []condition) []any {
	out := make([]any, 0, len(cs))
	for _, c := range cs {
		m := a.condition(c, false)
		m["message"] = c.message
		if c.hasObserved {
			m["observedGeneration"] = a.observed
		}
		out = append(out, m)
	}
	return out
}

// counted sums or picks counts into a status under their names.
func counted(st map[string]any, names []string, n []int64) {
	for i, name := range names {
		if name != "" && n[i] != 0 {
			st[name] = n[i]
		}
	}
}

// sum of the rows' counts.
func (a *aggregation) sum(width int) []int64 {
	n := make([]int64, width)
	for _, r := range a.rows {
		for i := range n {
			n[i] = atoll.Plus(n[i], atoll.Times(int64(r.More)+1, r.n(i)))
		}
	}
	return n
}

func (r row) all(width int) []int64 {
	n := make([]int64, width)
	for i := range n {
		n[i] = r.n(i)
	}
	return n
}

// every tells whether all reachable rows reported and carry the flag.
func (a *aggregation) every(flag string) bool {
	for _, r := range a.rows {
		if !r.reported || !r.has(flag) {
			return false
		}
	}
	return true
}

// carrying gives the first cluster, by name, whose row carries the flag.
func (a *aggregation) carrying(flag string) (cluster string, ok bool) {
	for _, r := range a.rows {
		if r.has(flag) && (!ok || r.Cluster < cluster) {
			cluster, ok = r.Cluster, true
		}
	}
	return cluster, ok
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
