package preview

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/phrase"
)

// Rebalance is what would change if Bundles and Placements were placed from scratch.
type Rebalance struct {
	// Asked is the time of the request: the value of the annotation that requests it.
	Asked string `json:"asked"`
	Plan
	// Placements that would publish other clusters.
	Placements []PlacementChange `json:"placements,omitempty"`
	// Looked counts the Bundles and Placements that were looked at.
	Looked int `json:"looked"`
	// Next is the last key of this page; empty: there is no more.
	Next string `json:"next,omitempty"`
}

// PlacementChange is what a Placement would publish otherwise.
type PlacementChange struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Added and Removed clusters, by name, and how many stay.
	Added     []string `json:"added,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	Unchanged int      `json:"unchanged,omitempty"`
}

// Add adds what more was looked at.
func (r *Rebalance) Add(more Rebalance) {
	if r.Asked == "" {
		r.Asked = more.Asked
	}
	if r.Changes = r.Changes || more.Changes; r.Bundles == nil {
		r.Bundles = []BundlePlan{} // as of a plan: what reads the JSON finds a list
	}
	r.Bundles, r.Placements = append(r.Bundles, more.Bundles...), append(r.Placements, more.Placements...)
	r.Refused, r.Hidden, r.Looked = append(r.Refused, more.Refused...), r.Hidden+more.Hidden, r.Looked+more.Looked
	r.Holding, r.Next = more.Holding, more.Next
}

// WouldMove reports whether the Bundle would change by being placed from scratch.
func (x BundlePlan) WouldMove() bool { return len(x.Rows)+len(x.Held) > 0 }

// FormatText formats the rebalance for people, the summary first.
func (r Rebalance) FormatText(all bool) string {
	var b strings.Builder
	if r.Looked > 0 || len(r.Refused) == 0 {
		fmt.Fprintf(&b, "Of %d that were looked at: %s\n", r.Looked, r.Summary())
	}
	if n := len(r.Placements); n > 0 {
		fmt.Fprintf(&b, "%s would publish other clusters.\n", phrase.CountNoun(n, "Placement"))
	}
	for _, p := range r.Placements {
		fmt.Fprintf(&b, "Placement %s\n", strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
		if len(p.Added) > 0 {
			fmt.Fprintf(&b, "  + %s\n", abbreviateNames(p.Added, all))
		}
		if len(p.Removed) > 0 {
			fmt.Fprintf(&b, "  - %s\n", abbreviateNames(p.Removed, all))
		}
	}
	body := strings.TrimSuffix(r.Plan.FormatText(all), r.Summary()+"\n")
	b.WriteString(body)
	return b.String()
}
