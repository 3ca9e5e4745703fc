package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// The lengths of a text about a fleet without all: the rows, unfinished ones first, and the names
// of clusters that one reason leaves out.
const (
	maxRows  = 50
	maxNames = 20
)

// FormatText formats the explanation for people: the verdict, the policy that places the object,
// each Bundle with its rows, the other clusters folded by reason, and the overrides. With all,
// nothing of a fleet is folded or only counted.
func (e Explanation) FormatText(all bool) string {
	var b strings.Builder
	b.WriteString(e.Verdict + "\n")
	if e.Holding != "" {
		fmt.Fprintf(&b, "The hub holds and sends nothing: %s. `atoll restore accept` ends that; to act: %s.\n", e.Holding, atoll.ActorHub)
	}
	e.writePolicyMatch(&b)
	e.writePolicy(&b)
	e.writePlacement(&b, all)
	e.writeScriptFailures(&b)
	for _, bundle := range e.Bundles {
		e.writeBundle(&b, bundle, all)
	}
	if e.MoreBundles > 0 {
		fmt.Fprintf(&b, "\nand %d more Bundles of it; `atoll get bundles -A` lists them\n", e.MoreBundles)
	}
	e.writeNamespaceSkippedObjects(&b, all)
	if c := e.LatestChange; c != nil {
		fmt.Fprintf(&b, "\nThe latest change (%s by %s at %s) can be taken back by `atoll undo` until %s.\n", c.Operation, phrase.EscapeLine(c.By), phrase.FormatTime(c.At), phrase.FormatTime(c.Until))
	}
	return b.String()
}

// writePolicy writes the requested policy: what it selects, and what is wrong with that.
func (e Explanation) writePolicy(b *strings.Builder) {
	if e.Policy == nil {
		return
	}
	if len(e.Policy.Selects) > 0 {
		fmt.Fprintf(b, "\nIt selects %s.\n", abbreviateNames(e.Policy.Selects, 10))
	}
	if e.Policy.Problem != "" && len(e.Bundles) > 0 {
		fmt.Fprintf(b, "  Not all of that is placed as it states: %s.\n", strings.TrimSuffix(e.Policy.Problem, "."))
	}
}

func (e Explanation) writePolicyMatch(b *strings.Builder) {
	c := e.PolicyMatch
	if c == nil {
		return
	}
	e.writeWinner(b)
	for _, o := range c.Others {
		fmt.Fprintf(b, "  Also selected by %s", o)
		if o.LostBecause != "" {
			fmt.Fprintf(b, ", which lost: %s", o.LostBecause)
		}
		b.WriteString(".\n")
	}
	if c.Skipped != "" {
		fmt.Fprintf(b, "  The annotation of its namespace leaves it out: %s.\n", c.Skipped)
	}
	if c.Winner == nil && len(e.Bundles) == 0 && e.DeletedAt == nil && !e.isNamespace() {
		e.writePlacingHelp(b)
	}
}

// writeWinner writes which policy or dependency places the object.
func (e Explanation) writeWinner(b *strings.Builder) {
	c := e.PolicyMatch
	if c.HubOnly != "" {
		fmt.Fprintf(b, "\nIt stays on the hub: %s.\n", c.HubOnly)
	}
	if c.Winner != nil && c.Parent != "" {
		fmt.Fprintf(b, "\nPlaced with its parent %s, by %s: %s.\n", c.Parent, c.Winner, c.Why)
	} else if c.Winner != nil && c.HubOnly != "" {
		fmt.Fprintf(b, "What controllers on the hub make of it is placed by %s: %s.\n", c.Winner, c.Why)
	} else if c.Winner != nil {
		fmt.Fprintf(b, "\nPlaced by %s: %s.\n", c.Winner, c.Why)
	} else if along := e.bundlesNeedingObject(); len(along) > 0 {
		fmt.Fprintf(b, "\nPlaced along with what needs it, in %s; by no policy itself: %s.\n", strings.Join(along, ", "), c.Why)
	} else if len(e.Bundles) > 0 && !e.isNamespace() {
		fmt.Fprintf(b, "\nPlaced by no policy: %s.\n", c.Why)
	}
}

// bundlesNeedingObject lists the Bundles that take the object along as a dependency.
func (e Explanation) bundlesNeedingObject() (out []string) {
	out = append(out, e.PolicyMatch.NeededBy...)
	for _, x := range e.Bundles {
		name := strings.TrimPrefix(x.Namespace+"/"+x.Name, "/")
		if x.Item == dependencyItem && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// writePlacingHelp writes how the object is placed.
func (e Explanation) writePlacingHelp(b *strings.Builder) {
	if e.namespaceBarred {
		fmt.Fprintf(b, `
Namespace %s may place on no cluster. A user that may bind cluster sets, which kubectl get clustersets
lists, has to bind it to one first:
  apiVersion: atoll.dev/v1alpha1
  kind: ClusterSetBinding
  metadata: {name: SET, namespace: %s}
  spec: {clusterSet: SET}
`, e.Namespace, e.Namespace)
		return
	}
	resource, n, policy := strings.ToLower(e.Kind), "", "ClusterPropagationPolicy"
	if e.Group != "" {
		resource += "." + e.Group
	}
	if e.Namespace != "" {
		n, policy = " -n "+e.Namespace, "PropagationPolicy"
	}
	fmt.Fprintf(b, "\nTo place it, annotate it with the clusters that it is for, * for all:\n  %s\nor write a policy:\n", atoll.PlaceEverywhereCommand(resource, e.Namespace, e.Name))
	version := strings.TrimPrefix(e.Group+"/"+cmp.Or(e.Version, "v1"), "/")
	fmt.Fprintf(b, `  apiVersion: atoll.dev/v1alpha1
  kind: %s
  metadata: {name: %s%s}
  spec:
    resourceSelectors: [{apiVersion: %s, kind: %s, name: %s}]
    placement: {clusterAffinity: {clusterNames: [CLUSTER]}}
`, policy, e.Name, strings.Replace(n, " -n ", ", namespace: ", 1), version, e.Kind, e.Name)
}

// shortName returns a name such as "PropagationPolicy web".
func (c Candidate) shortName() string {
	switch c.Kind {
	case v1alpha1.SourceAnnotation:
		if c.Selects != "" {
			return "the annotation of " + c.Selects
		}
		return "its own annotation"
	case v1alpha1.SourceNamespaceAnnotation:
		return "the annotation of namespace " + c.Name
	case v1alpha1.SourceHubSettings:
		return "the default placement of the hub"
	}
	return c.Kind + " " + c.Name
}

// String returns text such as "PropagationPolicy web (priority 5, by name)".
func (c Candidate) String() string {
	var notes []string
	if c.Priority != 0 {
		notes = append(notes, fmt.Sprintf("priority %d", c.Priority))
	}
	if c.Matched != "" {
		notes = append(notes, c.Matched)
	}
	s := c.shortName()
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return s
}

func (e Explanation) writeBundle(b *strings.Builder, x BundleExplanation, all bool) {
	name, ns := "clusterbundle/"+x.Name, ""
	if x.Namespace != "" {
		name, ns = "bundle/"+x.Name, " -n "+x.Namespace
	}
	b.WriteString("\nBundle " + strings.TrimPrefix(x.Namespace+"/"+x.Name, "/"))
	if x.Number > 0 {
		fmt.Fprintf(b, ", revision %d, %s", x.Number, phrase.CountNoun(x.Items, "item"))
	} else {
		b.WriteString(", no revision yet")
	}
	if x.Item != "" && x.Item != plainItem {
		fmt.Fprintf(b, "; this is %s", x.Item)
	}
	b.WriteString(".\n")
	if to := e.takeoverSource(x); to != "" {
		fmt.Fprintf(b, "  It is to go to the Bundle of %s, and stays in this one until it is healthy there.\n", to)
	}
	x.writeStrategy(b)
	writeTreatment(b, x.Treatment)
	x.writeInterpreters(b)
	e.writeWaits(b, x)
	x.Failover.writeText(b)
	e.writeRebalance(b, x.Rebalance)
	if x.Plan != nil {
		fmt.Fprintf(b, "  Removals wait for a confirmation%s: %s; to act: %s.\n  `atoll confirm %s%s --plan %s` releases exactly these.\n", e.durationSinceText(x.PlanSince), x.Plan.SummarizeLines(10), atoll.ActorConfirmer, name, ns, x.Plan.Hash)
	}
	e.writeRows(b, x, all)
	folded := maxNames
	if all {
		folded = max(len(x.Clusters), maxNames)
	}
	x.WorkloadAffinity.writeText(b)
	writeAffinities(b, x.Affinities)
	x.writeSpread(b, folded)
	x.writeScores(b, folded)
	writeExcluded(b, x, folded)
	writeOverrides(b, x.Clusters, folded)
}

// takeoverSource returns which policy or annotation takes the object over from the Bundle; empty: none.
func (e Explanation) takeoverSource(x BundleExplanation) string {
	if e.PolicyMatch == nil || e.PolicyMatch.Winner == nil || x.Item != plainItem && x.Item != dividedItem {
		return ""
	}
	if w := e.PolicyMatch.Winner; w.Kind != x.Source.Kind || w.Name != x.Source.Name {
		return w.shortName()
	}
	return ""
}

// isDone reports whether there is nothing to show of a row.
func (c ClusterExplanation) isDone() bool {
	return c.Row != nil && c.Row.WaitsFor == "" && c.Row.Reason == "" && c.Row.Problem == "" && !c.Row.OverridesWait
}

// writeRows writes the rows as a table, with what is waited for below each.
func (e Explanation) writeRows(b *strings.Builder, x BundleExplanation, all bool) {
	var shown []ClusterExplanation
	for _, c := range x.Clusters {
		if c.Row != nil || c.Verdict == schedule.OutcomePlaced {
			shown = append(shown, c)
		}
	}
	done, waiting := 0, 0
	if !all && len(shown) > maxRows {
		slices.SortStableFunc(shown, func(a, b ClusterExplanation) int {
			return cmp.Compare(fmt.Sprint(a.isDone()), fmt.Sprint(b.isDone()))
		})
		for _, c := range shown[maxRows:] {
			if c.isDone() {
				done++
			} else {
				waiting++
			}
		}
		shown = shown[:maxRows]
	}
	if len(shown) == 0 {
		return
	}
	e.writeRowTable(b, x, shown)
	if waiting > 0 {
		fmt.Fprintf(b, "  and %d more that are not done; --all shows them, --cluster NAME shows one\n", waiting)
	}
	if done > 0 {
		fmt.Fprintf(b, "  and %d more that are done\n", done)
	}
}

func (e Explanation) writeRowTable(b *strings.Builder, x BundleExplanation, shown []ClusterExplanation) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  CLUSTER\tWHY\tROW\tREVISION\tSTATE\tSINCE")
	for _, c := range shown {
		cells := "none yet"
		if c.Row != nil {
			cells = e.rowCells(c.Row)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Cluster, c.placementReason(), cells)
	}
	w.Flush()
	lines := strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
	b.WriteString(strings.TrimRight(lines[0], " ") + "\n")
	for i, c := range shown {
		b.WriteString(strings.TrimRight(lines[i+1], " ") + "\n")
		for _, note := range e.rowNotes(x, c) {
			b.WriteString("    - " + note + "\n")
		}
	}
}

func (c ClusterExplanation) placementReason() string {
	switch {
	case c.Verdict == schedule.OutcomePlaced && c.EvictAt != nil:
		return "fits until " + phrase.FormatTime(*c.EvictAt)
	case c.KeptLost != "":
		return "lost, and keeps its copy: " + c.KeptLost
	case c.DrainReason != "":
		return "drained, and keeps its copy: " + c.DrainText
	case c.FailureReason != "":
		return "unhealthy, and keeps its copy: " + c.FailureText
	case c.Verdict == schedule.OutcomePlaced:
		return "fits" + c.scoreAndGroupText() + c.divisionText()
	case c.Verdict == schedule.OutcomeKept:
		return "kept: " + c.Reason + c.capacityText()
	}
	return c.Reason
}

// capacityText returns the capacity that the cluster states, and how much of it is used.
func (c ClusterExplanation) capacityText() (text string) {
	for _, b := range c.Capacity {
		text += fmt.Sprintf(", %s %s of %s used", b.Path, b.Used, b.Stated)
		if b.Over {
			text += " (nothing more comes)"
		}
	}
	return text
}

// divisionText returns the parts that the cluster has in divisions.
func (c ClusterExplanation) divisionText() (text string) {
	if c.Weight > 1 {
		text += fmt.Sprintf(", weight %d", c.Weight)
	}
	if c.MinReplicas > 0 {
		text += fmt.Sprintf(", at least %d", c.MinReplicas)
	}
	if c.MaxReplicas > 0 {
		text += fmt.Sprintf(", at most %d", c.MaxReplicas)
	}
	for _, item := range slices.Sorted(maps.Keys(c.Room)) {
		text += fmt.Sprintf(", room for %d more of %s", c.Room[item], item[strings.LastIndexByte(item, '/')+1:])
	}
	if c.PodFit != "" {
		text += ", " + c.podFitText()
	}
	if c.RoomUnknown {
		text += ", room unknown"
	}
	if c.GetsNothingNew {
		text += ", disconnected (gets no new replicas)"
	}
	return text + c.capacityText()
}

func (e Explanation) rowCells(r *RowExplanation) string {
	revision := r.Revision
	if r.Number > 0 {
		revision = fmt.Sprint(r.Number)
	}
	state := r.stateText()
	switch {
	case !r.Online && r.DisconnectedSince != nil:
		state += ", away for " + e.formatAge(*r.DisconnectedSince)
	case !r.Online:
		state += ", away"
	case r.CheckIn != "":
		state += ", " + r.CheckIn
	}
	since := r.Since
	if r.StateSince != nil && r.Reported >= r.Generation && r.Phase == atoll.RowActive {
		since = *r.StateSince
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", r.Phase, revision, state, e.formatAge(since))
}

// stateText returns the state that the cluster reported, and the assigned replicas.
func (r *RowExplanation) stateText() string {
	state := cmp.Or(string(r.State), "not reported")
	if r.Health == atoll.Healthy && r.Problem != "" && r.ProblemReason != atoll.ReasonDrifted {
		state += " (its last good content: Healthy)"
	} else if r.Health != "" && r.Health != atoll.Unknown && string(r.Health) != state && r.State != atoll.RowReady {
		state += fmt.Sprintf(" (this: %s)", r.Health)
	}
	for _, item := range slices.Sorted(maps.Keys(r.Assigned)) {
		n, start := r.Assigned[item], r.Ordinals[item]
		state += fmt.Sprintf(", %s=%d", item[strings.LastIndexByte(item, '/')+1:], n)
		if _, ranged := r.Ordinals[item]; ranged && n > 0 {
			state += fmt.Sprintf(" (ordinals %d to %d)", start, start+n-1)
		} else if ranged {
			state += fmt.Sprintf(" (ordinals from %d)", start)
		}
	}
	return state
}

// actorTexts names the person or component that must act, where there is one.
var actorTexts = map[atoll.Actor]string{
	atoll.ActorAtoll: "Atoll goes on by itself",
	atoll.ActorAgent: "the agent there is at it",
}

// rowNotes returns the lines below a row: its wait, the time since then, the person that must act,
// and the effect of the next step.
func (e Explanation) rowNotes(x BundleExplanation, c ClusterExplanation) (out []string) {
	r := c.Row
	if r == nil && x.Number > 0 {
		return []string{"waits for Atoll to write its row, which it is about to" + e.durationSinceText(x.WaitsSince) + "; " + actorTexts[atoll.ActorAtoll]}
	} else if r == nil {
		return []string{"waits for the first revision of the Bundle" + e.durationSinceText(x.WaitsSince)}
	}
	if r.AgentProblem != "" {
		out = append(out, "the agent that the hub runs for the cluster: "+r.AgentProblem)
	}
	if r.WaitsFor != "" {
		state := "waits for " + r.WaitsFor
		if r.isReportedUnready() {
			state = r.WaitsFor
		}
		who := actorTexts[r.Who]
		if who == "" {
			who = "to act: " + string(r.Who)
		}
		out = append(out, fmt.Sprintf("%s; for %s; %s", state, e.formatAge(*r.WaitsSince), who))
	}
	_, message, _ := strings.Cut(r.Problem, ": ")
	if r.Problem != "" && !strings.Contains(r.WaitsFor, cmp.Or(message, r.Problem)) {
		out = append(out, "this: "+r.Problem)
	}
	out = append(out, r.feedbackNotes()...)
	out = append(out, e.approvalNotes(r)...)
	if r.OverridesWait {
		out = append(out, "keeps its overrides until the next change: those that are newer are of a policy with apply: WithNextChange")
	}
	if r.Next != "" {
		out = append(out, "next: "+r.Next)
	}
	return out
}

// feedbackNotes returns the line about the values that the cluster reports, and the line about its completion.
func (r *RowExplanation) feedbackNotes() (out []string) {
	var values []string
	for _, v := range r.Feedback {
		text := v.Name + "=" + phrase.EscapeLine(v.Value)
		if v.Problem != "" {
			text = v.Name + " has no value (" + phrase.EscapeLine(v.Problem) + ")"
		}
		values = append(values, text)
	}
	if len(values) > 0 {
		out = append(out, "feedback: "+strings.Join(values, ", "))
	}
	if r.Completed {
		out = append(out, "ran to completion")
	}
	return out
}

// approvalNotes returns the line about an approval that the cluster has not answered; nil without one.
func (e Explanation) approvalNotes(r *RowExplanation) []string {
	if r.Approval == nil {
		return nil
	}
	age := ""
	if at := r.Approval.At; at != nil {
		age = " " + e.formatAge(*at) + " ago"
	}
	return []string{fmt.Sprintf("%s approved%s that the cluster corrects what it reported", phrase.EscapeLine(cmp.Or(r.Approval.By, "a user")), age)}
}

// isReportedUnready reports whether what it waits for is worded as what is wrong.
func (r *RowExplanation) isReportedUnready() bool {
	switch r.State {
	case atoll.RowFailed, atoll.RowDegraded, atoll.RowProgressing:
		return r.Phase == atoll.RowActive && r.Reported == r.Generation && r.Online && r.Reason == ""
	}
	return false
}

// formatAge formats an age such as "4d", "3h", "12m" or "5s".
func (e Explanation) formatAge(t time.Time) string {
	d := max(e.now.Sub(t), 0)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// writeExcluded folds the clusters without a row by the reason for which they have none; those
// that were not chosen are among the scores.
func writeExcluded(b *strings.Builder, x BundleExplanation, folded int) {
	by := map[string][]string{}
	for _, c := range x.Clusters {
		if c.Row == nil && c.Verdict != schedule.OutcomePlaced && !x.isUnchosenCandidate(c) {
			reason := fmt.Sprintf("%s [%s]", c.Reason, c.Filter)
			by[reason] = append(by[reason], c.Cluster)
		}
	}
	if len(by)+len(x.Unknown) == 0 {
		return
	}
	b.WriteString("  Not in:\n")
	if len(x.Unknown) > 0 {
		fmt.Fprintf(b, "    %s: named by the placement, and no cluster that you may see\n", abbreviateNames(x.Unknown, folded))
	}
	reasons := slices.SortedFunc(maps.Keys(by), func(x, y string) int {
		return cmp.Or(len(by[y])-len(by[x]), strings.Compare(x, y))
	})
	more := 0
	for _, reason := range reasons[min(folded, len(reasons)):] {
		more += len(by[reason])
	}
	for _, reason := range reasons[:min(folded, len(reasons))] {
		fmt.Fprintf(b, "    %s: %s\n", abbreviateNames(by[reason], folded), reason)
	}
	if more > 0 {
		fmt.Fprintf(b, "    and %s for %s more; %s\n", clusterCount(more), phrase.CountNoun(len(reasons)-folded, "reason"), showAllHint)
	}
}

// writeNamespaceSkippedObjects lists what the namespace's annotation leaves out, where the request is
// about the namespace.
func (e Explanation) writeNamespaceSkippedObjects(b *strings.Builder, all bool) {
	if len(e.Skipped) == 0 {
		return
	}
	ns := e.Namespace
	if e.isNamespace() {
		ns = e.Name
	}
	whole := slices.ContainsFunc(e.Bundles, func(x BundleExplanation) bool {
		return x.Item == "" && x.Source.Kind == v1alpha1.SourceNamespaceAnnotation
	})
	if !e.isNamespace() && !whole {
		if e.PolicyMatch != nil && e.PolicyMatch.Winner != nil && e.PolicyMatch.Winner.Kind == v1alpha1.SourceNamespaceAnnotation {
			fmt.Fprintf(b, "\nThe annotation of namespace %s leaves out %d objects; `atoll explain namespace/%s` lists them.\n", ns, len(e.Skipped), ns)
		}
		return
	}
	fmt.Fprintf(b, "\nLeft out by the annotation of namespace %s (%s: %q):\n", ns, atoll.AnnotationClusters, e.Annotation)
	shown := e.Skipped
	if !all {
		shown = shown[:min(len(shown), maxRows)]
	}
	for _, s := range shown {
		fmt.Fprintf(b, "  %s/%s: %s\n", s.Key.Kind, s.Key.Name, s.Why)
	}
	if more := len(e.Skipped) - len(shown); more > 0 {
		fmt.Fprintf(b, "  and %d more; --all shows them\n", more)
	}
}
