package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// showAll tells how to see what a text leaves out.
const showAll = "--all shows them, --cluster NAME one, -o json all"

// ago such as " for 5m"; empty: not known since when.
func (e Explanation) ago(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + e.age(*t)
}

// waits of the Bundle as a whole.
func (e Explanation) waits(b *strings.Builder, x BundleExplanation) {
	who := "to act: " + x.owner() + ", or who labels and taints clusters"
	switch {
	case x.Unmet != "":
		fmt.Fprintf(b, "  Nothing comes and what runs is kept as it is%s: %s; %s.\n", e.ago(x.WaitsSince), x.Unmet, who)
	case x.NoFit:
		fmt.Fprintf(b, "  No cluster fits the placement%s%s; %s.\n", e.ago(x.WaitsSince), x.besides(), who)
	}
	if x.Unweighed {
		fmt.Fprintf(b, "  No entry of staticWeightList matches a cluster that is chosen, so that each keeps the replicas that it has; to act: %s.\n", x.owner())
	}
	for _, s := range x.Short {
		if x.Unweighed {
			fmt.Fprintf(b, "  %d of %d replicas of %s have no place%s.\n", s.Unplaced, s.Replicas, s.Item, e.ago(x.WaitsSince))
			continue
		}
		at, who := "its bounds", x.owner()
		if slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return len(c.Capacity) > 0 }) {
			at, who = "its bounds or its capacity", who+", or who states the capacity of clusters"
		}
		fmt.Fprintf(b, "  %d of %d replicas of %s have no place%s: every cluster that fits is at %s; to act: %s.\n", s.Unplaced, s.Replicas, s.Item, e.ago(x.WaitsSince), at, who)
	}
	if x.WaitsFor != "" && !x.NoFit && len(x.Short) == 0 && !slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row != nil && c.Row.WaitsFor != "" }) {
		fmt.Fprintf(b, "  Waits%s for %s.\n", e.ago(x.WaitsSince), x.WaitsFor)
	}
}

// owner of the placement, who may edit it.
func (x BundleExplanation) owner() string {
	switch x.Source.Kind {
	case v1alpha1.SourceAnnotation, v1alpha1.SourceNamespaceAnnotation:
		return "who wrote the annotation"
	}
	return "the policy's owner"
}

// besides that no cluster fits.
func (x BundleExplanation) besides() string {
	switch {
	case len(x.Clusters) == 0:
		return "; there is no cluster that you may know of"
	case slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row != nil }):
		return "; what runs is kept"
	}
	return ""
}

// affinities lists the groups of clusterAffinities; there are 16 at most.
func affinities(b *strings.Builder, groups []schedule.AffinityGroup) {
	if len(groups) == 0 {
		return
	}
	b.WriteString("  Groups of clusterAffinities, the most preferred first:\n")
	for _, g := range groups {
		s := "in use"
		if !g.InUse {
			s = "not in use: " + g.Why
		}
		if g.Since != nil {
			s += "; it could be since " + g.Since.UTC().Format(time.RFC3339)
		}
		if g.Again != nil {
			s += ", and is used again from " + g.Again.UTC().Format(time.RFC3339) + " on if that lasts"
		}
		s += fits(g)
		if g.Needs > 0 && g.InUse {
			s += fmt.Sprintf(", known room for %d of %d replicas", g.Room, g.Needs)
		}
		for i, r := range g.Refused {
			s += cmp.Or(map[int]string{0: "; refused: "}[i], ", ") + fmt.Sprintf("%d by %s", r.Clusters, r.Filter)
		}
		fmt.Fprintf(b, "    %s: %s\n", g.Name, s)
	}
}

// fits counts the clusters of a group that fit, and those of them that are away; of none
// nothing is said, since why the group is not in use says that.
func fits(g schedule.AffinityGroup) string {
	away := g.Fit - g.Healthy
	switch {
	case g.Fit == 0:
		return ""
	case g.Fit == 1 && away == 1:
		return "; 1 cluster fits, and is not in touch"
	case g.Fit == 1:
		return "; 1 cluster fits"
	case away > 0:
		return fmt.Sprintf("; %d clusters fit, %d of them not in touch", g.Fit, away)
	}
	return fmt.Sprintf("; %d clusters fit", g.Fit)
}

// spread lists the groups of each constraint, those in which clusters were chosen first.
func (x BundleExplanation) spread(b *strings.Builder, folded int) {
	if x.Choice == nil {
		return
	}
	for i, s := range x.Choice.Spread {
		c, bounds := s.Constraint, []string{}
		for name, n := range map[string]int32{"minGroups": c.MinGroups, "maxGroups": c.MaxGroups, "maxSkew": c.MaxSkew} {
			if n > 0 {
				bounds = append(bounds, fmt.Sprintf("%s %d", name, n))
			}
		}
		slices.Sort(bounds)
		fmt.Fprintf(b, "  spreadConstraints[%d] over %s\n", i, strings.Join(append([]string{s.Over}, bounds...), ", "))
		var in, out []schedule.SpreadGroup
		for _, g := range s.Groups {
			if g.Chosen > 0 {
				in = append(in, g)
			} else {
				out = append(out, g)
			}
		}
		slices.SortStableFunc(in, func(a, b schedule.SpreadGroup) int { return b.Chosen - a.Chosen })
		for _, g := range in[:min(len(in), folded)] {
			fmt.Fprintf(b, "    %s: %d chosen of %d that fit\n", g.Name, g.Chosen, g.Fit)
		}
		for _, g := range out[:min(len(out), folded)] {
			if x.Unmet != "" && g.Why == x.Unmet { // which is told above
				fmt.Fprintf(b, "    %s: %d fit\n", g.Name, g.Fit)
			} else {
				fmt.Fprintf(b, "    %s: none chosen of %d that fit: %s\n", g.Name, g.Fit, g.Why)
			}
		}
		if more := max(len(in)-folded, 0); more > 0 {
			fmt.Fprintf(b, "    and %s more with chosen clusters; %s\n", atoll.Count(more, "group"), showAll)
		}
		if more := max(len(out)-folded, 0); more > 0 {
			fmt.Fprintf(b, "    and %s more without; %s\n", atoll.Count(more, "group"), showAll)
		}
	}
}

// scores of the clusters among which was chosen, the best first: those that were chosen,
// and those that were not, with why.
func (x BundleExplanation) scores(b *strings.Builder, folded int) {
	if x.Choice == nil {
		return
	}
	var in, out []ClusterExplanation
	for _, c := range x.Clusters {
		switch {
		case c.Score == nil:
		case c.Verdict == schedule.Placed || c.Verdict == schedule.Kept:
			in = append(in, c)
		default:
			out = append(out, c)
		}
	}
	byScore := func(a, b ClusterExplanation) int {
		return cmp.Or(cmp.Compare(b.Score.Total, a.Score.Total), strings.Compare(a.Cluster, b.Cluster))
	}
	slices.SortFunc(in, byScore)
	slices.SortFunc(out, byScore)
	b.WriteString("  " + x.Choice.String() + "\n")
	if len(in)+len(out) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "    CLUSTER\tSCORE")
	for _, s := range x.Choice.Scores {
		fmt.Fprintf(w, "\t%s x%d", strings.ToUpper(s.Name), s.Weight)
	}
	fmt.Fprintln(w, "\tCHOSEN")
	for _, c := range slices.Concat(in[:min(len(in), folded)], out[:min(len(out), folded)]) {
		chosen := "yes"
		switch {
		case c.Verdict == schedule.Kept:
			chosen = "kept"
		case c.Verdict != schedule.Placed && x.Unmet != "" && c.Reason == x.Unmet:
			chosen = "no"
		case c.Verdict != schedule.Placed:
			chosen = "no: " + c.Reason
		}
		fmt.Fprintf(w, "    %s\t%s\t%s\n", c.Cluster, strings.Join(c.Score.cells(), "\t"), chosen)
	}
	w.Flush()
	if more := max(len(in)-folded, 0); more > 0 {
		fmt.Fprintf(b, "    and %d more that were chosen; %s\n", more, showAll)
	}
	if more := max(len(out)-folded, 0); more > 0 {
		fmt.Fprintf(b, "    and %d more that fit and were not; %s\n", more, showAll)
	}
}

// String such as "Chosen: 2 of 5 candidates, at most 2; the lowest score among them is 775
// (b1). Scores are of 1000, their mean by weight:".
func (c *Choice) String() string {
	s := fmt.Sprintf("Chosen: %d of %s", c.Chosen, atoll.Count(c.Fit, "candidate"))
	if c.Most > 0 {
		s += fmt.Sprintf(", at most %d", c.Most)
	}
	if c.Fit == 0 {
		return s + "."
	}
	if c.Lowest != "" {
		s += fmt.Sprintf("; the lowest score among them is %s (%s)", points(c.LowestScore), c.Lowest)
	}
	if c.RoomFor > 0 {
		s += fmt.Sprintf("; room for %d replicas counts beside the scores, since those that score best have not enough", c.RoomFor)
	}
	return s + ". Scores are of 1000, their mean by weight:"
}

// cells of a score: the whole, then its parts.
func (s *Score) cells() []string {
	total := points(s.Total)
	if s.Avoided > 0 {
		total += fmt.Sprintf(" (less %d for %s)", 200*s.Avoided, atoll.Count(s.Avoided, "PreferNoSchedule taint"))
	}
	out := []string{total}
	for _, p := range s.Parts {
		cell := points(p.Points)
		if p.Of != "" {
			cell += " (" + p.Of + ")"
		}
		out = append(out, cell)
	}
	return out
}

func points(of1000 float64) string { return schedule.Points(int64(math.Round(of1000 * 1000))) }

// rank of a cluster among those that were chosen from, and its decision group.
func (c ClusterExplanation) rank() (text string) {
	if c.Score != nil {
		text += ", scores " + points(c.Score.Total)
	}
	if c.Group != "" {
		text += ", decision group " + c.Group
	}
	return text
}
