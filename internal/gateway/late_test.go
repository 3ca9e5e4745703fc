package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// TestWhoAnotherHubHasLetInIsWaitedFor: its table may show it a moment before this one's. Of an
// only hub there is nothing to wait for.
func TestWhoAnotherHubHasLetInIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		several bool
		after   time.Duration // the table shows the Cluster
		took    time.Duration
		in      bool
	}{
		"one of several, in time":      {true, 40 * lookLag, 40 * lookLag, true},
		"one of several, and too late": {true, time.Hour, tableLag, false},
		"the only one":                 {false, 40 * lookLag, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &memClusters{byName: map[string]*v1alpha1.Cluster{}, byUID: map[types.UID]string{}}
				g := &Gateway{o: Options{Clusters: table}}
				if c.several {
					g.o.Several.Serves = func() bool { return true }
				}
				shown := time.AfterFunc(c.after, func() {
					table.mu.Lock()
					defer table.mu.Unlock()
					is := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
					is.Name, is.UID = "tokyo", "u1"
					table.byName["tokyo"], table.byUID["u1"] = is, "tokyo"
				})
				defer shown.Stop()
				began := time.Now()
				_, refused := g.admitLate(t.Context(), identity{uid: "u1"})
				if took := time.Since(began); (refused == nil) != c.in || took < c.took || took > c.took+2*lookLag {
					t.Errorf("after %s: %v", took, refused)
				}
			})
		})
	}
}

// TestEarlyReportsHaveABound, and the newest of each bundle is kept.
func TestEarlyReportsHaveABound(t *testing.T) {
	s := &stream{g: &Gateway{o: Options{Several: Several{Behind: func(int64) bool { return false }}}}}
	for _, seq := range []int64{1, 3, 2} {
		s.keepEarly(&pb.Report{Bundle: "b", Seq: seq})
	}
	for i := range 2 * earlyLimit {
		s.keepEarly(&pb.Report{Bundle: fmt.Sprint(i), Seq: 1})
	}
	s.keepEarly(&pb.Report{Bundle: "b", Seq: 4})
	if s.early["b"].GetSeq() != 4 || len(s.early) != earlyLimit {
		t.Errorf("%d reports wait, of %d at most; the newest of one is %v", len(s.early), earlyLimit, s.early["b"])
	}
	s.keepEarly(&pb.Report{Bundle: "b", Seq: 2})
	if s.early["b"].GetSeq() != 4 {
		t.Errorf("an older report replaces a newer: %v", s.early["b"])
	}
}

// TestReportsThatNoAgentMakesAreRefused: nothing of them is stored.
func TestReportsThatNoAgentMakesAreRefused(t *testing.T) {
	h := newTestHub(t)
	uid, _ := h.connected("tokyo")
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	s := h.sessions.of(uid)
	for i, r := range []*pb.Report{
		{Seq: 0, Status: []byte(`{"g":1,"p":"Ready","s":0,"t":0,"n":0,"q":0}`)},
		{Seq: -1, Status: []byte(`{}`)},
		{Seq: generationLimit, Status: []byte(`{}`)},
		{Seq: 1, Status: []byte(`{`)},
		{Seq: 1, Status: []byte(`{"m":"` + strings.Repeat("x", statusBytes) + `"}`)},
	} {
		r.Bundle = "b1"
		if s.report(r); strings.Count(h.log.String(), "BadReport") != i+1 {
			t.Errorf("report %d is taken: seq %d, %d bytes", i, r.Seq, len(r.Status))
		}
	}
}
