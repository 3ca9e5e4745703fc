package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// A line for each cluster states what happens next for the health of the application. Clusters without a verdict are not for the reader.
func TestTextsAboutAFailover(t *testing.T) {
	at := func(minutes int) *metav1.Time {
		return new(metav1.NewTime(testTime.Add(time.Duration(minutes) * time.Minute)))
	}
	b := Bundle{
		Spec: v1alpha1.BundleSpec{Failover: &v1alpha1.Failover{Application: &v1alpha1.ApplicationFailover{PurgeMode: v1alpha1.PurgeImmediately}}},
		Status: v1alpha1.BundleStatus{Failover: &v1alpha1.ApplicationFailoverStatus{
			ClustersBeforeFailover: []string{"b", "hidden"},
			Clusters: []v1alpha1.FailoverCluster{
				{Cluster: "a", UnhealthySince: at(-2)}, {Cluster: "b", UnhealthySince: at(-9), FailedAt: at(-4)}, {Cluster: "c", FailedAt: at(-4), AvoidedUntil: at(26), Failovers: 2},
				{Cluster: "d", FailedAt: at(-90), AvoidedUntil: at(-60), Failovers: 1}, {Cluster: "hidden", UnhealthySince: at(-2)},
			},
		}},
		Decision: schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "a"}, {Cluster: "b"}, {Cluster: "c"}, {Cluster: "d"}}},
	}
	e := b.explainFailover(testTime)
	const want = "  Failover: the application is unhealthy in a since 2026-01-02T11:58:00Z; if that lasts, it counts as failed at 2026-01-02T12:03:00Z.\n" +
		"  Failover: the application failed in b at 2026-01-02T11:56:00Z, and leaves it if something replaces its copy.\n" +
		"  Failover: the application left c for its health (2 times), and does not come back before 2026-01-02T12:26:00Z.\n" +
		"  Clusters before the last failover: b.\n"
	if got := writtenBy(e.writeText); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if e.Toleration != "5m" || e.PurgeMode != v1alpha1.PurgeDirectly || len(e.Clusters) != 4 {
		t.Errorf("%+v", e)
	}
	if b.Status.Failover = nil; writtenBy(b.explainFailover(testTime).writeText) != "" {
		t.Error("nothing stored has a text")
	}
	if b.Spec.Failover = nil; b.explainFailover(testTime) != nil || writtenBy(b.explainFailover(testTime).writeText) != "" {
		t.Error("no failover has an explanation")
	}
}

// A copy that stays although it is unhealthy has its reason beside its cluster.
func TestAnUnhealthyCopyThatStaysIsExplained(t *testing.T) {
	c := ClusterExplanation{Cluster: "a", Verdict: schedule.OutcomePlaced, FailureNote: FailureNote{FailureReason: atoll.ReasonFailoverUnreplaced, FailureText: "no other cluster can take its place"}}
	if got := c.placementReason(); got != "unhealthy, and keeps its copy: no other cluster can take its place" {
		t.Error(got)
	}
	if c.DrainReason, c.DrainText = atoll.ReasonNoReplacement, "it is drained"; !strings.HasPrefix(c.placementReason(), "drained") {
		t.Error("a drain does not come first")
	}
}
