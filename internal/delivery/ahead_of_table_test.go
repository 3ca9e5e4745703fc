package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// An identity that another hub accepted may be missing in the table for a moment. A single
// hub has nothing to wait for.
func TestIdentityOfAnotherHubIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		several bool
		after   time.Duration // the table shows the Cluster
		took    time.Duration
		in      bool
	}{
		"one of several, in time":      {true, 40 * tablePollInterval, 40 * tablePollInterval, true},
		"one of several, and too late": {true, time.Hour, maxTableLag, false},
		"the only one":                 {false, 40 * tablePollInterval, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &memClusters{byName: map[string]*v1alpha1.Cluster{}, byUID: map[types.UID]string{}}
				g := &Gateway{options: Options{Clusters: table, HubKey: []byte("hub")}}
				if c.several {
					g.options.HA.Hub = fakeHAHub{}
				}
				shown := time.AfterFunc(c.after, func() {
					table.mu.Lock()
					defer table.mu.Unlock()
					is := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
					is.Name, is.UID = "tokyo", "u1"
					is.Annotations = map[string]string{handshake.AnnotationAgentKey: trust.SealKeyHash([]byte("hub"), "tokyo", "key")}
					table.byName["tokyo"], table.byUID["u1"] = is, "tokyo"
				})
				defer shown.Stop()
				began := time.Now()
				_, refused := g.admitWithRetry(t.Context(), identity{uid: "u1", keyHash: "key"})
				if took := time.Since(began); (refused == nil) != c.in || took < c.took || took > c.took+2*tablePollInterval {
					t.Errorf("after %s: %v", took, refused)
				}
			})
		})
	}
}

// TestACertificateAloneIsNoIdentity: the holder of an unexpired certificate of a cluster's UID is let in
// only by the key that the Cluster names. A Cluster that names none lets no agent in.
func TestACertificateAloneIsNoIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		sealed string
		want   atoll.Reason
	}{
		"the key":                 {trust.SealKeyHash([]byte("hub"), "tokyo", "key"), ""},
		"another key":             {trust.SealKeyHash([]byte("hub"), "tokyo", "other"), atoll.ReasonReplaced},
		"no key":                  {"", atoll.ReasonNotAccepted},
		"a key of another hub":    {trust.SealKeyHash([]byte("foreign"), "tokyo", "key"), atoll.ReasonNotAccepted},
		"the key of another name": {trust.SealKeyHash([]byte("hub"), "oslo", "key"), atoll.ReasonNotAccepted},
	} {
		is := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		is.Name, is.UID = "tokyo", "u1"
		is.Annotations = map[string]string{handshake.AnnotationAgentKey: c.sealed}
		table := &memClusters{byName: map[string]*v1alpha1.Cluster{"tokyo": is}, byUID: map[types.UID]string{"u1": "tokyo"}}
		g := &Gateway{options: Options{Clusters: table, HubKey: []byte("hub")}}
		if _, refused := g.admitIdentity(identity{uid: "u1", keyHash: "key"}); refused.GetReason() != string(c.want) {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// Early reports are bounded, and the newest of each bundle is kept.
func TestEarlyReportsAreBounded(t *testing.T) {
	s := &agentSession{gateway: &Gateway{options: Options{HA: HAOptions{Hub: fakeHAHub{}}}}}
	for _, seq := range []int64{1, 3, 2} {
		s.keepEarlyReport(&pb.Report{Bundle: "b", Seq: seq})
	}
	for i := range 2 * maxEarlyReports {
		s.keepEarlyReport(&pb.Report{Bundle: fmt.Sprint(i), Seq: 1})
	}
	s.keepEarlyReport(&pb.Report{Bundle: "b", Seq: 4})
	if s.earlyReports["b"].GetSeq() != 4 || len(s.earlyReports) != maxEarlyReports {
		t.Errorf("%d reports wait, of %d at most; the newest of one is %v", len(s.earlyReports), maxEarlyReports, s.earlyReports["b"])
	}
	s.keepEarlyReport(&pb.Report{Bundle: "b", Seq: 2})
	if s.earlyReports["b"].GetSeq() != 4 {
		t.Errorf("an older report replaces a newer: %v", s.earlyReports["b"])
	}
}

// A drift is stored in its bounds, and without values of Secrets, whatever the agent sends.
func TestReportedDriftIsLimited(t *testing.T) {
	h := newTestHub(t)
	uid, _ := h.connectAgent("tokyo")
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	st := atoll.RowStatus{Generation: 1, State: atoll.RowReady, Drifted: -3, Items: []atoll.ItemStatus{
		{Key: atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}, Health: atoll.Healthy, Drift: &atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/a", Live: "secret", Wanted: "other"}}}},
		{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, Health: atoll.Healthy, Drift: &atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/a", Live: strings.Repeat("x", 9000)}}}},
	}}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	h.sessions.getByUID(uid).handleReport(&pb.Report{Bundle: "b1", Seq: 1, Status: text})
	var stored *atoll.RowStatus
	testwait.UntilNil(t, "the report is stored", func(context.Context) error {
		row, _ := h.rows.Get("b1", "tokyo")
		if stored = row.Status; stored == nil {
			return errors.New("no report")
		}
		return nil
	})
	secret, conf := stored.Items[0].Drift.Fields[0], stored.Items[1].Drift.Fields[0]
	if stored.Drifted != 0 || secret.Live != "" || secret.Wanted != "" || len(conf.Live) > atoll.MaxDriftValue {
		t.Errorf("stored: %d drifted, %+v and %+v", stored.Drifted, secret, conf)
	}
}

// Reports that no agent makes are not stored.
func TestMalformedReportsAreRefused(t *testing.T) {
	h := newTestHub(t)
	uid, _ := h.connectAgent("tokyo")
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	s := h.sessions.getByUID(uid)
	for i, r := range []*pb.Report{
		{Seq: 0, Status: []byte(`{"g":1,"p":"Ready","s":0,"t":0,"n":0,"q":0}`)},
		{Seq: -1, Status: []byte(`{}`)},
		{Seq: generationLimit, Status: []byte(`{}`)},
		{Seq: 1, Status: []byte(`{`)},
		{Seq: 1, Status: []byte(`{"m":"` + strings.Repeat("x", session.MaxStatusBytes) + `"}`)},
	} {
		r.Bundle = "b1"
		if s.handleReport(r); strings.Count(h.log.String(), "BadReport") != i+1 {
			t.Errorf("report %d is taken: seq %d, %d bytes", i, r.Seq, len(r.Status))
		}
	}
}
