package source

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/sources/changes"
)

const (
	// maxFieldsShown of one object, without --all.
	maxFieldsShown = 20
	// maxCommentBytes is the most of a part of a comment. GitHub accepts comments of 65,536 characters.
	maxCommentBytes = 28 << 10
	// maxFence is the most backticks of a fence.
	maxFence = 256
)

// changeMarks are the signs of changes, as plans have them.
var changeMarks = map[changeKind]string{changeCreated: "+", changeChanged: "~", changeRemoved: "-", changeKept: "=", changeRefused: "!", changeUnchecked: "?"}

// formatText formats the changes of objects, and the plan, for people.
func (d *contentDiff) formatText(all bool) string {
	return d.formatHeading() + "\n" + d.formatObjects(all) + "\n" + d.Plan.FormatText(all)
}

func (d *contentDiff) formatHeading() string {
	text := fmt.Sprintf("source/%s in namespace %s, compared with ", d.Source, d.Namespace)
	if d.Commit == "" {
		text += "nothing, because no commit is applied yet"
	} else {
		text += changes.RevisionNoun(d.Commit) + " " + phrase.EscapeLine(d.Commit)
	}
	if d.Suspended {
		text += "\nsuspended: the hub takes no commit until the Source and its Repository are resumed"
	}
	return text
}

func (d *contentDiff) formatObjects(all bool) string {
	var b strings.Builder
	for i := range d.Objects {
		d.Objects[i].writeText(&b, all)
	}
	fmt.Fprintf(&b, "%s as the commit applied them\n", phrase.CountNoun(d.Unchanged, "object"))
	return b.String()
}

func (o *objectChange) writeText(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "%s %s", changeMarks[o.Change], phrase.EscapeLine(o.describeObject()))
	if o.File != "" {
		fmt.Fprintf(b, " (%s:%d)", phrase.EscapeLine(o.File), o.Line)
	}
	switch o.Change {
	case changeKept:
		b.WriteString(": stays: " + phrase.EscapeLine(o.Why))
	case changeRefused:
		b.WriteString(": refused: " + phrase.EscapeLine(o.Why))
	case changeUnchecked:
		b.WriteString(": not checked: " + phrase.EscapeLine(o.Why))
	}
	b.WriteString("\n")
	for n, f := range o.Fields {
		if n == maxFieldsShown && !all {
			fmt.Fprintf(b, "    and %d more; --all shows them\n", len(o.Fields)-n)
			return
		}
		fmt.Fprintf(b, "    %s: %s\n", phrase.EscapeLine(f.Path), f.formatValues(all))
	}
}

// formatValues returns text such as "5 -> 2".
func (f fieldChange) formatValues(all bool) string {
	if f.Hidden {
		return "(not shown)"
	}
	return formatValue(f.Before, all) + " -> " + formatValue(f.After, all)
}

func formatValue(v any, all bool) string {
	if v == nil {
		return "none"
	}
	return phrase.EscapeLine(preview.FormatValue(v, all))
}

// formatMarkdown formats a comment for a pull request. Text of authors of commits stays inside of fences.
func (d *contentDiff) formatMarkdown(all bool) string {
	counts := map[changeKind]int{}
	for _, o := range d.Objects {
		counts[o.Change]++
	}
	return fmt.Sprintf("### Atoll: `%s/%s`\n\n%d created, %d changed, %d removed, %d refused, %d kept, %d not checked, %d unchanged\n\n%s\n**Clusters**\n\n%s",
		d.Namespace, d.Source, counts[changeCreated], counts[changeChanged], counts[changeRemoved], counts[changeRefused], counts[changeKept], counts[changeUnchecked], d.Unchanged,
		fenceText(d.formatHeading()+"\n"+d.formatObjects(all), "diff"), fenceText(d.Plan.FormatText(all), "text"))
}

// fenceText returns the text in a fence that is longer than any run of backticks in it, cut at maxCommentBytes. A fence has
// at most maxFence backticks: from a longer run on, backticks become apostrophes.
func fenceText(text, language string) string {
	if len(text) > maxCommentBytes {
		text = strings.ToValidUTF8(text[:maxCommentBytes], "") + "\n… cut; run the command for the rest\n"
	}
	longest, run := 2, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	if longest >= maxFence {
		text, longest = strings.ReplaceAll(text, "`", "'"), 2
	}
	fence := strings.Repeat("`", longest+1)
	return fence + language + "\n" + text + fence + "\n"
}
