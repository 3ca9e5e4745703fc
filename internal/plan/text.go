package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// What a text shows of a fleet unless all is asked for: so many rows of a Bundle, so many
// names, so many fields of an item and so much of a value.
const (
	rowsShown   = 50
	namesShown  = 8
	fieldsShown = 40
	valueShown  = 120
)

// Text for people: what would be refused first, then each Bundle that would change, with
// clusters that change alike in one line, and the sum at the end. With all, nothing is
// left to a count.
func (p Plan) Text(all bool) string {
	var b strings.Builder
	for _, r := range p.Refused {
		fmt.Fprintf(&b, "! %s would be refused: %s\n", r.Object, r.Why)
	}
	for _, r := range p.Unchecked {
		fmt.Fprintf(&b, "? %s was not checked by the hub: %s\n", r.Object, r.Why)
	}
	for _, u := range p.Unplaced {
		fmt.Fprintf(&b, "? %s/%s would be placed nowhere: %s\n", u.Key.Kind, u.Key.Name, u.Why)
	}
	for _, x := range p.Bundles {
		x.text(&b, all)
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

// Summary in a sentence.
func (p Plan) Summary() string {
	n := map[RowChange]int{}
	held := 0
	for _, x := range p.Bundles {
		for _, r := range x.Rows {
			n[r.Change]++
		}
		held += len(x.Held)
	}
	if !p.Changes {
		if len(p.Refused) > 0 {
			return "Nothing would change in any cluster: what is refused changes nothing."
		}
		return "Nothing would change in any cluster."
	}
	text := fmt.Sprintf("%s: %d added, %d removed, %d changed.", count(len(p.Bundles)+p.Hidden, "Bundle"), n[Added], n[Removed], n[Changed])
	if held > 0 {
		text += fmt.Sprintf(" %s would wait for a confirmation.", count(held, "removal"))
	}
	return text
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
	for _, g := range x.groups() {
		g.text(b, all)
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
	for _, s := range x.Short {
		fmt.Fprintf(b, "  %d of %d replicas of %s would have no place.\n", s.Unplaced, s.Replicas, s.Item)
	}
}

func (x Bundle) names(change RowChange) (out []string) {
	for _, r := range x.Rows {
		if r.Change == change {
			out = append(out, r.Cluster)
		}
	}
	return out
}

// group of clusters that change alike.
type group struct {
	clusters []string
	row      Row
}

// groups in the order in which their first clusters come.
func (x Bundle) groups() (out []*group) {
	known := map[string]*group{}
	for _, r := range x.Rows {
		alike := r
		alike.Cluster = ""
		key := atoll.HashJSON(alike)
		g := known[key]
		if g == nil {
			g = &group{row: r}
			known[key], out = g, append(out, g)
		}
		g.clusters = append(g.clusters, r.Cluster)
	}
	return out
}

var signs = map[RowChange]string{Added: "+", Removed: "-", Changed: "~"}

func (g *group) text(b *strings.Builder, all bool) {
	r := g.row
	fmt.Fprintf(b, "  %s %s", signs[r.Change], some(g.clusters, all))
	var notes []string
	for _, item := range slices.Sorted(maps.Keys(r.Replicas)) {
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

func (i Item) text(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "      %s %s/%s", signs[i.Change], i.Key.Kind, i.Key.Name)
	if i.Error != "" {
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
		return count(int(*r.After), "replica")
	case r.After == nil:
		return fmt.Sprintf("%d -> no replicas", *r.Before)
	}
	return fmt.Sprintf("%d -> %s", *r.Before, count(int(*r.After), "replica"))
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

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// some of the names.
func some(names []string, all bool) string {
	if len(names) <= namesShown || all {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}
