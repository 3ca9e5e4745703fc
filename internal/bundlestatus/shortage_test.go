package bundlestatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Replicas without a place are reported, workload by workload, with the person that must act, once
// rows have their assigned replicas; and so is the end of that.
func TestShortage(t *testing.T) {
	web := schedule.Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Replicas: 10}
	db := schedule.Workload{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, Replicas: 3}
	assigned := func(w, d int64) func(*Row) {
		return func(r *Row) { r.Spec.Assigned = map[string]int64{web.Key.String(): w, db.Key.String(): d} }
	}
	old := func(r *Row) { r.Spec.Revision = "r1" }
	more := func(n int) func(*Row) { return func(r *Row) { r.More = n } }
	for _, tc := range []struct {
		name   string
		rows   []Row
		before metav1.ConditionStatus // of the condition; "": there is none
		want   metav1.ConditionStatus
		says   string
		waits  string
	}{
		{"all have one", []Row{newRow("a", readyStatus(), assigned(7, 3)), newRow("b", readyStatus(), assigned(3, 0))}, "", "", "", ""},
		{"all have one now", []Row{newRow("a", readyStatus(), assigned(7, 3)), newRow("b", readyStatus(), assigned(3, 0))}, metav1.ConditionFalse, metav1.ConditionTrue, "all replicas", ""},
		{"some have none", []Row{newRow("a", readyStatus(), assigned(4, 1)), newRow("b", readyStatus(), assigned(3, 0))}, "", metav1.ConditionFalse,
			"no place for 3 of 10 replicas of Deployment/web, 2 of 3 replicas of StatefulSet/db: every cluster that fits is at its bounds, `atoll explain` shows at which; the policy's owner must act",
			"a place for 3 of 10 replicas of Deployment/web, 2 of 3 replicas of StatefulSet/db; the policy's owner must act"},
		{"rows that are alike count each", []Row{newRow("a", readyStatus(), assigned(2, 1), more(2))}, "", metav1.ConditionFalse, "no place for 4 of 10 replicas of Deployment/web:", "a place for 4 of 10"},
		{"what is to go still has its place", []Row{newRow("a", readyStatus(), assigned(7, 3)), newRow("b", readyStatus(), assigned(3, 0), withPhase(atoll.RowHeld, ""))}, "", "", "", ""},
		{"what is going has not", []Row{newRow("a", readyStatus(), assigned(7, 3)), newRow("b", readyStatus(), assigned(3, 0), withPhase(atoll.RowRemoving, ""))}, "", metav1.ConditionFalse, "no place for 3 of 10 replicas of Deployment/web:", "b: the removal to be done"},
		{"rows that are not at the revision say nothing", []Row{newRow("a", readyStatus(), assigned(4, 1)), newRow("b", readyStatus(), assigned(3, 0), old)}, "", "", "", "b: the latest change"},
		{"nor do they end a shortage", []Row{newRow("a", readyStatus(), assigned(7, 3)), newRow("b", readyStatus(), assigned(3, 0), old)}, metav1.ConditionFalse, metav1.ConditionFalse, "", ""},
		{"nor those without a share", []Row{newRow("a", readyStatus(), assigned(4, 1)), newRow("b", readyStatus())}, "", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := StatusInput{Rows: tc.rows, Latest: latest, Workloads: []schedule.Workload{web, db}, Content: &atoll.Content{}, Now: time.Unix(1000, 0)}
			if tc.before != "" {
				in.Bundle = state.Bundle{Status: v1alpha1.BundleStatus{Conditions: []metav1.Condition{{Type: v1alpha1.BundleReplicasPlaced, Status: tc.before}}}}
			}
			got := ComputeStatus(in)
			c := meta.FindStatusCondition(got.Conditions, v1alpha1.BundleReplicasPlaced)
			if (c == nil) != (tc.want == "") || c != nil && (c.Status != tc.want || !strings.HasPrefix(c.Message, tc.says)) {
				t.Errorf("condition %+v, want %s %q", c, tc.want, tc.says)
			}
			if tc.name != "rows that are not at the revision say nothing" && !strings.HasPrefix(got.WaitsFor, tc.waits) {
				t.Errorf("waits for %q, want %q", got.WaitsFor, tc.waits)
			}
		})
	}
	handed := web
	handed.HasReplicaOverrides = true
	over := ComputeStatus(StatusInput{Rows: []Row{newRow("a", readyStatus(), assigned(9, 0)), newRow("b", readyStatus(), assigned(4, 0))}, Latest: latest, Workloads: []schedule.Workload{handed}, Content: &atoll.Content{}, Now: time.Unix(1000, 0)})
	if c := meta.FindStatusCondition(over.Conditions, v1alpha1.BundleReplicasPlaced); c == nil || c.Status != metav1.ConditionTrue || c.Message != "overrides set replicas of clusters: all together run 13 of Deployment/web, whose template states 10" {
		t.Errorf("overridden: %+v", c)
	}
	none := ComputeStatus(StatusInput{Rows: []Row{newRow("a", readyStatus())}, Latest: latest, Content: &atoll.Content{}, Now: time.Unix(1000, 0), Bundle: state.Bundle{
		Status: v1alpha1.BundleStatus{Conditions: []metav1.Condition{{Type: v1alpha1.BundleReplicasPlaced, Status: metav1.ConditionFalse}}}}})
	if c := meta.FindStatusCondition(none.Conditions, v1alpha1.BundleReplicasPlaced); c.Status != metav1.ConditionTrue {
		t.Errorf("where nothing is divided any more: %+v", c)
	}
}
