package get

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust/standing"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newCondition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestReadinessSaysWhatIsInTheWay(t *testing.T) {
	cluster := func(accepted bool, conditions ...metav1.Condition) v1alpha1.Cluster {
		c := v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: accepted}, Status: v1alpha1.ClusterStatus{Conditions: conditions}}
		c.Name = "tokyo-1"
		return c
	}
	joined := newCondition(v1alpha1.ClusterJoined, metav1.ConditionTrue, "Joined", "")
	seldom := cluster(true, joined, newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentChecksIn", "fine"))
	seldom.UID, seldom.Spec.Connection = "u", &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn}
	for name, c := range map[string]struct {
		cluster       v1alpha1.Cluster
		ready, reason string
	}{
		"checks in": {seldom, "yes", "checks in every 15m, next in about 14m15s"},
		"pending":   {cluster(false), "no", "waits for `atoll accept tokyo-1`"},
		"silent":    {cluster(true), "no", "its agent has sent nothing yet"},
		"ready":     {cluster(true, joined, newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentConnected", "fine")), "yes", ""},
		"unused credentials": {cluster(true, joined, newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentConnected", "fine"),
			newCondition(v1alpha1.ClusterPushed, metav1.ConditionFalse, "CredentialsNotUsed", "drop them")), "yes", "CredentialsNotUsed: drop them"},
		"lost":     {cluster(true, joined, newCondition(v1alpha1.ClusterReady, metav1.ConditionUnknown, "StreamLost", "40 s ago")), "unknown", "StreamLost: 40 s ago"},
		"unjoined": {cluster(true, newCondition(v1alpha1.ClusterJoined, metav1.ConditionFalse, "NoCertificate", "")), "no", "NoCertificate"},
		"denied":   {cluster(false, newCondition(v1alpha1.ClusterAccepted, metav1.ConditionFalse, "Denied", "denied by ann")), "no", "denied by ann"},
		"removed":  {cluster(true, joined, newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentConnected", "fine"), newCondition(v1alpha1.ClusterRemoving, metav1.ConditionTrue, "WaitsForMember", "a finalizer")), "yes", "is removed (WaitsForMember): a finalizer"},
	} {
		t.Run(name, func(t *testing.T) {
			if ready, reason := readinessText(c.cluster, now); ready != c.ready || reason != c.reason {
				t.Errorf("readiness is %q, %q; want %q, %q", ready, reason, c.ready, c.reason)
			}
		})
	}
}

func TestRowsAreShownWithTheirReasons(t *testing.T) {
	deployment := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	since := now.Add(-time.Minute).Unix()
	rows := []client.Row{
		{Namespace: "shop", Bundle: "web", Cluster: "a", Spec: atoll.RowSpec{Phase: atoll.RowActive, Generation: 1, Since: since},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowReady, Total: 2, Ready: 2, Since: since}},
		{Namespace: "shop", Bundle: "web", Cluster: "b", Spec: atoll.RowSpec{Phase: atoll.RowActive, Generation: 2, Since: since},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowReady, Total: 2, Ready: 2}},
		{Namespace: "shop", Bundle: "web", Cluster: "c", Spec: atoll.RowSpec{Phase: atoll.RowActive, Generation: 1, Since: since},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowFailed, Total: 2, Ready: 1, Since: since, Items: []atoll.ItemStatus{
				{Key: deployment, Error: true, Reason: "Conflict", Message: "it is not ours"},
			}}},
		{Bundle: "cluster-wide", Cluster: "d", Spec: atoll.RowSpec{Phase: atoll.RowHeld, Since: since, Reason: "RemovalHeld plan=abc"}},
	}
	var out strings.Builder
	o := &getOptions{now: now, all: true, absent: map[string]clusterAbsence{"b": {checkIn: "checks in every 15m, next in about 7m"}, "d": {away: true}}}
	if err := o.printRows(&out, rows, ""); err != nil {
		t.Fatal(err)
	}
	want := `NAMESPACE   BUNDLE         CLUSTER   PHASE    STATE    ITEMS   SINCE   REASON
shop        web            a         Active   Ready    2/2     60s     -
shop        web            b         Active   Ready    2/2     60s     no report of the latest change yet: the cluster checks in every 15m, next in about 7m
shop        web            c         Active   Failed   1/2     60s     Deployment/web: Conflict: it is not ours
-           cluster-wide   d         Held     -        -       60s     RemovalHeld plan=abc; the cluster is away; no report yet
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestBundlesSayWhatTheyWaitFor(t *testing.T) {
	held := v1alpha1.Bundle{Spec: v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"}}}
	held.Name, held.Namespace, held.CreationTimestamp = "web", "shop", metav1.NewTime(now.Add(-time.Hour))
	held.Status.Items, held.Status.Clusters = 3, v1alpha1.BundleClusters{Desired: 20, Ready: 18}
	held.Status.Conditions = []metav1.Condition{newCondition(v1alpha1.BundleRemovalHeld, metav1.ConditionTrue, "OverBudget", "4 of 20 clusters, plan abc")}
	var out strings.Builder
	o := &getOptions{now: now}
	if err := o.printBundles(&out, []v1alpha1.Bundle{held}, "shop"); err != nil {
		t.Fatal(err)
	}
	want := `NAMESPACE   NAME   SOURCE                  ITEMS   CLUSTERS   AGE   WAITS FOR
shop        web    PropagationPolicy/web   3       18/20      60m   4 of 20 clusters, plan abc
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestHowAgentsComeIsShown: in the wide output, after the remaining life of their certificates.
func TestHowAgentsComeIsShown(t *testing.T) {
	var out strings.Builder
	o := &getOptions{now: now}
	flags := pflag.NewFlagSet("get", pflag.ContinueOnError)
	o.format.AddTo(flags, "wide")
	if err := flags.Set("output", "wide"); err != nil {
		t.Fatal(err)
	}
	clusters := []v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "oslo", UID: "u"}}, {ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "v"}}}
	agents := standing.Certificates{Ends: map[string]time.Time{"oslo": now.Add(time.Hour)}, Carriage: map[string]string{"oslo": "WebSocket"}}
	if err := o.printClusters(&out, clusters, agents, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"CARRIAGE CERTIFICATE UID", "WebSocket 60m left u"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%q does not end with %q", got, want)
		}
	}
}
