package rollout

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// formatRollout formats the progress of a Bundle's rollout for people.
func formatRollout(argument string, bundle *v1alpha1.Bundle) string {
	var b strings.Builder
	writeStrategy(&b, bundle)
	r := bundle.Status.Rollout
	if r == nil {
		return b.String() + formatUnbounded(argument, bundle)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	suspends := slices.ContainsFunc(r.Stages, func(s v1alpha1.StageStatus) bool { return s.Suspended > 0 })
	title := "STAGE\tCLUSTERS\tUPDATED\tCHANGING\tFAILED\tWAITING\tDISCONNECTED"
	if suspends {
		title += "\tSUSPENDED"
	}
	fmt.Fprintln(table, title)
	for _, s := range r.Stages {
		name := s.Name
		if name == r.CurrentStage {
			name += " *"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d", name, s.Clusters, s.Updated, s.Changing, s.Failed, s.Waiting, s.Disconnected)
		if suspends {
			fmt.Fprintf(table, "\t%d", s.Suspended)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // a Builder takes all
	writeGates(&b, r.Gates)
	switch {
	case r.PausedBy != "" || r.PausedSince != nil:
		fmt.Fprintf(&b, "paused by %s", phrase.EscapeLine(r.PausedBy))
		if r.PausedSince != nil {
			fmt.Fprintf(&b, " since %s", phrase.FormatTime(r.PausedSince.Time))
		}
		b.WriteString("\n")
	case r.Reason == "" && r.CurrentStage == "":
		b.WriteString("complete: no connected cluster waits\n")
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, "%s: clusters wait for %s; %s must act\n", r.Reason, phrase.EscapeLine(r.Message), r.Actor)
	}
	return b.String()
}

// writeStrategy writes the strategy that the rollout comes from.
func writeStrategy(b *strings.Builder, bundle *v1alpha1.Bundle) {
	s := bundle.Spec.RolloutStrategy
	switch {
	case s == nil:
	case s.Enforced:
		fmt.Fprintf(b, "the rollout is that of %s, which is enforced for namespace %s\n", s, bundle.Namespace)
	default:
		fmt.Fprintf(b, "the rollout is that of %s\n", s)
	}
}

// formatUnbounded formats how a change reaches the clusters where no cluster waits and no bound is stated.
func formatUnbounded(argument string, bundle *v1alpha1.Bundle) string {
	if bundle.Spec.Rollout == nil {
		return fmt.Sprintf("%s states no rollout, and no cluster waits: by default a change keeps maxUnavailable %s of more than %d clusters\n", argument, v1alpha1.DefaultMaxUnavailable, v1alpha1.DefaultFreeClusters)
	}
	return fmt.Sprintf("%s states no bound, and is not paused: a change reaches all clusters at once\n", argument)
}

// writeGates writes what the gates of the revision decided.
func writeGates(b *strings.Builder, gates []v1alpha1.GateStatus) {
	for _, g := range gates {
		fmt.Fprintf(b, "gate %s of stage %s: %s since %s", phrase.EscapeLine(g.Name), phrase.EscapeLine(g.Stage), g.State, phrase.FormatTime(g.Since.Time))
		if g.Value != "" {
			fmt.Fprintf(b, " (%s)", phrase.EscapeLine(g.Value))
		}
		b.WriteString("\n")
	}
}
