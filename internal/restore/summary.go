package restore

import (
	"fmt"
	"maps"
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// maxExamples of removals are written down.
const maxExamples = 10

// MemberSummary is the removals that one member recorded and the store did not.
type MemberSummary struct {
	Cluster string
	// Deleted templates that the store still has.
	Deleted []DeletedTemplate
	// LeftBundles names the Bundles, as namespace/name, that left the cluster and have a row
	// for it in the store; empty where a name is not known.
	LeftBundles []string
}

// SummarizeMembers sums up the members' reports: their number, their removals, with some examples.
// A template that several members recorded counts once.
func SummarizeMembers(all []MemberSummary) *enginev1.RememberedRemovals {
	out := &enginev1.RememberedRemovals{Clusters: int32(len(all))}
	templates, examples := map[string]bool{}, map[string]bool{}
	for _, t := range all {
		for _, d := range t.Deleted {
			templates[d.UID] = true
			name := d.Key.Name
			if d.Key.Namespace != "" {
				name = d.Key.Namespace + "/" + name
			}
			examples[fmt.Sprintf("%s %s was deleted", d.Key.Kind, name)] = true
		}
		for _, bundle := range t.LeftBundles {
			out.Rows++
			if bundle != "" {
				examples[fmt.Sprintf("Bundle %s left cluster %s", bundle, t.Cluster)] = true
			}
		}
	}
	out.Templates = int32(len(templates))
	out.Examples = slices.Sorted(maps.Keys(examples))
	out.Examples = out.Examples[:min(len(out.Examples), maxExamples)]
	return out
}
