package offline

import (
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Files with workloadAffinity come to what a hub would decide, one Bundle after the other.
func TestWorkloadAffinityOfFiles(t *testing.T) {
	deployment := func(namespace, name, tier string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: " + namespace + ", labels: {tier: " + tier + "}}\nspec: {replicas: 1}\n---\n"
	}
	policy := func(term string) string {
		return "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: p, namespace: shop}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], groupBy: {type: Object}, " +
			"placement: {maxClusters: 1, workloadAffinity: {" + term + ": {groupByLabelKey: tier}}}}\n---\n"
	}
	clusters := ""
	for _, name := range []string{"lima", "oslo", "tokyo"} {
		clusters += "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: " + name + "}\nspec: {accepted: true}\n---\n"
	}
	templates := deployment("shop", "a", "db") + deployment("shop", "b", "db") + deployment("shop", "c", "db") + deployment("shop", "d", "db") + deployment("shop", "w", "web")
	for term, want := range map[string]string{"affinity": "1 clusters, 0 nowhere", "antiAffinity": "3 clusters, 1 nowhere"} {
		var in []string
		nowhere, notes := 0, ""
		for _, b := range decideFiles(t, clusters+templates+policy(term)).Bundles {
			if b.Decision.NoFit {
				nowhere++
				notes = b.Decision.GroupRefusal.String()
			}
			if labels, _ := schedule.LabelsOfTemplates(b.Content); !slices.Equal(labels.ValuesOf("tier"), []string{"db"}) {
				continue
			}
			for _, v := range b.Decision.Verdicts {
				if v.Outcome == schedule.OutcomePlaced {
					in = append(in, v.Cluster)
				}
			}
		}
		slices.Sort(in)
		got := map[int]string{1: "1", 3: "3"}[len(slices.Compact(in))] + " clusters, " + map[int]string{0: "0", 1: "1"}[nowhere] + " nowhere"
		if got != want || nowhere == 1 && !strings.HasPrefix(notes, "kept apart from Deployment shop/") {
			t.Errorf("%s: %s (%s), want %s", term, got, notes, want)
		}
	}
}

// Files hold no decision, so that a Bundle gets none while its policy suspends scheduling, and takes no cluster from its group.
func TestSuspendedSchedulingOfFiles(t *testing.T) {
	policy := func(name, suspension string) string {
		return "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: " + name + "}], " + suspension +
			"placement: {workloadAffinity: {antiAffinity: {groupByLabelKey: tier}}}}\n---\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: shop, labels: {tier: db}}\n---\n"
	}
	const cluster = "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: oslo}\nspec: {accepted: true}\n---\n"
	out := decideFiles(t, cluster+policy("a", "suspension: {scheduling: true}, ")+policy("b", ""))
	if len(out.Bundles) != 2 {
		t.Fatalf("%d Bundles", len(out.Bundles))
	}
	for _, b := range out.Bundles {
		want, reason := schedule.OutcomePlaced, atoll.ReasonFits
		if b.Source.Name == "a" {
			want, reason = schedule.OutcomeOut, atoll.ReasonSchedulingSuspended
		}
		if v, _ := b.Decision.FindVerdict("oslo"); v.Outcome != want || v.ReasonCode() != reason {
			t.Errorf("%s: %s for %s", b.Source.Name, v, v.ReasonCode())
		}
	}
}
