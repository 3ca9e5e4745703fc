package decommission

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func newRow(name string, phase atoll.RowPhase, reason string, status *atoll.RowStatus) state.Row {
	if status != nil {
		status.Generation = 3
	}
	return state.Row{
		Bundle: enginev1.BundleRef{Namespace: "shop", Name: name, UID: "b-" + name}, Cluster: "tokyo",
		Spec: atoll.RowSpec{UID: "u", Generation: 3, Revision: "r", Phase: phase, Reason: reason}, Status: status,
	}
}

func TestWhatARemovalWaitsFor(t *testing.T) {
	clean := v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
	confirmed := v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "fedcba9876543210"}
	active, removing := newRow("web", atoll.RowActive, "", nil), newRow("api", atoll.RowRemoving, "", nil)
	leaving := newRow("db", atoll.RowLeaving, "ClusterRemoved", nil)
	held := newRow("mail", atoll.RowHeld, "RemovalHeld plan=0123456789abcdef: ClusterRemoved", nil)
	unready := newRow("cache", atoll.RowLeaving, "ReplacementsNotReady plan=fedcba9876543210", nil)
	stuck := newRow("disk", atoll.RowRemoving, "", &atoll.RowStatus{State: atoll.RowProgressing, Items: []atoll.ItemStatus{
		{Key: atoll.ItemKey{Kind: "PersistentVolumeClaim", Name: "data"}, Reason: "Terminating", Message: "its deletion waits for the finalizers a/b"},
	}})
	says := func(name string, generation int64, st atoll.RowStatus) state.Row {
		r := newRow(name, atoll.RowRemoving, "", &st)
		r.Status.Generation = generation
		return r
	}
	item := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "conf"}, Error: true, Reason: "Forbidden", Message: "not allowed"}
	for _, tc := range []struct {
		name     string
		s        removalFacts
		forget   bool
		reason   atoll.Reason
		contains string
	}{
		{"forced", removalFacts{removal: v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan, Force: true}, joined: true, rows: []state.Row{active}, holding: "set back"}, true, atoll.ReasonForced, ""},
		{"never joined", removalFacts{removal: clean, rows: []state.Row{active}}, true, atoll.ReasonNeverJoined, ""},
		{"the hub holds", removalFacts{removal: clean, joined: true, accepted: true, online: true, holding: "set back"}, false, atoll.ReasonHubHolds, "atoll restore accept"},
		{"just begun", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{active, leaving}}, false, atoll.ReasonBundlesLeave, "0 of 2 bundles are gone; 2 are to leave"},
		{"over a budget", removalFacts{removal: clean, joined: true, accepted: true, rows: []state.Row{removing, held}}, false, atoll.ReasonWaitsForConfirmation, "`atoll confirm bundle/mail -n shop --plan 0123456789abcdef`"},
		{"nothing replaces it", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{unready}}, false, atoll.ReasonWaitsForConfirmation, "bundle/cache -n shop --plan fedcba9876543210"},
		{"waits for replacements", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{leaving}}, false, atoll.ReasonWaitsForReplacements, "atoll explain bundle/db -n shop"},
		{"waits for a budget", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{newRow("db", atoll.RowLeaving, "DisruptionBudget: ClusterRemoved", nil)}}, false, atoll.ReasonDisruptionBudget, "`atoll remove tokyo --force` gives it up"},
		{"under way", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{removing}, formerStatus: &v1alpha1.ClusterRemovalStatus{Bundles: 40, Gone: 30, AgentWaitsFor: "x"}}, false, atoll.ReasonBundlesLeave, "39 of 40 bundles are gone; 1 are on their way out, such as shop/api"},
		{"away", removalFacts{removal: clean, joined: true, accepted: true, rows: []state.Row{removing, stuck}}, false, atoll.ReasonWaitsForCluster, "`atoll remove tokyo --force`"},
		{"denied", removalFacts{removal: clean, joined: true, rows: []state.Row{removing}}, false, atoll.ReasonWaitsForCluster, "`atoll accept tokyo`"},
		{"stuck", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{removing, stuck}}, false, atoll.ReasonWaitsForMember, "shop/disk is kept from going: PersistentVolumeClaim data: its deletion waits for the finalizers a/b"},
		{"stuck at one object", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{says("a", 3, atoll.RowStatus{State: atoll.RowFailed, Message: "1 of 2", Items: []atoll.ItemStatus{item}})}}, false, atoll.ReasonWaitsForMember, "shop/a is kept from going: ConfigMap conf: not allowed"},
		{"failed as a whole", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{says("a", 3, atoll.RowStatus{State: atoll.RowFailed, Reason: "NotHolder", Message: "another agent took over"})}}, false, atoll.ReasonWaitsForMember, "shop/a is kept from going: NotHolder another agent took over"},
		{"was stuck before", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{says("a", 2, atoll.RowStatus{State: atoll.RowFailed, Message: "x", Items: []atoll.ItemStatus{item}})}}, false, atoll.ReasonBundlesLeave, "1 are on their way out"},
		{"is gone", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{says("a", 3, atoll.RowStatus{State: atoll.RowRemoved, Items: []atoll.ItemStatus{item}})}}, false, atoll.ReasonBundlesLeave, "1 are on their way out"},
		{"takes its time", removalFacts{removal: clean, joined: true, accepted: true, online: true, rows: []state.Row{says("a", 3, atoll.RowStatus{State: atoll.RowProgressing, Items: []atoll.ItemStatus{{Key: item.Key, Message: "later"}}})}}, false, atoll.ReasonBundlesLeave, "1 are on their way out"},
		{"denied, and nothing goes yet", removalFacts{removal: clean, joined: true, online: true, rows: []state.Row{active}}, false, atoll.ReasonBundlesLeave, "1 are to leave"},
		{"away, and nothing goes yet", removalFacts{removal: clean, joined: true, accepted: true, rows: []state.Row{leaving}}, false, atoll.ReasonWaitsForReplacements, "shop/db"},
		{"not confirmed", removalFacts{removal: clean, joined: true, accepted: true, online: true, plan: "0123456789abcdef", rows: []state.Row{removing, active, leaving}}, false, atoll.ReasonWaitsForConfirmation, "2 bundles would be, such as shop/web, and that waits for `atoll confirm cluster/tokyo --plan 0123456789abcdef`"},
		{"another plan was confirmed", removalFacts{removal: confirmed, joined: true, accepted: true, online: true, plan: "0123456789abcdef", rows: []state.Row{active}}, false, atoll.ReasonWaitsForConfirmation, "--plan 0123456789abcdef`; what was confirmed is another plan"},
		{"the plan is unknown", removalFacts{removal: confirmed, joined: true, accepted: true, online: true, unknown: errors.New("read revision r: not found"), rows: []state.Row{active}}, false, atoll.ReasonPlanUnknown, "nothing is removed yet: what would be is not known, and the hub looks again: read revision r: not found"},
		{"the agent lets go", removalFacts{removal: clean, joined: true, accepted: true, online: true}, false, atoll.ReasonAgentLeaves, "the agent releases the member"},
		{"the agent is away", removalFacts{removal: clean, joined: true, accepted: true}, false, atoll.ReasonWaitsForCluster, "when it is back"},
		{"the agent is denied", removalFacts{removal: clean, joined: true}, false, atoll.ReasonWaitsForCluster, "atoll accept tokyo"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.s.name = "tokyo"
			v := decideRemoval(tc.s)
			if len(tc.s.rows) > 0 && v.status.AgentWaitsFor != "" {
				t.Errorf("with rows that are left it is said that the agent waits for %s", v.status.AgentWaitsFor)
			}
			if v.forget != tc.forget || v.reason != tc.reason || !strings.Contains(v.message, tc.contains) {
				t.Errorf("%+v, want forget %t, %s, …%s…", v, tc.forget, tc.reason, tc.contains)
			}
		})
	}
}

// A Cluster that ever had an agent is forgotten only by force, or by the agent's own report.
// Counts never go back.
func TestARemovalForgetsNothingByItself(t *testing.T) {
	phases := []atoll.RowPhase{atoll.RowActive, atoll.RowLeaving, atoll.RowHeld, atoll.RowRemoving}
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := removalFacts{name: "tokyo", removal: v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, joined: true, accepted: rnd.IntN(2) == 0, online: rnd.IntN(2) == 0}
		if rnd.IntN(4) == 0 {
			s.holding = "set back"
		}
		for i := range rnd.IntN(4) {
			s.rows = append(s.rows, newRow(fmt.Sprint(i), phases[rnd.IntN(len(phases))], "", nil))
		}
		before := v1alpha1.ClusterRemovalStatus{Bundles: rnd.Int32N(8)}
		before.Gone = rnd.Int32N(before.Bundles + 1)
		s.formerStatus = &before
		v := decideRemoval(s)
		if v.forget || v.reason == "" || v.message == "" {
			t.Fatalf("seed %d: %+v of %+v", seed, v, s)
		}
		if v.status.Bundles < before.Bundles || v.status.Gone < 0 || v.status.Bundles-v.status.Gone != int32(len(s.rows)) {
			t.Fatalf("seed %d: counts %+v after %+v with %d rows", seed, v.status, before, len(s.rows))
		}
	}
}

// A plan is carried out that the leading hub itself found to be what it would remove, and from
// then on, by which there is ever less; not one that some hub let in whose tables lagged.
func TestWhatIsConfirmedIsWhatWouldBeRemoved(t *testing.T) {
	p := v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p"}
	active, removing := newRow("web", atoll.RowActive, "", nil), newRow("api", atoll.RowRemoving, "", nil)
	is := func(confirmed string) *v1alpha1.ClusterRemovalStatus {
		return &v1alpha1.ClusterRemovalStatus{Confirmed: confirmed}
	}
	for _, tc := range []struct {
		name            string
		s               removalFacts
		confirmed, plan string
	}{
		{"asked", removalFacts{removal: v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, plan: "p", rows: []state.Row{active}}, "", "p"},
		{"confirmed", removalFacts{removal: p, plan: "p", rows: []state.Row{active}}, "p", ""},
		{"under way", removalFacts{removal: p, formerStatus: is("p"), rows: []state.Row{removing}}, "p", ""},
		{"by tables that lagged", removalFacts{removal: p, plan: "more", rows: []state.Row{active}}, "", "more"},
		{"after another confirmation", removalFacts{removal: p, formerStatus: is("other"), plan: "more", rows: []state.Row{active}}, "", "more"},
		{"taken back", removalFacts{removal: v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, formerStatus: is("p"), plan: "less", rows: []state.Row{active}}, "", "less"},
		{"with nothing that waits", removalFacts{removal: p, rows: []state.Row{removing}}, "", ""},
		{"while it is unknown", removalFacts{removal: p, unknown: errors.New("x"), rows: []state.Row{active}}, "", ""},
		{"while the hub holds", removalFacts{removal: p, formerStatus: is("p"), holding: "set back", rows: []state.Row{active}}, "", ""},
		{"orphan", removalFacts{removal: v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, rows: []state.Row{active}}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.s.name, tc.s.joined, tc.s.accepted, tc.s.online = "tokyo", true, true, true
			if v := decideRemoval(tc.s); v.status.Confirmed != tc.confirmed || v.status.Plan != tc.plan {
				t.Errorf("%+v, want confirmed %q, plan %q", v, tc.confirmed, tc.plan)
			}
		})
	}
}

// A preview uses a confirmation that is written with it, and not one that the leading hub found to
// be of another content.
func TestAPreviewGoesByANewConfirmation(t *testing.T) {
	c := func(confirm, found string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{
			Spec:   v1alpha1.ClusterSpec{Removal: &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: confirm}},
			Status: v1alpha1.ClusterStatus{Removal: &v1alpha1.ClusterRemovalStatus{Confirmed: found}},
		}
	}
	before := func(confirm string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"removal": map[string]any{"confirm": confirm}}}}
	}
	for name, tc := range map[string]struct {
		cluster *v1alpha1.Cluster
		before  *unstructured.Unstructured
		held    bool
	}{
		"it is confirmed":            {c("p", ""), before(""), false},
		"of another plan before":     {c("q", ""), before("p"), false},
		"a label is edited":          {c("p", "p"), before("p"), false},
		"and what is there is other": {c("p", ""), before("p"), true},
		"nothing is confirmed":       {c("", ""), before(""), true},
	} {
		if SupposeConfirmedRemoval(tc.cluster, tc.before); tc.cluster.IsRemovalHeld() != tc.held {
			t.Errorf("%s: held is %t", name, !tc.held)
		}
	}
}
