package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// showAllHint returns how to see what a text leaves out.
const showAllHint = "--all shows them, --cluster NAME one, -o json all"

// durationSinceText returns text such as " for 5m"; empty: not known since when.
func (e Explanation) durationSinceText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + e.formatAge(*t)
}

// writeWaits writes the waits of the Bundle as a whole.
func (e Explanation) writeWaits(b *strings.Builder, x BundleExplanation) {
	actor := "to act: " + atoll.DescribeSourceEditor(x.Source) + ", or a person that labels and taints clusters"
	switch {
	case x.Unmet != "":
		fmt.Fprintf(b, "  Nothing comes and what runs is kept as it is%s: %s; %s.\n", e.durationSinceText(x.WaitsSince), x.Unmet, actor)
	case x.NoFit:
		e.writeNoFit(b, x, actor)
	}
	e.writeQuarantine(b, x)
	if x.Unweighed {
		fmt.Fprintf(b, "  No entry of staticWeightList matches a cluster that is chosen, so that each keeps the replicas that it has; to act: %s.\n", atoll.DescribeSourceEditor(x.Source))
	}
	x.writeStaticWeightNotes(b)
	for _, s := range x.Short {
		if x.Unweighed {
			fmt.Fprintf(b, "  %d of %d replicas of %s have no place%s.\n", s.Unplaced, s.Replicas, s.Item, e.durationSinceText(x.WaitsSince))
			continue
		}
		at, actor := "its bounds", atoll.DescribeSourceEditor(x.Source)
		if slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return len(c.Capacity) > 0 }) {
			at, actor = "its bounds or its capacity", actor+", or a person that states the capacity of clusters"
		}
		fmt.Fprintf(b, "  %d of %d replicas of %s have no place%s: every cluster that fits is at %s; to act: %s.\n", s.Unplaced, s.Replicas, s.Item, e.durationSinceText(x.WaitsSince), at, actor)
		b.WriteString(s.fitText())
	}
	if x.WaitsFor != "" && !x.NoFit && len(x.Short) == 0 && !slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row != nil && c.Row.WaitsFor != "" }) {
		fmt.Fprintf(b, "  Waits%s for %s.\n", e.durationSinceText(x.WaitsSince), x.WaitsFor)
	}
}

// writeNoFit writes that no cluster fits, or that all that hold the Bundle are lost.
func (e Explanation) writeNoFit(b *strings.Builder, x BundleExplanation, actor string) {
	if x.isAllLost() {
		fmt.Fprintf(b, "  All clusters that hold it are lost%s, and no other can take their place; what runs is kept; to act: %s.\n", e.durationSinceText(x.WaitsSince), atoll.ActorMember)
		return
	}
	if x.isAllFailed() {
		fmt.Fprintf(b, "  The application is unhealthy%s in all clusters that hold it, and no other can take their place; what runs is kept; to act: %s.\n", e.durationSinceText(x.WaitsSince), atoll.ActorOf(atoll.ReasonFailoverUnreplaced))
		return
	}
	fmt.Fprintf(b, "  No cluster fits the placement%s%s; %s.\n", e.durationSinceText(x.WaitsSince), x.noFitConsequence(), actor)
}

// writeQuarantine writes why the Bundle is not rendered.
func (e Explanation) writeQuarantine(b *strings.Builder, x BundleExplanation) {
	if x.Quarantined != "" {
		fmt.Fprintf(b, "  Quarantined%s: %s; to act: %s.\n", e.durationSinceText(x.WaitsSince), x.Quarantined, atoll.ActorOf(atoll.ReasonQuarantined))
	}
}

// noFitConsequence returns the consequence that no cluster fits.
func (x BundleExplanation) noFitConsequence() string {
	switch {
	case len(x.Clusters) == 0:
		return "; there is no cluster that you may see"
	case slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row != nil }):
		return "; what runs is kept"
	}
	return ""
}

// isAllLost reports whether the hub tainted all clusters as lost that hold the Bundle.
func (x BundleExplanation) isAllLost() bool {
	isLost := false
	for _, c := range x.Clusters {
		if c.Row != nil && c.KeptLost == "" {
			return false
		}
		isLost = isLost || c.KeptLost != ""
	}
	return isLost
}

// writeAffinities lists the groups of clusterAffinities; there are 16 at most.
func writeAffinities(b *strings.Builder, groups []schedule.AffinityGroup) {
	if len(groups) == 0 {
		return
	}
	b.WriteString("  Groups of clusterAffinities, the most preferred first:\n")
	for _, g := range groups {
		s := "in use"
		switch {
		case g.TakesOverflow:
			s = "takes overflow: " + g.Why
		case !g.InUse:
			s = "not in use: " + g.Why
		}
		if g.Since != nil {
			s += "; it could be since " + phrase.FormatTime(*g.Since)
		}
		if g.Again != nil {
			s += ", and is used again from " + phrase.FormatTime(*g.Again) + " on if that lasts"
		}
		s += fittingClustersText(g)
		if g.Needs > 0 && g.InUse {
			s += fmt.Sprintf(", known room for %d of %d replicas", g.Room, g.Needs)
		}
		for i, r := range g.Refused {
			s += cmp.Or(map[int]string{0: "; refused: "}[i], ", ") + fmt.Sprintf("%d by %s", r.Clusters, r.Filter)
		}
		fmt.Fprintf(b, "    %s: %s\n", g.Name, s)
	}
}

// fittingClustersText counts the clusters of a group that fit, and those of them that are away; it is
// empty for none, since the reason why the group is not in use covers that.
func fittingClustersText(g schedule.AffinityGroup) string {
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

// writeSpread lists the groups of each constraint, those in which clusters were chosen first.
func (x BundleExplanation) writeSpread(b *strings.Builder, folded int) {
	if x.Choice == nil {
		return
	}
	for i, s := range x.Choice.Spread {
		c := s.Constraint
		fmt.Fprintf(b, "  spreadConstraints[%d] over %s", i, s.Over)
		for _, bound := range []struct {
			name string
			n    int32
		}{{"maxGroups", c.MaxGroups}, {"maxSkew", c.MaxSkew}, {"minGroups", c.MinGroups}} {
			if bound.n > 0 {
				fmt.Fprintf(b, ", %s %d", bound.name, bound.n)
			}
		}
		b.WriteString("\n")
		x.writeSpreadGroups(b, s.Groups, folded)
	}
}

func (x BundleExplanation) writeSpreadGroups(b *strings.Builder, groups []schedule.SpreadGroup, folded int) {
	var in, out []schedule.SpreadGroup
	for _, g := range groups {
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
		if x.Unmet != "" && g.Why == x.Unmet { // which is reported above
			fmt.Fprintf(b, "    %s: %d fit\n", g.Name, g.Fit)
		} else {
			fmt.Fprintf(b, "    %s: none chosen of %d that fit: %s\n", g.Name, g.Fit, g.Why)
		}
	}
	if more := len(in) - folded; more > 0 {
		fmt.Fprintf(b, "    and %s more with chosen clusters; %s\n", phrase.CountNoun(more, "group"), showAllHint)
	}
	if more := len(out) - folded; more > 0 {
		fmt.Fprintf(b, "    and %s more without; %s\n", phrase.CountNoun(more, "group"), showAllHint)
	}
}

// writeScores writes the scores of the clusters among which was chosen, the best first: those that were chosen,
// and those that were not, with why.
func (x BundleExplanation) writeScores(b *strings.Builder, folded int) {
	if x.Choice == nil {
		return
	}
	in, out := x.scoredClusters()
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
		fmt.Fprintf(w, "    %s\t%s\t%s\n", c.Cluster, strings.Join(c.Score.scoreCells(), "\t"), x.chosenCell(c))
	}
	w.Flush()
	if more := len(in) - folded; more > 0 {
		fmt.Fprintf(b, "    and %d more that were chosen; %s\n", more, showAllHint)
	}
	if more := len(out) - folded; more > 0 {
		fmt.Fprintf(b, "    and %d more that fit and were not; %s\n", more, showAllHint)
	}
}

// scoredClusters returns the clusters that have a score, the best first: those that are chosen, and the others.
func (x BundleExplanation) scoredClusters() (in, out []ClusterExplanation) {
	for _, c := range x.Clusters {
		switch {
		case c.Score == nil:
		case c.Verdict == schedule.OutcomePlaced || c.Verdict == schedule.OutcomeKept:
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
	return in, out
}

// chosenCell returns whether a cluster is chosen, and why not.
func (x BundleExplanation) chosenCell(c ClusterExplanation) string {
	switch {
	case c.Verdict == schedule.OutcomeKept:
		return "kept"
	case c.Verdict == schedule.OutcomePlaced:
		return "yes"
	case x.Unmet != "" && c.Reason == x.Unmet:
		return "no"
	}
	return "no: " + c.Reason
}

// String returns text such as "Chosen: 2 of 5 candidates, at most 2; the lowest score among them is 775
// (b1). Scores are of 1000, their mean by weight:".
func (c *Choice) String() string {
	s := fmt.Sprintf("Chosen: %d of %s", c.Chosen, phrase.CountNoun(c.Fit, "candidate"))
	if c.Most > 0 {
		s += fmt.Sprintf(", at most %d", c.Most)
	}
	if c.Fit == 0 {
		return s + "."
	}
	if c.Lowest != "" {
		s += fmt.Sprintf("; the lowest score among them is %s (%s)", formatPoints(c.LowestScore), c.Lowest)
	}
	if c.RoomFor > 0 {
		s += fmt.Sprintf("; room for %d replicas counts beside the scores, since those that score best have not enough", c.RoomFor)
	}
	return s + ". Scores are of 1000, their mean by weight:"
}

// scoreCells returns the cells of a score: the whole, then its parts.
func (s *Score) scoreCells() []string {
	total := formatPoints(s.Total)
	if s.Avoided > 0 {
		total += fmt.Sprintf(" (less %d for %s)", 200*s.Avoided, phrase.CountNoun(s.Avoided, "PreferNoSchedule taint"))
	}
	out := []string{total}
	for _, p := range s.Parts {
		cell := formatPoints(p.Points)
		if p.Of != "" {
			cell += " (" + p.Of + ")"
		}
		out = append(out, cell)
	}
	return out
}

func formatPoints(of1000 float64) string {
	return schedule.FormatScore(int64(math.Round(of1000 * 1000)))
}

// scoreAndGroupText returns the rank of a cluster among those that were chosen from, its decision group, and its
// step of overflow.
func (c ClusterExplanation) scoreAndGroupText() (text string) {
	if c.Score != nil {
		text += ", scores " + formatPoints(c.Score.Total)
	}
	if c.Group != "" {
		text += ", decision group " + c.Group
	}
	if c.OverflowStep > 0 {
		text += fmt.Sprintf(", takes overflow (step %d)", c.OverflowStep)
	}
	return text
}
