package apptree

import (
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

func heldRow(cluster, plan, text string) Row {
	return readyRow(cluster, func(r *rollout.Row) {
		r.Spec.Reason = atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Plan: plan, Text: text}.String()
	})
}

func describePlans(plans []Plan) string {
	var lines []string
	for _, p := range plans {
		line := fmt.Sprintf("%s of %d", p.Hash, p.Clusters)
		if p.Recalled {
			line += " recalled"
		}
		for _, part := range p.Parts {
			line += fmt.Sprintf(" [%s %q %s +%d]", part.Reason, part.Text, strings.Join(part.Clusters, ","), part.MoreClusters)
		}
		lines = append(lines, fmt.Sprintf("%s +%d", line, p.MoreParts))
	}
	return strings.Join(lines, "; ")
}

// Each plan that waits is listed with its whole content, also where the cluster is ready or left out of the tree.
func TestPlansThatWait(t *testing.T) {
	recalled := readyRow("york", func(r *rollout.Row) {
		r.Spec.Reason = atoll.RowReason{Reason: atoll.ReasonRemovedBeforeRestore, Plan: "b2", Text: "x"}.String()
	})
	rows := []Row{heldRow("rome", "a1", "PlacementEdited"), heldRow("oslo", "a1", "PlacementEdited"), heldRow("bonn", "a1", "/ConfigMap/shop/a\u202e"), recalled, readyRow("lima", nil)}
	const all = `a1 of 3 [RemovalHeld "/ConfigMap/shop/a\\u202e" bonn +0] [RemovalHeld "PlacementEdited" oslo,rome +0] +0; b2 of 1 recalled [RemovedBeforeRestore "x" york +0] +0`
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"all":                  {func(*Input) {}, all},
		"a tree of no cluster": {func(in *Input) { in.Limit, in.Cluster = 1, "lima" }, all},
		"an answered plan":     {func(in *Input) { in.Answered = []string{"a1", ""} }, `b2 of 1 recalled [RemovedBeforeRestore "x" york +0] +0`},
		"hidden templates": {func(in *Input) { in.IsVisible = func(k atoll.ItemKey) bool { return !k.IsSecret() } },
			`a1 of 3 [RemovalHeld "" bonn,oslo,rome +0] +0; b2 of 1 recalled [RemovedBeforeRestore "" york +0] +0`},
		"a hidden template goes": {func(in *Input) {
			in.Items, in.Removed = []atoll.ItemKey{web}, []atoll.ItemKey{secret}
			in.IsVisible = func(k atoll.ItemKey) bool { return !k.IsSecret() }
		}, `a1 of 3 [RemovalHeld "" bonn,oslo,rome +0] +0; b2 of 1 recalled [RemovedBeforeRestore "" york +0] +0`},
		"nothing waits": {func(in *Input) { in.Rows = in.Rows[4:] }, ""},
	} {
		in := inputOf(rows...)
		c.change(&in)
		if got := describePlans(BuildTree(in).Plans); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// A plan of a large fleet counts what it does not list.
func TestLargePlansAreBounded(t *testing.T) {
	var rows []Row
	for i := range maxPlanClusters + 5 {
		rows = append(rows, heldRow(fmt.Sprintf("a%05d", i), "a1", "same"))
	}
	for i := range maxPlanParts + 2 {
		rows = append(rows, heldRow(fmt.Sprintf("b%05d", i), "a1", fmt.Sprint(i)))
	}
	plans := BuildTree(inputOf(rows...)).Plans
	if len(plans) != 1 || len(plans[0].Parts) != maxPlanParts || plans[0].MoreParts != 3 || plans[0].Clusters != len(rows) ||
		len(plans[0].Parts[0].Clusters) != maxPlanClusters || plans[0].Parts[0].MoreClusters != 5 {
		t.Errorf("%d plans: %d parts and %d more, %d clusters", len(plans), len(plans[0].Parts), plans[0].MoreParts, plans[0].Clusters)
	}
}
