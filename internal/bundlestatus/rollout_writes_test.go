package bundlestatus

import (
	"fmt"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
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

// Clusters that fail and recover by turns cost no write each: that a person must act is written at once, and that it is over
// with the counts.
func TestWritesOfFlappingClusters(t *testing.T) {
	m := newMemory()
	names := []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}
	for _, c := range names {
		m.addCluster(c)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply(names...)
		for _, c := range names {
			m.reportAvailable(c, 2)
		}
		step(time.Minute)
		rev := m.cutRevision("b", webContent("h2"))
		report := func(c string, st atoll.RowState) {
			m.setRow("b", c, func(r *state.Row) {
				r.Spec.Revision = rev
				r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: st, Applied: true, Total: 1, Since: time.Now().Unix()}
			})
		}
		report("c0", atoll.RowDegraded)
		report("c1", atoll.RowDegraded)
		step(time.Minute)
		if r := m.getBundle().Status.Rollout; r == nil || r.Reason != string(atoll.ReasonTooManyUnhealthy) {
			t.Errorf("the status of the rollout is %+v", r)
		}
		m.countWrites("bundle")
		const flaps = 120
		began := time.Now()
		for i := range flaps {
			report("c1", []atoll.RowState{atoll.RowProgressing, atoll.RowDegraded}[i%2])
			step(time.Second)
		}
		took := time.Since(began)
		if n, most := m.countWrites("bundle"), 2+int(2*took/afterNews); n > most {
			t.Errorf("%d writes of the status of the Bundle in %s, want at most %d", n, took, most)
		}
		report("c1", atoll.RowDegraded)
		step(time.Second)
		if r := m.getBundle().Status.Rollout; r == nil || r.Reason != string(atoll.ReasonTooManyUnhealthy) {
			t.Errorf("in the end the status of the rollout is %+v", r)
		}
	})
}
