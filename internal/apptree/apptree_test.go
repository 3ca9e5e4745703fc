package apptree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

var (
	web    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	secret = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "keys"}
)

const at = 1_795_000_000 // Unix seconds

func readyRow(cluster string, change func(*rollout.Row)) Row {
	r := rollout.Row{
		Online: true,
		Spec:   atoll.RowSpec{UID: "uid-" + cluster, Generation: 2, Revision: "b-3-x", Phase: atoll.RowActive, Since: at},
		Status: &atoll.RowStatus{Generation: 2, State: atoll.RowReady, Applied: true, Total: 2, Ready: 2, Since: at + 5},
	}
	if change != nil {
		change(&r)
	}
	return Row{Cluster: cluster, Row: r, ReadyChanged: time.Unix(at+100, 0)}
}

func inputOf(rows ...Row) Input {
	return Input{Namespace: "shop", Name: "web", Revision: 3, Items: []atoll.ItemKey{web, secret}, IsVisible: func(atoll.ItemKey) bool { return true }, Rows: rows, Limit: 100}
}

func TestStatesOfClusters(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rollout.Row)
		want   string
	}{
		"ready": {nil, "Ready   "},
		"degraded": {func(r *rollout.Row) {
			r.Status.State, r.Status.Reason, r.Status.Message = atoll.RowDegraded, "CrashLoopBackOff", "back-off"
		}, "Degraded Degraded the application's owner CrashLoopBackOff: back-off"},
		"failed":          {func(r *rollout.Row) { r.Status.State, r.Status.Reason = atoll.RowFailed, atoll.ReasonFailed }, "Failed Failed the application's owner Failed"},
		"not applied yet": {func(r *rollout.Row) { r.Spec.Generation = 3 }, "Progressing WaitsForApply the agent the latest change to be applied"},
		"never reported":  {func(r *rollout.Row) { r.Status = nil }, "Progressing WaitsForApply the agent the latest change to be applied"},
		"disconnected":    {func(r *rollout.Row) { r.Online = false }, "Away WaitsForCluster the member's administrator "},
		"held": {func(r *rollout.Row) {
			r.Spec.Phase, r.Spec.Reason = atoll.RowHeld, atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Text: "it is too much"}.String()
		}, "Waiting RemovalHeld a person that may confirm removals it is too much"},
		"removing": {func(r *rollout.Row) { r.Spec.Phase, r.Status.Generation = atoll.RowRemoving, 1 }, "Removing WaitsForRemoval the agent the removal to be done"},
		"escaped message": {func(r *rollout.Row) {
			r.Status.State, r.Status.Reason, r.Status.Message = atoll.RowDegraded, "X", "a\u202eb\n"
		}, "Degraded Degraded the application's owner X: a\\u202eb\\x0a"},
		"a time of no sense": {func(r *rollout.Row) { r.Status.Since = 1 << 62 }, "Ready   "},
	} {
		tree := BuildTree(inputOf(readyRow("oslo", c.change)))
		if len(tree.Clusters) != 1 {
			t.Errorf("%s: %d clusters", name, len(tree.Clusters))
			continue
		}
		got := tree.Clusters[0]
		if text := fmt.Sprintf("%s %s %s %s", got.State, got.Reason, got.Actor, got.Message); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		if got.Since == nil || got.Since.Year() > 9999 || tree.Counts[got.State] != 1 {
			t.Errorf("%s: since %v, counts %v", name, got.Since, tree.Counts)
		}
	}
}

// A row that was removed, and one that only keeps a namespace, are no cluster of the application.
func TestRowsThatAreGone(t *testing.T) {
	removed := readyRow("rome", func(r *rollout.Row) { r.Spec.Phase, r.Status.State = atoll.RowRemoving, atoll.RowRemoved })
	vacant := readyRow("york", func(r *rollout.Row) { r.Spec.Phase = atoll.RowVacant })
	if tree := BuildTree(inputOf(removed, vacant)); len(tree.Clusters)+len(tree.Counts) > 0 {
		t.Errorf("%+v", tree)
	}
}

func TestTroubleComesFirst(t *testing.T) {
	degraded := func(r *rollout.Row) { r.Status.State = atoll.RowDegraded }
	in := inputOf(readyRow("a", nil), readyRow("b", degraded), readyRow("c", nil), readyRow("d", degraded))
	in.Limit = 3
	tree := BuildTree(in)
	var names []string
	for _, c := range tree.Clusters {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "b d a" || tree.MoreClusters != 1 || tree.Counts[Ready] != 2 || tree.Counts[Degraded] != 2 {
		t.Errorf("%s, %d more, %v", got, tree.MoreClusters, tree.Counts)
	}
	in.Cluster = "c"
	if tree := BuildTree(in); len(tree.Clusters) != 1 || tree.Clusters[0].Name != "c" || tree.Counts[Ready] != 2 {
		t.Errorf("one cluster: %+v", tree)
	}
}

func TestItemsOfAReport(t *testing.T) {
	tree := BuildTree(inputOf(readyRow("oslo", func(r *rollout.Row) {
		r.Status.Items = []atoll.ItemStatus{
			{Key: web, Health: atoll.Degraded, Reason: "CrashLoopBackOff", Message: "back-off", Since: at},
			{Key: secret, Health: atoll.Healthy},
			{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "of-an-older-revision"}, Health: atoll.Degraded},
		}
		r.Spec.Absent = []string{secret.String(), "no key"}
	})))
	got := tree.Clusters[0].Items
	if len(got) != 2 || got[0].Template != 0 || got[0].Health != atoll.Degraded || got[0].Message != "back-off" || got[0].Since == nil || got[1].Template != 1 || !got[1].Absent {
		t.Errorf("%+v", got)
	}
}

// A user that may not read the Secret gets nothing of it: neither its name nor the agent's words about the whole.
func TestHiddenTemplatesAreNowhere(t *testing.T) {
	in := inputOf(readyRow("oslo", func(r *rollout.Row) {
		r.Status.State, r.Status.Reason, r.Status.Message = atoll.RowFailed, atoll.ReasonFailed, "Secret keys: refused"
		r.Status.Items = []atoll.ItemStatus{{Key: secret, Health: atoll.Degraded, Error: true, Reason: "Invalid", Message: "keys"}, {Key: web, Health: atoll.Progressing}}
		r.Spec.Absent = []string{secret.String()}
	}), readyRow("rome", func(r *rollout.Row) {
		r.Spec.Phase, r.Spec.Reason = atoll.RowHeld, atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Text: "Secret keys goes"}.String()
	}))
	in.IsVisible = func(k atoll.ItemKey) bool { return k != secret }
	tree := BuildTree(in)
	if text := fmt.Sprintf("%+v", tree); strings.Contains(text, "keys") || strings.Contains(text, "Secret") {
		t.Error(text)
	}
	if tree.HiddenTemplates != 1 || len(tree.Templates) != 1 || tree.Clusters[0].State != Failed || len(tree.Clusters[0].Items) != 1 {
		t.Errorf("%+v", tree)
	}
}

// Each of any rows is counted once, the limit holds, and clusters with trouble come first.
func TestTreesOfRandomRows(t *testing.T) {
	phases := []atoll.RowPhase{atoll.RowActive, atoll.RowLeaving, atoll.RowHeld, atoll.RowRemoving, atoll.RowVacant, atoll.RowPending}
	states := []atoll.RowState{atoll.RowProgressing, atoll.RowReady, atoll.RowDegraded, atoll.RowFailed, atoll.RowRemoved, "Odd"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := inputOf()
		in.Limit = r.IntN(20)
		for i := range r.IntN(40) {
			in.Rows = append(in.Rows, readyRow(fmt.Sprint("c", i), func(row *rollout.Row) {
				row.Spec.Phase, row.Online, row.Spec.Generation = phases[r.IntN(len(phases))], r.IntN(3) > 0, int64(r.IntN(3))
				if row.Status.State = states[r.IntN(len(states))]; r.IntN(4) == 0 {
					row.Status = nil
				}
			}))
		}
		tree, counted, last := BuildTree(in), 0, 0
		for _, n := range tree.Counts {
			counted += n
		}
		if counted != len(tree.Clusters)+tree.MoreClusters || len(tree.Clusters) > in.Limit {
			t.Fatalf("seed %d: %d counted, %d listed of at most %d, %d more", seed, counted, len(tree.Clusters), in.Limit, tree.MoreClusters)
		}
		for _, c := range tree.Clusters {
			rank := strings.Index("Failed Degraded Away Waiting Progressing Removing Ready", string(c.State))
			if rank < last {
				t.Fatalf("seed %d: %s comes late", seed, c.State)
			}
			last = rank
			if c.State != Ready && c.Reason != "" && c.Actor == "" {
				t.Fatalf("seed %d: %s has a reason and no actor", seed, c.State)
			}
		}
	}
}
