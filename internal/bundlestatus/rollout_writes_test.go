package bundlestatus

import (
	"fmt"
	"testing"
	"time"

	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/state"
)

// A change that takes four turns costs writes of status by its time, and not by its turns: one an interval, and those of its
// beginning and its end.
func TestWritesOfADefaultRollout(t *testing.T) {
	const clusters, turn = 100, 25
	m := newMemory()
	names := make([]string, clusters)
	for i := range names {
		names[i] = fmt.Sprintf("c%03d", i)
		m.addCluster(names[i])
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply(names...)
		for _, c := range names {
			m.reportAvailable(c, 2)
		}
		step(time.Minute)
		m.countWrites("bundle")
		m.countWrites("template")
		edited := webTemplate()
		edited.SetGeneration(2)
		edited.SetLabels(map[string]string{"content": "h2"})
		m.setTemplate(edited)
		rev, began := m.cutRevision("b", webContent("h2")), time.Now()
		for at := 0; at < clusters; at += turn {
			for _, c := range names[at : at+turn] {
				m.setRow("b", c, func(r *state.Row) {
					r.Spec.Revision, r.Spec.MovedAt = rev, time.Now().Unix()
					r.Spec.Generation++
				})
			}
			step(time.Second)
			for _, available := range []int64{0, 1, 2} {
				for _, c := range names[at : at+turn] {
					m.reportAvailable(c, available)
					step(40 * time.Millisecond)
				}
			}
			if at == 0 {
				if r := m.getBundle().Status.Rollout; r == nil || r.Stages[0].Waiting != clusters-turn {
					t.Errorf("after the first turn the status of the rollout is %+v", r)
				}
			}
		}
		took := time.Since(began)
		step(time.Minute)
		if st := m.getBundle().Status; st.Rollout != nil || st.WaitsFor != "" || st.Clusters.Summary != "100/100" {
			t.Errorf("the status in the end: %+v", st)
		}
		for object, most := range map[string]int{"bundle": 2 + int(took/pace.StatusWriteInterval), "template": 2 + int(took/templateWriteInterval(clusters))} {
			n := m.countWrites(object)
			t.Logf("%d writes of the status of the %s in %s, want at most %d", n, object, took, most)
			if n > most {
				t.Errorf("%d writes of the status of the %s in %s, want at most %d", n, object, took, most)
			}
		}
	})
}
