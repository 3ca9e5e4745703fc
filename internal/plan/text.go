package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// What a text shows unless all is asked for: so many Bundles, so many lines of what is
// refused, unchecked or nowhere, so many held removals of a Bundle, so many names, so many
// fields of an item and so much of a value.
const (
	bundlesShown = 100
	linesShown   = 20
	rowsShown    = 50
	namesShown   = 8
	fieldsShown  = 40
	valueShown   = 120
)

// Text for people: what would be refused first, then each Bundle that would change, with
// clusters that change alike in one line, and the sum at the end. With all, nothing is
// left to a count.
func (p Plan) Text(all bool) string {
	var b strings.Builder
	listed(&b, all, len(p.Refused), "! and %d more would be refused", func(i int) string {
		return fmt.Sprintf("! %s would be refused: %s", p.Refused[i].Object, p.Refused[i].Why)
	})
	listed(&b, all, len(p.Unchecked), "? and %d more were not checked by the hub", func(i int) string {
		return fmt.Sprintf("? %s was not checked by the hub: %s", p.Unchecked[i].Object, p.Unchecked[i].Why)
	})
	listed(&b, all, len(p.Unplaced), "? and %d more would be placed nowhere", func(i int) string {
		return fmt.Sprintf("? %s/%s would be placed nowhere: %s", p.Unplaced[i].Key.Kind, p.Unplaced[i].Key.Name, p.Unplaced[i].Why)
	})
	for i, x := range p.Bundles {
		if i == bundlesShown && !all {
			fmt.Fprintf(&b, "and %d more Bundles; --all shows them\n", len(p.Bundles)-i)
			break
		}
		x.text(&b, all)
	}
	for _, pl := range p.Placements {
		pl.text(&b, all)
	}
	if p.Hidden > 0 {
		fmt.Fprintf(&b, "%d more Bundles would be affected that you may not read.\n", p.Hidden)
	}
	if p.More > 0 {
		fmt.Fprintf(&b, "%d more Bundles were not looked at.\n", p.More)
	}
	if p.Holding != "" {
		fmt.Fprintf(&b, "The hub holds and would send nothing now: %s. `atoll restore accept` ends that.\n", p.Holding)
	}
	b.WriteString(p.Summary() + "\n")
	return b.String()
}

// listed lines, as many as anybody reads, and how many more there are.
func listed(b *strings.Builder, all bool, n int, more string, line func(i int) string) {
	for i := range n {
		if i == linesShown && !all {
			fmt.Fprintf(b, more+"\n", n-i)
			return
		}
		b.WriteString(line(i) + "\n")
	}
}

// Summary in a sentence.
func (p Plan) Summary() string {
	n := map[RowChange]int{}
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
		out = append(out, fmt.Sprintf("%s: %d added, %d removed, %d changed.", atoll.Count(bundles, "Bundle"), n[Added], n[Removed], n[Changed]))
	}
	if len(p.Placements) > 0 {
		out = append(out, atoll.Count(len(p.Placements), "Placement")+" would choose others.")
	}
	if held > 0 {
		out = append(out, atoll.Count(held, "removal")+" would wait for a confirmation.")
	}
	return strings.Join(out, " ")
}

func (x Bundle) text(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "Bundle %s (%s)", strings.TrimPrefix(x.Namespace+"/"+x.Name, "/"), x.Source)
	if x.New {
		b.WriteString(", new")
	}
	if to, from := x.names(Added), x.names(Removed); len(to) > 0 && len(from) > 0 {
		fmt.Fprintf(b, ", moves from %s to %s", some(from, all), some(to, all))
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
	x.lacking(b, all)
	for _, p := range x.Problems {
		fmt.Fprintf(b, "  ! %s could not be sent: %s\n", p.Object, p.Why)
	}
	for _, r := range x.Rows {
		r.text(b, all)
	}
	if len(x.Held) > 0 {
		fmt.Fprintf(b, "  Would wait for `atoll confirm`, being over the removal budget or not replaced:\n")
		for i, line := range x.Held {
			if i == rowsShown && !all {
				fmt.Fprintf(b, "    and %d more\n", len(x.Held)-i)
				break
			}
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
}

// lacking says what has no place: clusters that are full, alike ones together, and
// replicas.
func (x Bundle) lacking(b *strings.Builder, all bool) {
	by, order := map[string][]string{}, []string{}
	for _, f := range x.Full {
		line := "would be left out: "
		if f.Stays {
			line = "would stay as it is there: "
		}
		if line += f.Why; by[line] == nil {
			order = append(order, line)
		}
		by[line] = append(by[line], f.Cluster)
	}
	for i, line := range order {
		if i == rowsShown && !all {
			fmt.Fprintf(b, "  and more that are full\n")
			break
		}
		fmt.Fprintf(b, "  %s %s\n", some(by[line], all), line)
	}
	if len(x.Unknown) > 0 {
		fmt.Fprintf(b, "  There is no cluster %s, which the placement names.\n", some(x.Unknown, all))
	}
	if x.Unweighed {
		b.WriteString("  No entry of staticWeightList would match a cluster that is chosen: each would keep the replicas that it has.\n")
	}
	if len(x.Later) > 0 {
		fmt.Fprintf(b, "  %s would keep their overrides until the next change of what is sent there: the newer ones are of a policy with apply: WithNextChange.\n", some(x.Later, all))
	}
	if len(x.Frozen) > 0 {
		fmt.Fprintf(b, "  %s would be placed by nobody any more: what runs stays as it is, and edits would not be sent.\n", some(x.Frozen, all))
	}
	for _, s := range x.Short {
		fmt.Fprintf(b, "  %d of %d replicas of %s would have no place.\n", s.Unplaced, s.Replicas, s.Item)
	}
}

func (x Bundle) names(change RowChange) (out []string) {
	for _, r := range x.Rows {
		if r.Change == change {
			out = append(out, r.Clusters...)
		}
	}
	slices.Sort(out)
	return out
}

func (p Placement) text(b *strings.Builder, all bool) {
	kind := "Placement"
	if p.Namespace == "" {
		kind = "ClusterPlacement"
	}
	fmt.Fprintf(b, "%s %s would choose %s\n", kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), atoll.Count(p.Chosen, "cluster"))
	if p.NoFit {
		why := ""
		if p.Unmet != "" {
			why = ": " + p.Unmet
		}
		fmt.Fprintf(b, "  No cluster would fit%s; what is chosen stays.\n", why)
	}
	if len(p.Added) > 0 {
		fmt.Fprintf(b, "  + %s\n", some(p.Added, all))
	}
	if len(p.Removed) > 0 {
		fmt.Fprintf(b, "  - %s\n", some(p.Removed, all))
	}
}

var signs = map[RowChange]string{Added: "+", Removed: "-", Changed: "~"}

func (r Row) text(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "  %s %s", signs[r.Change], some(r.Clusters, all))
	var notes []string
	for _, item := range slices.Sorted(maps.Keys(r.Replicas)) {
		if r.undivided(item) {
			notes = append(notes, shortItem(item)+" would be divided no more")
			continue
		}
		notes = append(notes, fmt.Sprintf("%s %s", shortItem(item), r.Replicas[item]))
	}
	if r.Why != "" {
		notes = append(notes, r.Why)
	}
	if r.Orphaned {
		notes = append(notes, "what runs there is left running")
	}
	if r.Waits != "" {
		notes = append(notes, "waits for "+r.Waits)
	}
	if len(notes) > 0 {
		b.WriteString(": " + strings.Join(notes, "; "))
	}
	b.WriteString("\n")
	for _, i := range r.Items {
		i.text(b, all)
	}
}

// undivided tells whether an item that stays would have no share any more, but the replicas
// that its template states.
func (r Row) undivided(item string) bool {
	return r.Change == Changed && r.Replicas[item].After == nil &&
		!slices.ContainsFunc(r.Items, func(i Item) bool { return i.Change == Removed && i.Key.String() == item })
}

func (i Item) text(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "      %s %s/%s", signs[i.Change], i.Key.Kind, i.Key.Name)
	switch {
	case i.Error != "" && i.Change == Added:
		fmt.Fprintf(b, " could not be rendered, and would not be sent: %s", i.Error)
	case i.Error != "":
		fmt.Fprintf(b, " could not be rendered, and stays as it is there: %s", i.Error)
	}
	b.WriteString("\n")
	for n, f := range i.Fields {
		if n == fieldsShown && !all {
			fmt.Fprintf(b, "          and %d more fields\n", len(i.Fields)-n)
			break
		}
		switch {
		case f.Hidden:
			fmt.Fprintf(b, "          %s: (not shown)\n", f.Path)
		case f.Before == nil:
			fmt.Fprintf(b, "          %s: + %s\n", f.Path, value(f.After, all))
		case f.After == nil:
			fmt.Fprintf(b, "          %s: - %s\n", f.Path, value(f.Before, all))
		default:
			fmt.Fprintf(b, "          %s: %s -> %s\n", f.Path, value(f.Before, all), value(f.After, all))
		}
	}
}

// String such as "2 -> 5 replicas".
func (r Replicas) String() string {
	switch {
	case r.Before == nil:
		return atoll.Count(int(*r.After), "replica")
	case r.After == nil:
		return fmt.Sprintf("%d -> no replicas", *r.Before)
	}
	return fmt.Sprintf("%d -> %s", *r.Before, atoll.Count(int(*r.After), "replica"))
}

func shortItem(item string) string {
	key, err := atoll.ParseItemKey(item)
	if err != nil {
		return item
	}
	return key.Kind + "/" + key.Name
}

func value(v any, all bool) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > valueShown && !all {
		return string(text[:valueShown]) + "…"
	}
	return string(text)
}

// some of the names.
func some(names []string, all bool) string {
	if len(names) <= namesShown || all {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}
