package explain

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Chosen is what a Placement that was asked about publishes, and the decision that the same
// function makes of it now.
type Chosen struct {
	UID      string
	Spec     v1alpha1.PlacementSpec
	Decision schedule.Decision
	// Published clusters, sorted.
	Published []string
}

// ChosenExplanation is about one Placement.
type ChosenExplanation struct {
	// Published clusters, sorted.
	Published []string `json:"published"`
	// Decision on every cluster.
	Decision BundleExplanation `json:"decision"`
}

func (in Input) chosen() *ChosenExplanation {
	if in.Chosen == nil {
		return nil
	}
	c := in.Chosen
	out := &ChosenExplanation{Published: c.Published, Decision: in.bundle(Bundle{
		Ref:  enginev1.BundleRef{UID: c.UID, Namespace: in.Object.Namespace, Name: in.Object.Name},
		Spec: v1alpha1.BundleSpec{Placement: c.Spec}, Decision: c.Decision,
	})}
	if out.Published == nil {
		out.Published = []string{}
	}
	return out
}

// chooses says in a sentence what a Placement does.
func (c *ChosenExplanation) chooses() string {
	all := atoll.Count(len(c.Decision.Clusters), "cluster")
	switch {
	case c.Decision.Nowhere:
		return "chooses no cluster: that is what it asks for"
	case c.Decision.Unmet != "":
		return "changes nothing, since its spread cannot be had: " + c.Decision.Unmet + kept(c.Published)
	case c.Decision.NoFit && len(c.Published) == 0:
		return fmt.Sprintf("chooses none of %s: no cluster fits", all)
	case c.Decision.NoFit:
		return "keeps what it chose, since no cluster fits any more: " + some(c.Published, namesShown)
	}
	return fmt.Sprintf("chooses %d of %s", len(c.Published), all)
}

func kept(published []string) string {
	if len(published) == 0 {
		return ""
	}
	return "; what it chose stays: " + some(published, namesShown)
}

// placement tells which clusters are published and why, and why the others are not.
func (e Explanation) placement(b *strings.Builder, all bool) {
	if e.Chosen == nil {
		return
	}
	x, folded := e.Chosen.Decision, namesShown
	if all {
		folded = max(len(x.Clusters), namesShown)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	published := 0
	for _, c := range x.Clusters {
		if _, in := slices.BinarySearch(e.Chosen.Published, c.Cluster); !in {
			continue
		}
		if published++; published <= rowsShown || all {
			fmt.Fprintf(w, "  %s\t%s\n", c.Cluster, c.why())
		}
	}
	if published > 0 {
		w.Flush()
		b.WriteString("\n  CLUSTER  WHY\n" + table.String())
	}
	if more := published - rowsShown; more > 0 && !all {
		fmt.Fprintf(b, "  and %s more; %s\n", clusters(more), showAll)
	}
	for _, c := range x.Clusters {
		if _, in := slices.BinarySearch(e.Chosen.Published, c.Cluster); !in && c.Verdict == schedule.Placed {
			fmt.Fprintf(b, "  %s is chosen now, and about to be published.\n", c.Cluster)
		}
	}
	affinities(b, x.Affinities)
	x.spread(b, folded)
	x.scores(b, folded)
	notIn(b, x, folded)
}
