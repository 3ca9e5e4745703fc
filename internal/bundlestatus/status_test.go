package bundlestatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

var latest = &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "r2"}, Spec: enginev1.RevisionSpec{Number: 2, Items: 3}}

// newRow is Active at the latest Revision, in a cluster that can be reached.
func newRow(cluster string, st *atoll.RowStatus, change ...func(*Row)) Row {
	r := Row{Reachable: true, Waited: true, Known: true}
	r.Cluster = cluster
	r.Spec = atoll.RowSpec{UID: "uid-" + cluster, Generation: 5, Revision: "r2", Phase: atoll.RowActive}
	r.Status = st
	for _, c := range change {
		c(&r)
	}
	return r
}

func readyStatus() *atoll.RowStatus {
	return &atoll.RowStatus{Generation: 5, State: atoll.RowReady, Applied: true}
}

func makeUnreachable(r *Row) { r.Reachable, r.Waited = false, false }

func withPhase(p atoll.RowPhase, reason string) func(*Row) {
	return func(r *Row) { r.Spec.Phase, r.Spec.Reason = p, reason }
}

// A Bundle's status names no Secret, whatever is the matter with it.
func TestStatusNamesNoSecret(t *testing.T) {
	key := func(kind, name string) atoll.ItemKey { return atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name} }
	clash := atoll.ItemStatus{Key: key("Secret", "tls-of-bank"), Health: atoll.Unknown, Reason: "Conflict", Message: "Secret shop/tls-of-bank exists", Error: true}
	broken := atoll.ItemStatus{Key: key("Service", "web"), Health: atoll.Unknown, Reason: "Invalid", Message: "no port", Error: true}
	slow := atoll.ItemStatus{Key: key("Pod", "web"), Health: atoll.Progressing, Reason: "Pulling"}
	pending := atoll.ItemStatus{Key: key("Secret", "tls-of-bank"), Health: atoll.Progressing, Reason: "Pending"}
	for _, c := range []struct {
		want  string
		state atoll.RowState
		items []atoll.ItemStatus
	}{
		{"a: a Secret: Conflict; the application's owner must act", atoll.RowFailed, []atoll.ItemStatus{clash}},
		{"a: a Secret: Conflict; the application's owner must act", atoll.RowFailed, []atoll.ItemStatus{slow, clash}},
		{"a: Invalid: Service web: no port; the application's owner must act", atoll.RowFailed, []atoll.ItemStatus{clash, broken}},
		{"a: Pulling: Pod web; no person has to act", atoll.RowProgressing, []atoll.ItemStatus{slow, pending}},
		{"a: a Secret: Pending; no person has to act", atoll.RowProgressing, []atoll.ItemStatus{pending}},
	} {
		st := &atoll.RowStatus{Generation: 5, State: c.state, Reason: "Conflict", Message: "Secret tls-of-bank: Secret shop/tls-of-bank exists", Items: c.items}
		got := ComputeStatus(StatusInput{Rows: []Row{newRow("a", st)}, Latest: latest, Now: time.Unix(1, 0)})
		if got.WaitsFor != c.want {
			t.Errorf("waits for %q, want %q", got.WaitsFor, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	progressing := &atoll.RowStatus{Generation: 5, State: atoll.RowProgressing, Applied: true}
	applying := &atoll.RowStatus{Generation: 5, State: atoll.RowProgressing}
	old := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	failed := &atoll.RowStatus{Generation: 5, State: atoll.RowFailed, Items: []atoll.ItemStatus{{
		Key: atoll.ItemKey{Kind: "Service", Name: "web"}, Health: atoll.Degraded, Reason: "Conflict", Message: "another manager made it", Error: true}}}
	degraded := &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true, Reason: "CrashLoopBackOff"}
	held := "RemovalHeld plan=abc: PlacementEdited"
	for _, c := range []struct {
		name     string
		rows     []Row
		bundle   func(*state.Bundle)
		clusters v1alpha1.BundleClusters
		waits    string // begins the words; "" means done
		// scheduled, applied, ready: reasons, "+" before those of true conditions.
		conditions string
	}{
		{"nothing fits", nil, nil, v1alpha1.BundleClusters{Summary: "0/0"}, "a cluster that fits", "NoClusterFits NotScheduled NotScheduled"},
		{"nothing fits an annotation", nil, func(b *state.Bundle) { b.Spec.Source.Kind = v1alpha1.SourceAnnotation }, v1alpha1.BundleClusters{Summary: "0/0"},
			"a cluster that fits its placement; the annotation's author must act", "NoClusterFits NotScheduled NotScheduled"},
		{"nowhere on purpose", nil, func(b *state.Bundle) { b.Spec.Placement = atoll.NowherePlacement() }, v1alpha1.BundleClusters{Summary: "0/0"}, "", "Nowhere NotScheduled NotScheduled"},
		{"just placed", []Row{newRow("a", nil), newRow("b", nil)}, nil, v1alpha1.BundleClusters{Desired: 2, Summary: "0/2"},
			"a: the latest change to be applied (and 1 cluster more); the agent acts", "+Placed Applying Progressing"},
		{"another revision", []Row{newRow("a", old), newRow("b", readyStatus())}, nil, v1alpha1.BundleClusters{Desired: 2, Updated: 1, Ready: 1, Summary: "1/2"},
			"a: the latest change", "+Placed Applying Progressing"},
		{"still applying", []Row{newRow("a", applying)}, nil, v1alpha1.BundleClusters{Desired: 1, Summary: "0/1"},
			"a: items to become healthy; no person has to act", "+Placed Applying Progressing"},
		{"applied, not ready", []Row{newRow("a", progressing), newRow("b", readyStatus())}, nil, v1alpha1.BundleClusters{Desired: 2, Updated: 2, Ready: 1, Summary: "1/2"},
			"a: items to become healthy; no person has to act", "+Placed +Applied Progressing"},
		{"done", []Row{newRow("a", readyStatus()), newRow("b", readyStatus())}, nil, v1alpha1.BundleClusters{Desired: 2, Updated: 2, Ready: 2, Summary: "2/2"}, "", "+Placed +Applied +Ready"},
		{"done but for one away", []Row{newRow("a", readyStatus()), newRow("b", old, makeUnreachable)}, nil, v1alpha1.BundleClusters{Desired: 2, Updated: 1, Ready: 1, Away: 1, Summary: "1/2"}, "", "+Placed +Applied +Ready"},
		{"all away", []Row{newRow("a", readyStatus(), makeUnreachable)}, nil, v1alpha1.BundleClusters{Desired: 1, Updated: 1, Away: 1, Summary: "0/1"},
			"a cluster to come back", "+Placed ClustersAway ClustersAway"},
		{"failed comes before behind", []Row{newRow("a", nil), newRow("b", failed)}, nil, v1alpha1.BundleClusters{Desired: 2, Summary: "0/2"},
			"b: Service/web Conflict: another manager made it (and 1 cluster more); the application's owner must act", "+Placed Failed Failed"},
		{"degraded", []Row{newRow("a", degraded), newRow("b", readyStatus())}, nil, v1alpha1.BundleClusters{Desired: 2, Updated: 2, Ready: 1, Summary: "1/2"},
			"a: CrashLoopBackOff; the application's owner must act", "+Placed +Applied Degraded"},
		{"moving", []Row{newRow("a", readyStatus(), withPhase(atoll.RowLeaving, "PlacementEdited")), newRow("b", progressing)}, nil,
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Removing: 1, Summary: "0/1"}, "b: items to become healthy (and 1 cluster more)", "+Placed +Applied Progressing"},
		{"removing", []Row{newRow("a", readyStatus(), withPhase(atoll.RowRemoving, "")), newRow("b", readyStatus())}, nil,
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Ready: 1, Removing: 1, Summary: "1/1"}, "a: the removal to be done; the agent acts", "+Placed +Applied +Ready"},
		{"removed", []Row{newRow("a", &atoll.RowStatus{Generation: 5, State: atoll.RowRemoved}, withPhase(atoll.RowRemoving, "")), newRow("b", readyStatus())}, nil,
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Ready: 1, Summary: "1/1"}, "", "+Placed +Applied +Ready"},
		{"held", []Row{newRow("a", readyStatus(), withPhase(atoll.RowHeld, held)), newRow("b", readyStatus(), withPhase(atoll.RowHeld, held)), newRow("c", readyStatus())}, nil,
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Ready: 1, Removing: 2, Summary: "1/1"},
			"a: a confirmation of plan abc (and 1 cluster more); a person that may confirm removals must act", "+Placed +Applied +Ready +RemovalHeld"},
		{"held, in a cluster that is away", []Row{newRow("a", readyStatus(), withPhase(atoll.RowHeld, held), makeUnreachable)}, nil,
			v1alpha1.BundleClusters{Removing: 1, Summary: "0/0"}, "a: a confirmation of plan abc; a person that may confirm removals must act", "NoClusterFits NotScheduled NotScheduled +RemovalHeld"},
		{"confirmed a moment ago", []Row{newRow("a", readyStatus(), withPhase(atoll.RowHeld, held)), newRow("c", readyStatus())}, func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: "abc"} },
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Ready: 1, Removing: 1, Summary: "1/1"}, "a: what replaces it", "+Placed +Applied +Ready"},
		{"kept though nothing fits", []Row{newRow("a", readyStatus(), withPhase(atoll.RowActive, "NoClusterFits: labels"))}, nil,
			v1alpha1.BundleClusters{Desired: 1, Updated: 1, Ready: 1, Summary: "1/1"}, "a cluster that fits", "NoClusterFits +Applied +Ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
			b.Meta.Generation = 3
			if c.bundle != nil {
				c.bundle(&b)
			}
			in := StatusInput{Bundle: b, Rows: c.rows, Latest: latest, Now: time.Unix(1000, 0)}
			got := ComputeStatus(in)
			if got.Clusters != c.clusters {
				t.Errorf("clusters %+v\nwant     %+v", got.Clusters, c.clusters)
			}
			if !strings.HasPrefix(got.WaitsFor, c.waits) || c.waits == "" && got.WaitsFor != "" {
				t.Errorf("waits for %q, want %q", got.WaitsFor, c.waits)
			}
			if said := conditionReasons(got); said != c.conditions {
				t.Errorf("conditions %q, want %q", said, c.conditions)
			}
			if got.Revision != "r2" || got.Items != 3 {
				t.Errorf("revision %q of %d items", got.Revision, got.Items)
			}
			in.Bundle.Status, in.Now = got, time.Unix(2000, 0)
			if again := ComputeStatus(in); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("a second look gives %+v\nafter              %+v", again, got)
			}
		})
	}
}

// conditionReasons of the conditions, with "+" where they are true.
func conditionReasons(st v1alpha1.BundleStatus) string {
	var out []string
	for _, c := range st.Conditions {
		r := c.Reason
		if c.Status == metav1.ConditionTrue {
			r = "+" + r
		}
		out = append(out, r)
	}
	return strings.Join(out, " ")
}

func TestHeldConditionSaysHowToRelease(t *testing.T) {
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	rows := []Row{newRow("a", readyStatus(), withPhase(atoll.RowHeld, "RemovalHeld plan=abc: PlacementEdited"))}
	st := ComputeStatus(StatusInput{Bundle: b, Rows: rows, Now: time.Unix(1000, 0)})
	held := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleRemovalHeld)
	if held == nil || !strings.Contains(held.Message, "atoll confirm bundle/web -n shop --plan abc") {
		t.Fatalf("RemovalHeld: %+v", held)
	}
	b.Status = st
	st = ComputeStatus(StatusInput{Bundle: b, Rows: []Row{newRow("a", readyStatus())}, Now: time.Unix(2000, 0)})
	if held := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleRemovalHeld); held == nil || held.Status != metav1.ConditionFalse {
		t.Fatalf("after the release: %+v", held)
	}
	b.Ref.Namespace = ""
	if got := confirmCommand(b, "abc"); got != "atoll confirm clusterbundle/web --plan abc" {
		t.Errorf("of a ClusterBundle: %s", got)
	}
}

// A wait for a cluster that only checks in is reported as one, in the words that explain has.
func TestAClusterThatChecksInIsWaitedFor(t *testing.T) {
	quarterly := func(r *Row) { r.CheckIn = 15 * time.Minute }
	old := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	for want, rows := range map[string][]Row{
		"a: the latest change to be applied (the cluster checks in every 15m); the agent acts": {newRow("a", old, quarterly)},
		"b: the removal to be done (the cluster checks in every 15m); the agent acts":          {newRow("b", readyStatus(), quarterly, withPhase(atoll.RowRemoving, ""))},
	} {
		got := ComputeStatus(StatusInput{Rows: rows, Latest: latest, Now: time.Unix(1, 0)})
		if got.WaitsFor != want || got.Clusters.Away != 0 {
			t.Errorf("waits for %q with %d away, want %q", got.WaitsFor, got.Clusters.Away, want)
		}
	}
}
