// Package reasonpage renders docs/reasons.md from the table of reasons in the vocabulary.
//
// Contract: pure, and may be called concurrently. The same table gives the same page.
package reasonpage

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

//go:generate go run ./generate ../../docs/reasons.md

// RenderReasonsPage returns the page in Markdown.
func RenderReasonsPage() string {
	var b strings.Builder
	b.WriteString("# Reasons\n\nEvery wait, hold, refusal and verdict of Atoll has one of these reasons beside its sentence. " +
		"`internal/atoll/reasons.go` declares them; `make generate` writes this page. " +
		"Items can also have the reasons that their own kind reports, such as `CrashLoopBackOff`.\n\n" +
		"| Object | Reason | Meaning | Must act |\n|---|---|---|---|\n")
	for _, r := range atoll.Reasons {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", r.Subject, r.Reason, r.Sentence, r.Actor)
	}
	return b.String()
}
