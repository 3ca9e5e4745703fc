package drift

import (
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
)

// formatDrifts formats drift for people, by object and cluster.
func formatDrifts(d *preview.Drifts, now time.Time) string {
	var b strings.Builder
	last := ""
	for i := range d.Objects {
		o := &d.Objects[i]
		if name := objectName(o); name != last {
			fmt.Fprintf(&b, "%s\n", phrase.EscapeLine(name))
			last = name
		}
		writeObject(&b, o, now)
	}
	switch {
	case d.More > 0:
		fmt.Fprintf(&b, "and %s with drift: name a namespace or a cluster, or compare one by atoll diff\n", phrase.CountNoun(d.More, "more object"))
	case len(d.Objects) == 0 && d.NotCompared == 0:
		b.WriteString("no drift\n")
	}
	return b.String()
}

// objectName returns text such as "Deployment.apps shop/web".
func objectName(o *preview.DriftedObject) string {
	kind := strings.TrimSuffix(o.Kind+"."+o.Group, ".")
	return kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

func writeObject(b *strings.Builder, o *preview.DriftedObject, now time.Time) {
	note := ""
	switch {
	case o.Disconnected:
		note = " (as of the last report: the cluster is disconnected)"
	case o.Outdated:
		note = " (not compared with the latest content yet)"
	}
	note = approvalText(o, now) + note
	if o.Missing {
		fmt.Fprintf(b, "  %s: missing%s%s\n", o.Cluster, sinceText(o.MissingSince, now), note)
		return
	}
	fmt.Fprintf(b, "  %s: %s%s\n", o.Cluster, phrase.CountNoun(o.DifferentFields, "difference"), note)
	for _, f := range o.Fields {
		by := ""
		if len(f.Managers) > 0 {
			by = " (" + strings.Join(f.Managers, ", ") + ")"
		}
		fmt.Fprintf(b, "    %s: %s%s%s\n", phrase.EscapeLine(f.Path), valuesText(o, f), phrase.EscapeLine(by), sinceText(f.Since, now))
	}
	if more := o.DifferentFields - len(o.Fields); more > 0 {
		fmt.Fprintf(b, "    and %d more, which atoll diff lists\n", more)
	}
}

// approvalText returns the ID by which a person approves the drift, or the approval that the cluster has not answered.
func approvalText(o *preview.DriftedObject, now time.Time) string {
	switch a := o.Approval; {
	case a != nil && a.At != nil:
		return fmt.Sprintf(", correction approved by %s %s ago", phrase.EscapeLine(a.By), output.FormatAge(now, *a.At))
	case o.ID != "":
		return ", to approve as " + phrase.EscapeLine(o.ID)
	}
	return ""
}

// valuesText returns text such as `5 -> 2`: the cluster's value, and the one that it would get.
func valuesText(o *preview.DriftedObject, f preview.DriftedField) string {
	if o.Kind == "Secret" && o.Group == "" {
		return "(not shown)"
	}
	return formatValue(f.Live) + " -> " + formatValue(f.Wanted)
}

func formatValue(v string) string {
	if v == "" {
		return "none"
	}
	return phrase.EscapeLine(v)
}

func sinceText(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return ", for " + output.FormatAge(now, *at)
}
