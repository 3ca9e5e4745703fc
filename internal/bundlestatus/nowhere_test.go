package bundlestatus

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// readAvailable returns the replicas, the observed generation and the condition Available of the template.
func (m *memory) readAvailable() (replicas, observed int64, status, reason any) {
	st := m.webStatus()
	replicas, _ = st["replicas"].(int64)
	observed, _ = st["observedGeneration"].(int64)
	conditions, _ := st["conditions"].([]any)
	for _, raw := range conditions {
		if c, _ := raw.(map[string]any); c["type"] == "Available" {
			status, reason = c["status"], c["reason"]
		}
	}
	return replicas, observed, status, reason
}

// A template that no cluster is to hold says so once that has lasted, and has its clusters' status again when it is placed. A
// copy that is on its way is no reason to say so.
func TestATemplateThatIsNowhereSaysSo(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply()
		step(unplacedAfter - time.Second)
		if m.webStatus() != nil {
			t.Errorf("it may be placed in a moment: %v", m.webStatus())
		}
		step(time.Minute)
		if n, observed, status, reason := m.readAvailable(); n != 0 || observed != 1 || status != "False" || reason != "NoClusterFits" {
			t.Errorf("nowhere: %v", m.webStatus())
		}
		if n := m.countWrites("template"); n != 1 {
			t.Errorf("%d writes of the template's status", n)
		}
		m.setRow("b", "a", func(r *state.Row) { r.Spec.Revision = "b-r1" })
		m.reportAvailable("a", 2)
		step(time.Minute)
		if n, _, status, _ := m.readAvailable(); n != 2 || status != "True" {
			t.Errorf("placed: %v", m.webStatus())
		}
		m.setRow("b", "a", func(r *state.Row) { r.Spec.Phase = atoll.RowLeaving })
		step(time.Hour)
		if n, _, status, _ := m.readAvailable(); n != 2 || status != "True" {
			t.Errorf("it waits for its replacement: %v", m.webStatus())
		}
		m.setStream("a", false)
		m.setReady("a", metav1.ConditionUnknown)
		m.setRow("b", "a", func(r *state.Row) { r.Spec.Phase = atoll.RowRemoving })
		step(time.Hour)
		if n, _, status, _ := m.readAvailable(); n != 2 || status != "True" {
			t.Errorf("its copy may run in the disconnected cluster: %v", m.webStatus())
		}
		m.setStream("a", true)
		m.setReady("a", metav1.ConditionTrue)
		step(time.Minute)
		if n, observed, status, reason := m.readAvailable(); n != 0 || observed != 1 || status != "False" || reason != "NoClusterFits" {
			t.Errorf("removed: %v", m.webStatus())
		}
	})
}
