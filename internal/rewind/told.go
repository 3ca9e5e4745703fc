package rewind

import (
	"fmt"
	"maps"
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// mostExamples of removals are written down.
const mostExamples = 10

// Testimony is which removals one member remembers that the store does not.
type Testimony struct {
	Cluster string
	// Deleted templates that the store still has.
	Deleted []Deleted
	// Left names the Bundles, as namespace/name, that left the cluster and have a row
	// for it in the store; empty where a name is not known.
	Left []string
}

// SumUp what members told: whose word it is, over how much, with some examples. A
// template that several members remember counts once.
func SumUp(all []Testimony) *enginev1.Told {
	out := &enginev1.Told{Clusters: int32(len(all))}
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
		for _, bundle := range t.Left {
			out.Rows++
			if bundle != "" {
				examples[fmt.Sprintf("Bundle %s left cluster %s", bundle, t.Cluster)] = true
			}
		}
	}
	out.Templates = int32(len(templates))
	out.Examples = slices.Sorted(maps.Keys(examples))
	out.Examples = out.Examples[:min(len(out.Examples), mostExamples)]
	return out
}
