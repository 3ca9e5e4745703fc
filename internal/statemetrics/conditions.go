package statemetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
)

// labelOther stands for a reason that is not in the vocabulary.
const labelOther = "Other"

// knownReasons are the reasons of the vocabulary.
var knownReasons = func() map[string]bool {
	known := map[string]bool{}
	for _, r := range atoll.Reasons {
		known[string(r.Reason)] = true
	}
	return known
}()

// reasonMetricLabel keeps the number of label values bounded.
func reasonMetricLabel(reason string) string {
	if knownReasons[reason] {
		return reason
	}
	return labelOther
}

// conditionKey labels one series.
type conditionKey struct{ condition, status, reason string }

// countedCondition is a condition as it was counted. Its start is set while it is a wait.
type countedCondition struct {
	key   conditionKey
	start int64
	waits bool
}

// conditionTable counts the conditions of the objects of one kind.
type conditionTable struct {
	expected map[string]metav1.ConditionStatus
	objects  map[string][]countedCondition
	counts   map[conditionKey]int
	waits    map[conditionKey]*waitAges // without status

	total, oldest *prometheus.Desc
}

func newConditionTable(expected map[string]metav1.ConditionStatus, total, oldest metrictable.Definition) *conditionTable {
	return &conditionTable{
		expected: expected, objects: map[string][]countedCondition{}, counts: map[conditionKey]int{}, waits: map[conditionKey]*waitAges{},
		total: total.NewDesc(), oldest: oldest.NewDesc(),
	}
}

// update counts the conditions of an object in place of the former ones.
func (t *conditionTable) update(object string, conditions []metav1.Condition) {
	for _, c := range t.objects[object] {
		t.countCondition(c, -1)
	}
	counted := t.objects[object][:0]
	for _, c := range conditions {
		expected, known := t.expected[c.Type]
		if !known {
			continue
		}
		one := countedCondition{conditionKey{c.Type, statusMetricLabel(c.Status), reasonMetricLabel(c.Reason)}, c.LastTransitionTime.Unix(), c.Status != expected && !isNormalReason(c.Reason)}
		t.countCondition(one, 1)
		counted = append(counted, one)
	}
	if t.objects[object] = counted; len(counted) == 0 {
		delete(t.objects, object)
	}
}

// isNormalReason reports whether a reason is known and nothing has to be done for it, or whether the
// condition has no value yet: another condition reports the wait.
func isNormalReason(reason string) bool {
	return reason == string(atoll.ReasonNotDetermined) || knownReasons[reason] && atoll.ActorOf(atoll.Reason(reason)) == atoll.ActorNone
}

func statusMetricLabel(s metav1.ConditionStatus) string {
	switch s {
	case metav1.ConditionTrue, metav1.ConditionFalse:
		return string(s)
	}
	return string(metav1.ConditionUnknown)
}

func (t *conditionTable) countCondition(c countedCondition, n int) {
	t.counts[c.key] += n
	if !c.waits {
		return
	}
	key := conditionKey{condition: c.key.condition, reason: c.key.reason}
	if t.waits[key] == nil {
		t.waits[key] = newWaitAges()
	}
	if n > 0 {
		t.waits[key].addStart(c.start)
	} else {
		t.waits[key].removeStart(c.start)
	}
}

func (t *conditionTable) collectGauges(out chan<- prometheus.Metric, now time.Time) {
	for key, n := range t.counts {
		out <- prometheus.MustNewConstMetric(t.total, prometheus.GaugeValue, float64(n), key.condition, key.status, key.reason)
	}
	for key, ages := range t.waits {
		out <- prometheus.MustNewConstMetric(t.oldest, prometheus.GaugeValue, ages.oldestAge(now), key.condition, key.reason)
	}
}

// oldestAge returns the age of the oldest wait in seconds, 0 when nothing waits.
func (w *waitAges) oldestAge(now time.Time) float64 {
	start, waits := w.oldestStart()
	if !waits {
		return 0
	}
	return max(0, now.Sub(time.Unix(start, 0)).Seconds())
}
