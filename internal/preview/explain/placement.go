package explain

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// Chosen is what the requested Placement publishes, and the decision that the same
// function makes of it now.
type Chosen struct {
	UID      string
	Spec     v1alpha1.PlacementSpec
	Decision schedule.Decision
	// Published clusters, sorted.
	Published []string
}

// PlacementExplanation is about one Placement.
type PlacementExplanation struct {
	// Published clusters, sorted.
	Published []string `json:"published"`
	// Decision on every cluster.
	Decision BundleExplanation `json:"decision"`
}

func (in ExplanationInput) explainPlacement() *PlacementExplanation {
	if in.Chosen == nil {
		return nil
	}
	c := in.Chosen
	out := &PlacementExplanation{Published: c.Published, Decision: in.explainBundle(Bundle{
		Ref:  enginev1.BundleRef{UID: c.UID, Namespace: in.Object.Namespace, Name: in.Object.Name},
		Spec: v1alpha1.BundleSpec{Placement: c.Spec}, Decision: c.Decision,
	})}
	if out.Published == nil {
		out.Published = []string{}
	}
	return out
}

// choiceSentence returns a sentence on what a Placement does.
func (c *PlacementExplanation) choiceSentence() string {
	all := phrase.CountNoun(len(c.Decision.Clusters), "cluster")
	switch {
	case c.Decision.Nowhere:
		return "chooses no cluster, as it states"
	case c.Decision.Unmet != "":
		return "changes nothing, since its spread cannot be had: " + c.Decision.Unmet + keptClustersText(c.Published)
	case c.Decision.NoFit && len(c.Published) == 0:
		return fmt.Sprintf("chooses none of %s: no cluster fits", all)
	case c.Decision.NoFit:
		return "keeps what it chose, since no cluster fits any more: " + abbreviateNames(c.Published, maxNames)
	}
	return fmt.Sprintf("chooses %d of %s", len(c.Published), all)
}

func keptClustersText(published []string) string {
	if len(published) == 0 {
		return ""
	}
	return "; what it chose stays: " + abbreviateNames(published, maxNames)
}

// writePlacement writes which clusters are published and why, and why the others are not.
func (e Explanation) writePlacement(b *strings.Builder, all bool) {
	if e.Chosen == nil {
		return
	}
	x, folded := e.Chosen.Decision, maxNames
	if all {
		folded = max(len(x.Clusters), maxNames)
	}
	e.writePublished(b, all)
	writeAffinities(b, x.Affinities)
	x.writeSpread(b, folded)
	x.writeScores(b, folded)
	writeExcluded(b, x, folded)
}

// writePublished writes the published clusters, then those that are about to be.
func (e Explanation) writePublished(b *strings.Builder, all bool) {
	var table, upcoming strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	published := 0
	for _, c := range e.Chosen.Decision.Clusters {
		if _, in := slices.BinarySearch(e.Chosen.Published, c.Cluster); !in {
			if c.Verdict == schedule.OutcomePlaced {
				fmt.Fprintf(&upcoming, "  %s is chosen now, and about to be published.\n", c.Cluster)
			}
			continue
		}
		if published++; published <= maxRows || all {
			fmt.Fprintf(w, "  %s\t%s\n", c.Cluster, c.placementReason())
		}
	}
	if published > 0 {
		w.Flush()
		b.WriteString("\n  CLUSTER  WHY\n" + table.String())
	}
	if more := published - maxRows; more > 0 && !all {
		fmt.Fprintf(b, "  and %s more; %s\n", clusterCount(more), showAllHint)
	}
	b.WriteString(upcoming.String())
}

// isAboutBundle reports whether the Bundle is one of the requested ones, rather than
// one that merely holds the object.
func (in ExplanationInput) isAboutBundle(b Bundle) bool {
	return in.isAboutWholeBundles() && (!in.isAboutNamespace() || b.Ref.Namespace != "")
}
