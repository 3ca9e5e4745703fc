package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

// rowsShown is how many rows a text lists; beyond that those that are done are only
// counted.
const rowsShown = 50

// Text for people. Clusters that are left out for one reason are folded into one
// line.
func (e Explanation) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s", e.Kind, e.Name)
	if e.Namespace != "" {
		fmt.Fprintf(&b, " in namespace %s", e.Namespace)
	}
	b.WriteString("\n")
	if e.Holding != "" {
		fmt.Fprintf(&b, "The hub holds, nothing is sent: %s. `atoll restore accept` ends that.\n", e.Holding)
	}
	e.claim(&b)
	for _, bundle := range e.Bundles {
		e.bundle(&b, bundle)
	}
	if len(e.Skipped) > 0 {
		fmt.Fprintf(&b, "\nLeft out by the annotation of namespace %s:\n", e.Namespace)
		for _, s := range e.Skipped {
			fmt.Fprintf(&b, "  %s/%s: %s\n", s.Key.Kind, s.Key.Name, s.Why)
		}
	}
	return b.String()
}

func (e Explanation) claim(b *strings.Builder) {
	c := e.Claim
	if c == nil {
		if !e.Exists {
			b.WriteString("There is no such object on the hub.\n")
		}
		return
	}
	if c.Winner == nil {
		fmt.Fprintf(b, "Placed by nobody: %s.\n", c.Why)
	} else {
		fmt.Fprintf(b, "Placed by %s: %s.\n", c.Winner, c.Why)
	}
	for _, o := range c.Others {
		fmt.Fprintf(b, "  Also selected by %s.\n", o)
	}
	if c.Skipped != "" {
		fmt.Fprintf(b, "  The annotation of its namespace leaves it out: %s.\n", c.Skipped)
	}
	if len(c.NeededBy) > 0 {
		fmt.Fprintf(b, "  Needed by what is in %s.\n", strings.Join(c.NeededBy, ", "))
	}
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
	s := c.Kind + " " + c.Name
	switch c.Kind {
	case v1alpha1.SourceAnnotation:
		s = "its own annotation"
	case v1alpha1.SourceNamespaceAnnotation:
		s = "the annotation of namespace " + c.Name
	}
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return s
}

func (e Explanation) bundle(b *strings.Builder, x BundleExplanation) {
	name, kind := x.Name, "clusterbundle"
	if x.Namespace != "" {
		name, kind = x.Namespace+"/"+x.Name, "bundle"
	}
	fmt.Fprintf(b, "\nBundle %s", name)
	if x.Item != "" {
		fmt.Fprintf(b, ", in which it is %s", x.Item)
	}
	if x.Number > 0 {
		fmt.Fprintf(b, "\n  revision %d, %d items", x.Number, x.Items)
	} else {
		b.WriteString("\n  no revision yet")
	}
	b.WriteString("\n")
	if x.NoFit {
		b.WriteString("  No cluster fits the placement; what runs is kept.\n")
	}
	if x.WaitsFor != "" {
		fmt.Fprintf(b, "  Waits for %s.\n", x.WaitsFor)
	}
	if x.Plan != nil {
		ns := ""
		if x.Namespace != "" {
			ns = " -n " + x.Namespace
		}
		fmt.Fprintf(b, "  Removals wait for a confirmation: %s.\n  `atoll confirm %s/%s%s --plan %s` releases exactly these.\n", x.Plan.Summary(10), kind, x.Name, ns, x.Plan.Hash)
	}
	e.rows(b, x)
	leftOut(b, x.Clusters)
	overrides(b, x.Clusters)
}

// rows as a table.
func (e Explanation) rows(b *strings.Builder, x BundleExplanation) {
	var shown []ClusterExplanation
	count, done := 0, 0
	for _, c := range x.Clusters {
		if c.Row == nil && c.Verdict != "Placed" {
			continue
		}
		if count++; count > rowsShown && c.Row != nil && c.Row.WaitsFor == "" && c.Row.Reason == "" {
			done++
			continue
		}
		shown = append(shown, c)
	}
	if len(shown) == 0 {
		return
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  CLUSTER\tWHY\tROW\tREVISION\tSTATE\tAGE\tWAITS FOR")
	for _, c := range shown {
		cells := "none\t\t\t\tthe first revision"
		switch {
		case c.Row != nil:
			cells = e.cells(c.Row)
		case x.Number > 0:
			cells = "none\t\t\t\tits row; Atoll is about to write it"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Cluster, c.why(), cells)
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if done > 0 {
		fmt.Fprintf(b, "  and %d more that are done\n", done)
	}
}

func (c ClusterExplanation) why() string {
	switch {
	case c.Verdict == "Placed" && c.EvictAt != nil:
		return "fits until " + c.EvictAt.UTC().Format(time.RFC3339)
	case c.Verdict == "Placed":
		return "fits"
	case c.Verdict == "Kept":
		return "kept: " + c.Reason
	}
	return c.Reason
}

func (e Explanation) cells(r *RowExplanation) string {
	revision := r.Revision
	if r.Number > 0 {
		revision = fmt.Sprint(r.Number)
	}
	state := cmp.Or(string(r.State), "not reported")
	if r.Health != "" && string(r.Health) != state && r.State != atoll.RowReady {
		state += ", this " + string(r.Health)
	}
	for _, item := range slices.Sorted(maps.Keys(r.Assigned)) {
		state += fmt.Sprintf(", %s=%d", item[strings.LastIndexByte(item, '/')+1:], r.Assigned[item])
	}
	if !r.Online {
		state += " (away)"
	}
	wait := r.WaitsFor
	if r.Who != "" {
		wait = fmt.Sprintf("%s (for %s; up to: %s)", wait, e.age(*r.WaitsSince), r.Who)
	}
	if r.Problem != "" && r.Health != atoll.Healthy && !strings.Contains(wait, r.Problem) {
		wait = strings.TrimPrefix(wait+"; "+r.Problem, "; ")
	}
	if r.Next != "" {
		wait = strings.TrimPrefix(wait+"; next: "+r.Next, "; ")
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", r.Phase, revision, state, e.age(r.Since), wait)
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

// leftOut folds the clusters without a row by the reason for which they have none.
func leftOut(b *strings.Builder, clusters []ClusterExplanation) {
	by := map[string][]string{}
	for _, c := range clusters {
		if c.Row == nil && c.Verdict != "Placed" {
			by[c.Filter+": "+c.Reason] = append(by[c.Filter+": "+c.Reason], c.Cluster)
		}
	}
	if len(by) == 0 {
		return
	}
	b.WriteString("  Not in:\n")
	reasons := slices.SortedFunc(maps.Keys(by), func(x, y string) int {
		return cmp.Or(len(by[y])-len(by[x]), strings.Compare(x, y))
	})
	for _, reason := range reasons {
		fmt.Fprintf(b, "    %s (%s)\n", some(by[reason]), reason)
	}
}

func some(names []string) string {
	if len(names) <= 4 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// overrides folds the clusters in which a rule set the same.
func overrides(b *strings.Builder, clusters []ClusterExplanation) {
	by := map[string][]string{}
	var order []string
	for _, c := range clusters {
		for _, o := range c.Overrides {
			line := o.String()
			if by[line] == nil {
				order = append(order, line)
			}
			by[line] = append(by[line], c.Cluster)
		}
	}
	if len(order) == 0 {
		return
	}
	b.WriteString("  Overrides:\n")
	for _, line := range order {
		fmt.Fprintf(b, "    %s in %s\n", line, some(by[line]))
	}
}

// String such as `/spec/replicas = 3 by OverridePolicy/shop/eu rule 0`.
func (o Override) String() string {
	value := "taken away"
	switch {
	case o.Hidden:
		value = "changed"
	case o.Value != nil:
		// Values come out of JSON and go back into it.
		raw, _ := json.Marshal(o.Value)
		value = "= " + string(raw)
	}
	by := fmt.Sprintf("%s rule %d", o.Policy, o.Rule)
	if o.Policy == render.PolicyPlacement {
		by = "the placement"
	}
	return strings.TrimPrefix(fmt.Sprintf("%s %s %s by %s", o.Item, o.Path, value, by), " ")
}
