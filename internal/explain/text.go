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
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// What a text shows of a fleet unless all is asked for: so many rows, those that are
// not done first, and so many names of clusters that one reason leaves out.
const (
	rowsShown  = 50
	namesShown = 20
)

// Text for people: the verdict first, then who places the object, then each Bundle
// with its rows, the clusters that are left out folded by reason, and what overrides
// set. With all, nothing of a fleet is folded or left to a count.
func (e Explanation) Text(all bool) string {
	var b strings.Builder
	b.WriteString(e.Verdict + "\n")
	if e.Holding != "" {
		fmt.Fprintf(&b, "The hub holds and sends nothing: %s. `atoll restore accept` ends that; to act: %s.\n", e.Holding, rollout.WhoHub)
	}
	e.claim(&b)
	e.policy(&b)
	e.placement(&b, all)
	e.failures(&b)
	for _, bundle := range e.Bundles {
		e.bundle(&b, bundle, all)
	}
	if e.MoreBundles > 0 {
		fmt.Fprintf(&b, "\nand %d more Bundles of it; `atoll get bundles -A` lists them\n", e.MoreBundles)
	}
	e.leftOut(&b, all)
	return b.String()
}

// policy that was asked about: what it selects, and what is wrong with that.
func (e Explanation) policy(b *strings.Builder) {
	if e.Policy == nil {
		return
	}
	if len(e.Policy.Selects) > 0 {
		fmt.Fprintf(b, "\nIt selects %s.\n", some(e.Policy.Selects, 10))
	}
	if e.Policy.Problem != "" && len(e.Bundles) > 0 {
		fmt.Fprintf(b, "  Not all of that is placed as it says: %s.\n", strings.TrimSuffix(e.Policy.Problem, "."))
	}
}

func (e Explanation) claim(b *strings.Builder) {
	c := e.Claim
	if c == nil {
		return
	}
	if c.Winner != nil {
		fmt.Fprintf(b, "\nPlaced by %s: %s.\n", c.Winner, c.Why)
	} else if along := e.along(); len(along) > 0 {
		fmt.Fprintf(b, "\nPlaced along with what needs it, in %s; itself by nobody: %s.\n", strings.Join(along, ", "), c.Why)
	} else if len(e.Bundles) > 0 && !e.space() {
		fmt.Fprintf(b, "\nPlaced by nobody: %s.\n", c.Why)
	}
	for _, o := range c.Others {
		fmt.Fprintf(b, "  Also selected by %s", o)
		if o.Lost != "" {
			fmt.Fprintf(b, ", which lost: %s", o.Lost)
		}
		b.WriteString(".\n")
	}
	if c.Skipped != "" {
		fmt.Fprintf(b, "  The annotation of its namespace leaves it out: %s.\n", c.Skipped)
	}
	if c.Winner == nil && len(e.Bundles) == 0 && e.DeletedAt == nil && !e.space() {
		e.invite(b)
	}
}

// along lists the Bundles that take the object along as a dependency.
func (e Explanation) along() (out []string) {
	out = append(out, e.Claim.NeededBy...)
	for _, x := range e.Bundles {
		name := strings.TrimPrefix(x.Namespace+"/"+x.Name, "/")
		if x.Item == dependency && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// invite says how an object is placed.
func (e Explanation) invite(b *strings.Builder) {
	if e.barred {
		fmt.Fprintf(b, `
Namespace %s may place on no cluster. Who may bind cluster sets, which kubectl get clustersets
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
	fmt.Fprintf(b, "\nTo place it, annotate it with the clusters that it is for, * for all:\n  kubectl annotate %s/%s%s %s='*'\nor write a policy:\n", resource, e.Name, n, atoll.AnnotationClusters)
	version := strings.TrimPrefix(e.Group+"/"+cmp.Or(e.Version, "v1"), "/")
	fmt.Fprintf(b, `  apiVersion: atoll.dev/v1alpha1
  kind: %s
  metadata: {name: %s%s}
  spec:
    resourceSelectors: [{apiVersion: %s, kind: %s, name: %s}]
    placement: {clusterAffinity: {clusterNames: [CLUSTER]}}
`, policy, e.Name, strings.Replace(n, " -n ", ", namespace: ", 1), version, e.Kind, e.Name)
}

// short such as "PropagationPolicy web".
func (c Candidate) short() string {
	switch c.Kind {
	case v1alpha1.SourceAnnotation:
		return "its own annotation"
	case v1alpha1.SourceNamespaceAnnotation:
		return "the annotation of namespace " + c.Name
	}
	return c.Kind + " " + c.Name
}

// String such as "PropagationPolicy web (priority 5, by name)".
func (c Candidate) String() string {
	var notes []string
	if c.Priority != 0 {
		notes = append(notes, fmt.Sprintf("priority %d", c.Priority))
	}
	if c.Matched != "" {
		notes = append(notes, c.Matched)
	}
	s := c.short()
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return s
}

func (e Explanation) bundle(b *strings.Builder, x BundleExplanation, all bool) {
	name, ns := "clusterbundle/"+x.Name, ""
	if x.Namespace != "" {
		name, ns = "bundle/"+x.Name, " -n "+x.Namespace
	}
	b.WriteString("\nBundle " + strings.TrimPrefix(x.Namespace+"/"+x.Name, "/"))
	if x.Number > 0 {
		fmt.Fprintf(b, ", revision %d, %s", x.Number, atoll.Count(x.Items, "item"))
	} else {
		b.WriteString(", no revision yet")
	}
	if x.Item != "" && x.Item != plainItem {
		fmt.Fprintf(b, "; this is %s", x.Item)
	}
	b.WriteString(".\n")
	if to := e.moves(x); to != "" {
		fmt.Fprintf(b, "  It is to go to the Bundle of %s, and stays in this one until it is healthy there.\n", to)
	}
	x.interpreted(b)
	e.waits(b, x)
	e.rebalance(b, x.Rebalance)
	if x.Plan != nil {
		fmt.Fprintf(b, "  Removals wait for a confirmation%s: %s; to act: %s.\n  `atoll confirm %s%s --plan %s` releases exactly these.\n", e.ago(x.PlanSince), x.Plan.Summary(10), rollout.WhoConfirm, name, ns, x.Plan.Hash)
	}
	e.rows(b, x, all)
	folded := namesShown
	if all {
		folded = max(len(x.Clusters), namesShown)
	}
	affinities(b, x.Affinities)
	x.spread(b, folded)
	x.scores(b, folded)
	notIn(b, x, folded)
	overrides(b, x.Clusters, folded)
}

// moves tells which policy or annotation takes the object over from the Bundle; empty: none.
func (e Explanation) moves(x BundleExplanation) string {
	if e.Claim == nil || e.Claim.Winner == nil || x.Item != plainItem && x.Item != dividedItem {
		return ""
	}
	if w := e.Claim.Winner; w.Kind != x.Source.Kind || w.Name != x.Source.Name {
		return w.short()
	}
	return ""
}

// done tells rows of which there is nothing to say.
func (c ClusterExplanation) done() bool {
	return c.Row != nil && c.Row.WaitsFor == "" && c.Row.Reason == "" && c.Row.Problem == "" && !c.Row.OverridesWait
}

// rows as a table, with what is waited for below each.
func (e Explanation) rows(b *strings.Builder, x BundleExplanation, all bool) {
	var shown []ClusterExplanation
	for _, c := range x.Clusters {
		if c.Row != nil || c.Verdict == schedule.Placed {
			shown = append(shown, c)
		}
	}
	done, waiting := 0, 0
	if !all && len(shown) > rowsShown {
		slices.SortStableFunc(shown, func(a, b ClusterExplanation) int {
			return cmp.Compare(fmt.Sprint(a.done()), fmt.Sprint(b.done()))
		})
		for _, c := range shown[rowsShown:] {
			if c.done() {
				done++
			} else {
				waiting++
			}
		}
		shown = shown[:rowsShown]
	}
	if len(shown) == 0 {
		return
	}
	e.table(b, x, shown)
	if waiting > 0 {
		fmt.Fprintf(b, "  and %d more that are not done; --all shows them, --cluster NAME shows one\n", waiting)
	}
	if done > 0 {
		fmt.Fprintf(b, "  and %d more that are done\n", done)
	}
}

func (e Explanation) table(b *strings.Builder, x BundleExplanation, shown []ClusterExplanation) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  CLUSTER\tWHY\tROW\tREVISION\tSTATE\tSINCE")
	for _, c := range shown {
		cells := "none yet"
		if c.Row != nil {
			cells = e.cells(c.Row)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Cluster, c.why(), cells)
	}
	w.Flush()
	lines := strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
	b.WriteString(strings.TrimRight(lines[0], " ") + "\n")
	for i, c := range shown {
		b.WriteString(strings.TrimRight(lines[i+1], " ") + "\n")
		for _, note := range e.notes(x, c) {
			b.WriteString("    - " + note + "\n")
		}
	}
}

func (c ClusterExplanation) why() string {
	switch {
	case c.Verdict == schedule.Placed && c.EvictAt != nil:
		return "fits until " + c.EvictAt.UTC().Format(time.RFC3339)
	case c.Verdict == schedule.Placed:
		return "fits" + c.rank() + c.part()
	case c.Verdict == schedule.Kept:
		return "kept: " + c.Reason + c.capacity()
	}
	return c.Reason
}

// capacity that the cluster states, and how much of it is used.
func (c ClusterExplanation) capacity() (text string) {
	for _, b := range c.Capacity {
		text += fmt.Sprintf(", %s %s of %s used", b.Path, b.Used, b.Stated)
		if b.Over {
			text += " (nothing more comes)"
		}
	}
	return text
}

// part that the cluster has in divisions.
func (c ClusterExplanation) part() (text string) {
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
	if c.RoomUnknown {
		text += ", room unknown"
	}
	return text + c.capacity()
}

func (e Explanation) cells(r *RowExplanation) string {
	revision := r.Revision
	if r.Number > 0 {
		revision = fmt.Sprint(r.Number)
	}
	state := cmp.Or(string(r.State), "not reported")
	if r.Health == atoll.Healthy && r.Problem != "" {
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
	switch {
	case !r.Online && r.AwaySince != nil:
		state += ", away for " + e.age(*r.AwaySince)
	case !r.Online:
		state += ", away"
	case r.CheckIn != "":
		state += ", " + r.CheckIn
	}
	since := r.Since
	if r.StateSince != nil && r.Reported >= r.Generation && r.Phase == atoll.RowActive {
		since = *r.StateSince
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", r.Phase, revision, state, e.age(since))
}

// acts says who is to act, where anybody is.
var acts = map[string]string{
	rollout.WhoAtoll: "Atoll goes on by itself",
	rollout.WhoAgent: "the agent there is at it",
}

// notes below a row: what it waits for, since when and who must act, and what the
// next step does.
func (e Explanation) notes(x BundleExplanation, c ClusterExplanation) (out []string) {
	r := c.Row
	if r == nil && x.Number > 0 {
		return []string{"waits for Atoll to write its row, which it is about to" + e.ago(x.WaitsSince) + "; " + acts[rollout.WhoAtoll]}
	} else if r == nil {
		return []string{"waits for the first revision of the Bundle" + e.ago(x.WaitsSince)}
	}
	if r.AgentKept != "" {
		out = append(out, "the agent that the hub runs for the cluster: "+r.AgentKept)
	}
	if r.WaitsFor != "" {
		state := "waits for " + r.WaitsFor
		if r.failing() {
			state = r.WaitsFor
		}
		who := acts[r.Who]
		if who == "" {
			who = "to act: " + r.Who
		}
		out = append(out, fmt.Sprintf("%s; for %s; %s", state, e.age(*r.WaitsSince), who))
	}
	_, message, _ := strings.Cut(r.Problem, ": ")
	if r.Problem != "" && !strings.Contains(r.WaitsFor, cmp.Or(message, r.Problem)) {
		out = append(out, "this: "+r.Problem)
	}
	if r.OverridesWait {
		out = append(out, "keeps its overrides until the next change: those that are newer are of a policy with apply: WithNextChange")
	}
	if r.Next != "" {
		out = append(out, "next: "+r.Next)
	}
	return out
}

// failing tells whether what it waits for is worded as what is wrong.
func (r *RowExplanation) failing() bool {
	switch r.State {
	case atoll.RowFailed, atoll.RowDegraded, atoll.RowProgressing:
		return r.Phase == atoll.RowActive && r.Reported == r.Generation && r.Online && r.Reason == ""
	}
	return false
}

// age such as "4d", "3h", "12m" or "5s".
func (e Explanation) age(t time.Time) string {
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

// notIn folds the clusters without a row by the reason for which they have none; those
// that were not chosen are among the scores.
func notIn(b *strings.Builder, x BundleExplanation, folded int) {
	by := map[string][]string{}
	for _, c := range x.Clusters {
		if c.Row == nil && c.Verdict != schedule.Placed && !x.among(c) {
			reason := fmt.Sprintf("%s [%s]", c.Reason, c.Filter)
			by[reason] = append(by[reason], c.Cluster)
		}
	}
	if len(by)+len(x.Unknown) == 0 {
		return
	}
	b.WriteString("  Not in:\n")
	if len(x.Unknown) > 0 {
		fmt.Fprintf(b, "    %s: named by the placement, and no cluster that you may know of\n", some(x.Unknown, folded))
	}
	reasons := slices.SortedFunc(maps.Keys(by), func(x, y string) int {
		return cmp.Or(len(by[y])-len(by[x]), strings.Compare(x, y))
	})
	more := 0
	for _, reason := range reasons[min(folded, len(reasons)):] {
		more += len(by[reason])
	}
	for _, reason := range reasons[:min(folded, len(reasons))] {
		fmt.Fprintf(b, "    %s: %s\n", some(by[reason], folded), reason)
	}
	if more > 0 {
		fmt.Fprintf(b, "    and %s for %s more; %s\n", clusters(more), atoll.Count(len(reasons)-folded, "reason"), showAll)
	}
}

// leftOut lists what the namespace's annotation leaves out, where that was asked
// about.
func (e Explanation) leftOut(b *strings.Builder, all bool) {
	if len(e.Skipped) == 0 {
		return
	}
	ns, space := e.Namespace, false
	if e.Group == "" && e.Kind == "Namespace" {
		ns, space = e.Name, true
	}
	whole := slices.ContainsFunc(e.Bundles, func(x BundleExplanation) bool {
		return x.Item == "" && x.Source.Kind == v1alpha1.SourceNamespaceAnnotation
	})
	if !space && !whole {
		if e.Claim != nil && e.Claim.Winner != nil && e.Claim.Winner.Kind == v1alpha1.SourceNamespaceAnnotation {
			fmt.Fprintf(b, "\nThe annotation of namespace %s leaves out %d objects; `atoll explain namespace/%s` lists them.\n", ns, len(e.Skipped), ns)
		}
		return
	}
	fmt.Fprintf(b, "\nLeft out by the annotation of namespace %s (%s: %q):\n", ns, atoll.AnnotationClusters, e.Annotation)
	shown := e.Skipped
	if !all {
		shown = shown[:min(len(shown), rowsShown)]
	}
	for _, s := range shown {
		fmt.Fprintf(b, "  %s/%s: %s\n", s.Key.Kind, s.Key.Name, s.Why)
	}
	if more := len(e.Skipped) - len(shown); more > 0 {
		fmt.Fprintf(b, "  and %d more; --all shows them\n", more)
	}
}
