package diff

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
)

// formatDiffs formats differences for people. Clusters without one share a line.
func formatDiffs(diffs []ClusterDiff, all bool) string {
	var b strings.Builder
	var same []string
	for _, d := range diffs {
		switch {
		case d.Error != "":
			fmt.Fprintf(&b, "%s: could not be compared: %s\n", d.Cluster, phrase.EscapeLine(d.Error))
		case d.Absent:
			fmt.Fprintf(&b, "%s: does not have it, and would create it\n", d.Cluster)
		case len(d.Fields) == 0:
			same = append(same, d.Cluster)
		default:
			d.writeFields(&b, all)
		}
	}
	if len(same) > 0 {
		fmt.Fprintf(&b, "no difference: %s\n", strings.Join(same, ", "))
	}
	return b.String()
}

func (d ClusterDiff) writeFields(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "%s: %s\n", d.Cluster, phrase.CountNoun(len(d.Fields), "difference"))
	for n, f := range d.Fields {
		if n == maxFieldsShown && !all {
			fmt.Fprintf(b, "  and %d more; --all shows them\n", len(d.Fields)-n)
			return
		}
		fmt.Fprintf(b, "  %s: %s\n", phrase.EscapeLine(f.Path), f.valuesText(all))
	}
}

// valuesText returns text such as "5 -> 2 (kubectl-edit)": the cluster's value, and the one that it
// gets.
func (f FieldDiff) valuesText(all bool) string {
	text := formatValue(f.Live, all) + " -> " + formatValue(f.Wanted, all)
	if f.Hidden {
		text = "(not shown)"
	}
	if len(f.Managers) > 0 {
		text += " (" + phrase.EscapeLine(strings.Join(f.Managers, ", ")) + ")"
	}
	return text
}

func formatValue(v any, all bool) string {
	if v == nil {
		return "none"
	}
	return preview.FormatValue(v, all)
}
