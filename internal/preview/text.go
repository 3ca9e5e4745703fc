package preview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// The lengths of a text without all: Bundles, lines of refusals, unchecked or unplaced objects,
// held removals of a Bundle, names, fields of an item, and the length of a value.
const (
	maxBundles     = 100
	maxLines       = 20
	maxRows        = 50
	maxNames       = 8
	maxFieldsShown = 40
	maxValueLength = 120
)

// FormatText formats the plan for people: refusals first, then each Bundle that would change, then
// the summary. With all, nothing is left to a count.
func (p Plan) FormatText(all bool) string {
	var b strings.Builder
	writeLimitedLines(&b, all, len(p.Refused), "! and %d more would be refused", func(i int) string {
		return fmt.Sprintf("! %s would be refused: %s", p.Refused[i].Object, p.Refused[i].Why)
	})
	writeLimitedLines(&b, all, len(p.Unchecked), "? and %d more were not checked by the hub", func(i int) string {
		return fmt.Sprintf("? %s was not checked by the hub: %s", p.Unchecked[i].Object, p.Unchecked[i].Why)
	})
	writeLimitedLines(&b, all, len(p.Notes), "and %d more notes", func(i int) string { return "note: " + p.Notes[i].Object + ": " + p.Notes[i].Note })
	writeLimitedLines(&b, all, len(p.Unplaced), "? and %d more would be placed nowhere", func(i int) string {
		return fmt.Sprintf("? %s/%s would be placed nowhere: %s", p.Unplaced[i].Key.Kind, p.Unplaced[i].Key.Name, p.Unplaced[i].Why)
	})
	for i, x := range p.Bundles {
		if i == maxBundles && !all {
			fmt.Fprintf(&b, "and %d more Bundles; --all shows them\n", len(p.Bundles)-i)
			break
		}
		x.writeText(&b, all)
	}
	for _, pl := range p.Placements {
		pl.writeText(&b, all)
	}
	if p.Hidden > 0 {
		fmt.Fprintf(&b, "%d more Bundles would be affected that you may not read.\n", p.Hidden)
	}
	if p.More > 0 {
		fmt.Fprintf(&b, "%d more Bundles were not looked at.\n", p.More)
	}
	if p.DroppedChanges > 0 {
		fmt.Fprintf(&b, "%s could no longer be taken back by `atoll undo`.\n", phrase.CountNoun(p.DroppedChanges, "kept change"))
	}
	if p.Holding != "" {
		fmt.Fprintf(&b, "The hub holds and would send nothing now: %s. `atoll restore accept` ends that.\n", p.Holding)
	}
	b.WriteString(p.Summary() + "\n")
	return b.String()
}

// writeLimitedLines writes lines up to a readable number, and the number of the others.
func writeLimitedLines(b *strings.Builder, all bool, n int, more string, line func(i int) string) {
	for i := range n {
		if i == maxLines && !all {
			fmt.Fprintf(b, more+"\n", n-i)
			return
		}
		b.WriteString(line(i) + "\n")
	}
}

// Summary returns the sum in a sentence.
func (p Plan) Summary() string {
	n := map[ChangeKind]int{}
	held := 0
	for _, x := range p.Bundles {
		for _, r := range x.Rows {
			n[r.Change] += len(r.Clusters)
		}
		held += len(x.Held)
	}
	if !p.Changes {
		if len(p.Refused) > 0 {
			return "Nothing would change in any cluster: what is refused changes nothing."
		}
		return "Nothing would change in any cluster."
	}
	var out []string
	if bundles := len(p.Bundles) + p.Hidden; bundles > 0 {
		out = append(out, fmt.Sprintf("%s: %d added, %d removed, %d changed.", phrase.CountNoun(bundles, "Bundle"), n[ChangeAdded], n[ChangeRemoved], n[ChangeChanged]))
	}
	if len(p.Placements) > 0 {
		out = append(out, phrase.CountNoun(len(p.Placements), "Placement")+" would choose others.")
	}
	if held > 0 {
		out = append(out, phrase.CountNoun(held, "removal")+" would wait for a confirmation.")
	}
	return strings.Join(out, " ")
}

func (x BundlePlan) writeText(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "Bundle %s (%s)", strings.TrimPrefix(x.Namespace+"/"+x.Name, "/"), x.Source)
	if x.New {
		b.WriteString(", new")
	}
	if to, from := x.clustersWith(ChangeAdded), x.clustersWith(ChangeRemoved); len(to) > 0 && len(from) > 0 {
		fmt.Fprintf(b, ", moves from %s to %s", abbreviateNames(from, all), abbreviateNames(to, all))
	}
	b.WriteString("\n")
	if x.Waits != "" {
		fmt.Fprintf(b, "  Nothing would be sent: %s.\n", x.Waits)
	}
	if x.NoFit {
		why := ""
		if x.Unmet != "" {
			why = ": " + x.Unmet
		}
		fmt.Fprintf(b, "  No cluster would fit%s; what runs is kept.\n", why)
	}
	for _, sentence := range x.WorkloadAffinity {
		fmt.Fprintf(b, "  %s.\n", sentence)
	}
	x.writeShortages(b, all)
	for _, w := range x.OldCopies {
		fmt.Fprintf(b, "  %s would wait for %s; the workload would not run in between (moveOrder).\n", abbreviateNames(w.Clusters, all), w.For)
	}
	x.writeBudgetWaits(b, all)
	x.RolloutEdit.writeText(b)
	x.Rollout.writeText(b)
	for _, p := range x.Problems {
		fmt.Fprintf(b, "  ! %s could not be sent: %s\n", p.Object, p.Why)
	}
	for _, r := range x.Rows {
		r.writeText(b, all)
	}
	x.writeHeldRemovals(b, all)
}

// writeHeldRemovals lists the removals that would wait for a confirmation.
func (x BundlePlan) writeHeldRemovals(b *strings.Builder, all bool) {
	if len(x.Held) == 0 {
		return
	}
	b.WriteString("  Would wait for `atoll confirm`, being over the removal budget, not replaced, or stated so:\n")
	for i, line := range x.Held {
		if i == maxRows && !all {
			fmt.Fprintf(b, "    and %d more\n", len(x.Held)-i)
			return
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}

// groupFullClusters returns the lines about clusters that are full, or where pods do not fit, and the clusters of
// each line.
func (x BundlePlan) groupFullClusters() (order []string, by map[string][]string) {
	by = map[string][]string{}
	add := func(line, cluster string) {
		if by[line] == nil {
			order = append(order, line)
		}
		by[line] = append(by[line], cluster)
	}
	for _, f := range x.Full {
		line := "would be left out: "
		if f.RowStays {
			line = "would stay as it is there: "
		}
		add(line+f.Why, f.Cluster)
	}
	for _, f := range x.Unfit {
		line := "would get pods that fit after a scale-up: "
		if f.When == schedule.FitNever {
			line = "would get pods that never fit: "
		}
		add(line+f.Why, f.Cluster)
	}
	return order, by
}

// writeShortages writes what has no place: clusters that are full, alike ones together, and
// replicas.
func (x BundlePlan) writeShortages(b *strings.Builder, all bool) {
	order, by := x.groupFullClusters()
	for i, line := range order {
		if i == maxRows && !all {
			fmt.Fprintf(b, "  and more that are full, or where pods do not fit\n")
			break
		}
		fmt.Fprintf(b, "  %s %s\n", abbreviateNames(by[line], all), line)
	}
	if len(x.Unknown) > 0 {
		fmt.Fprintf(b, "  There is no cluster %s, which the placement names.\n", abbreviateNames(x.Unknown, all))
	}
	if len(x.UnknownSuspended) > 0 {
		fmt.Fprintf(b, "  There is no cluster %s, which the suspension names.\n", abbreviateNames(x.UnknownSuspended, all))
	}
	for _, policy := range x.UnplacedDependencies {
		fmt.Fprintf(b, "  %s would place nothing, and dependsOn names it: further changes would wait.\n", policy)
	}
	for _, s := range x.Stays {
		fmt.Fprintf(b, "  = %s would keep it: %s (%s)\n", s.Cluster, s.Why, s.Reason)
	}
	x.writeUnmatchedWeightsNote(b)
	if len(x.OverridesLater) > 0 {
		fmt.Fprintf(b, "  %s would keep their overrides until the next change of what is sent there: the newer ones are of a policy with apply: WithNextChange.\n", abbreviateNames(x.OverridesLater, all))
	}
	if len(x.Frozen) > 0 {
		fmt.Fprintf(b, "  %s would have no policy any more: what runs stays as it is, and edits would not be sent.\n", abbreviateNames(x.Frozen, all))
	}
	for _, s := range x.Short {
		fmt.Fprintf(b, "  %d of %d replicas of %s would have no place.\n%s", s.Unplaced, s.Replicas, s.Item, s.fitText())
	}
}

func (x BundlePlan) clustersWith(change ChangeKind) (out []string) {
	for _, r := range x.Rows {
		if r.Change == change {
			out = append(out, r.Clusters...)
		}
	}
	slices.Sort(out)
	return out
}

func (p PlacementPlan) writeText(b *strings.Builder, all bool) {
	kind := "Placement"
	if p.Namespace == "" {
		kind = "ClusterPlacement"
	}
	fmt.Fprintf(b, "%s %s would choose %s\n", kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), phrase.CountNoun(p.Chosen, "cluster"))
	if p.NoFit {
		why := ""
		if p.Unmet != "" {
			why = ": " + p.Unmet
		}
		fmt.Fprintf(b, "  No cluster would fit%s; what is chosen stays.\n", why)
	}
	if len(p.Added) > 0 {
		fmt.Fprintf(b, "  + %s\n", abbreviateNames(p.Added, all))
	}
	if len(p.Removed) > 0 {
		fmt.Fprintf(b, "  - %s\n", abbreviateNames(p.Removed, all))
	}
}

var changeSigns = map[ChangeKind]string{ChangeAdded: "+", ChangeRemoved: "-", ChangeChanged: "~"}

func (r RowGroup) writeText(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "  %s %s", changeSigns[r.Change], abbreviateNames(r.Clusters, all))
	var notes []string
	for _, item := range slices.Sorted(maps.Keys(r.Replicas)) {
		if r.becomesUndivided(item) {
			notes = append(notes, kindAndName(item)+" would be divided no more")
			continue
		}
		notes = append(notes, fmt.Sprintf("%s %s", kindAndName(item), r.Replicas[item]))
	}
	if r.Why != "" {
		notes = append(notes, r.Why)
	}
	if r.Orphaned {
		notes = append(notes, "what runs there is left running")
	}
	if len(r.Hooks) > 0 {
		notes = append(notes, "runs hooks: "+abbreviateNames(r.Hooks, all))
	}
	if len(r.Stays) > 0 {
		notes = append(notes, "left running: "+abbreviateNames(r.Stays, all))
	}
	if r.Waits != "" {
		notes = append(notes, "waits for "+r.Waits)
	}
	if len(notes) > 0 {
		b.WriteString(": " + strings.Join(notes, "; "))
	}
	b.WriteString("\n")
	for _, i := range r.Items {
		i.writeText(b, all)
	}
}

// becomesUndivided reports whether an item that stays would have no share any more, but the replicas
// that its template states.
func (r RowGroup) becomesUndivided(item string) bool {
	return r.Change == ChangeChanged && r.Replicas[item].After == nil &&
		!slices.ContainsFunc(r.Items, func(i ItemChange) bool { return i.Change == ChangeRemoved && i.Key.String() == item })
}

// noteText returns what a cluster would do with the item, after its name; empty: it would apply it.
func (i ItemChange) noteText() string {
	switch {
	case i.Error != "" && i.Change == ChangeAdded:
		return fmt.Sprintf(" could not be rendered, and would not be sent: %s", i.Error)
	case i.Error != "":
		return fmt.Sprintf(" could not be rendered, and stays as it is there: %s", i.Error)
	case i.Observe == atoll.ObserveForApproval:
		return " would not be written before a person approves the differences that are reported"
	case i.Observe == atoll.ObserveDrift:
		return " would not be written, and differences would be reported"
	case i.Observe != "":
		return " would not be written, and its health would be reported"
	case i.Recreate:
		return " (deleted and created again where the cluster refuses the edit)"
	case i.Written:
		return " would be written from now on"
	}
	return ""
}

func (i ItemChange) writeText(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "      %s %s/%s%s\n", changeSigns[i.Change], i.Key.Kind, i.Key.Name, i.noteText())
	if i.ConflictBefore != i.ConflictAfter {
		fmt.Fprintf(b, "          objects that are not Atoll's: %s -> %s\n", cmp.Or(string(i.ConflictBefore), "as the policy states"), cmp.Or(string(i.ConflictAfter), "as the policy states"))
	}
	i.writeServiceAccount(b)
	i.writeWave(b)
	i.writeHook(b)
	if i.HookRuns {
		b.WriteString("          hook: runs again\n")
	}
	if i.Reassessed {
		b.WriteString("          assessed by other rules of feedback, health, completion or ttlSecondsAfterFinished\n")
	}
	if len(i.Released) > 0 {
		fmt.Fprintf(b, "          left to the member: %s\n", abbreviateNames(i.Released, all))
	}
	if len(i.Corrected) > 0 {
		fmt.Fprintf(b, "          corrected from now on: %s\n", abbreviateNames(i.Corrected, all))
	}
	for n, f := range i.Fields {
		if n == maxFieldsShown && !all {
			fmt.Fprintf(b, "          and %d more fields\n", len(i.Fields)-n)
			break
		}
		fmt.Fprintf(b, "          %s: %s\n", f.Path, f.valuesText(all))
	}
}

// writeServiceAccount writes whose rights in the cluster count for the object, where that would change.
func (i ItemChange) writeServiceAccount(b *strings.Builder) {
	const agent = "the agent's alone"
	switch before, after := cmp.Or(i.ServiceAccountBefore, agent), cmp.Or(i.ServiceAccountAfter, agent); {
	case before == after:
	case i.Change == ChangeAdded:
		fmt.Fprintf(b, "          needs rights of ServiceAccount: %s\n", after)
	default:
		fmt.Fprintf(b, "          needs rights of ServiceAccount: %s -> %s\n", before, after)
	}
}

// writeHook writes when clusters run the object, where that would change.
func (i ItemChange) writeHook(b *strings.Builder) {
	const none = "no hook"
	switch before, after := cmp.Or(i.HookBefore, none), cmp.Or(i.HookAfter, none); {
	case before == after:
	case i.Change == ChangeAdded:
		fmt.Fprintf(b, "          hook: %s\n", after)
	default:
		fmt.Fprintf(b, "          hook: %s -> %s\n", before, after)
	}
}

// writeWave writes the wave of the object, where it would change.
func (i ItemChange) writeWave(b *strings.Builder) {
	switch {
	case i.WaveBefore == i.WaveAfter:
	case i.Change == ChangeAdded:
		fmt.Fprintf(b, "          wave: %d\n", i.WaveAfter)
	default:
		fmt.Fprintf(b, "          wave: %d -> %d\n", i.WaveBefore, i.WaveAfter)
	}
}

// valuesText returns the values of a field, such as "4 -> 8".
func (f FieldChange) valuesText(all bool) (text string) {
	switch {
	case f.Hidden:
		text = "(not shown)"
	case f.Before == nil:
		text = "+ " + FormatValue(f.After, all)
	case f.After == nil:
		text = "- " + FormatValue(f.Before, all)
	default:
		text = FormatValue(f.Before, all) + " -> " + FormatValue(f.After, all)
	}
	if f.MemberOwned {
		text += " (only in new objects: the field belongs to the member)"
	}
	return text
}

// String returns text such as "2 -> 5 replicas".
func (r ReplicaChange) String() string {
	switch {
	case r.Before == nil:
		return phrase.CountNoun(int(*r.After), "replica")
	case r.After == nil:
		return fmt.Sprintf("%d -> no replicas", *r.Before)
	}
	return fmt.Sprintf("%d -> %s", *r.Before, phrase.CountNoun(int(*r.After), "replica"))
}

func kindAndName(item string) string {
	key, err := atoll.ParseItemKey(item)
	if err != nil {
		return item
	}
	return key.Kind + "/" + key.Name
}

// FormatValue formats a value of a field as JSON. Without all, it cuts a long value.
func FormatValue(v any, all bool) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > maxValueLength && !all {
		return strings.ToValidUTF8(string(text[:maxValueLength]), "") + "…"
	}
	return string(text)
}

// abbreviateNames returns some of the names.
func abbreviateNames(names []string, all bool) string {
	most := maxNames
	if all {
		most = len(names)
	}
	return phrase.JoinFirst(names, most, len(names))
}

// writeUnmatchedWeightsNote writes what becomes of replicas where no static weight would count.
func (x *BundlePlan) writeUnmatchedWeightsNote(b *strings.Builder) {
	const none = "  No entry of staticWeightList would match a cluster that is chosen: "
	switch {
	case x.Unweighed:
		b.WriteString(none + "each would keep the replicas that it has.\n")
	case x.EvenDivision:
		b.WriteString(none + "replicas would be divided evenly.\n")
	}
}
