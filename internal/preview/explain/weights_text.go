package explain

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// writeStaticWeightNotes writes how static weights count where their list alone does not show it.
func (x *BundleExplanation) writeStaticWeightNotes(b *strings.Builder) {
	if x.EvenDivision {
		fmt.Fprintf(b, "  No entry of staticWeightList matches a cluster that is chosen, so that replicas are divided evenly; to act: %s.\n", atoll.DescribeSourceEditor(x.Source))
	}
	if x.SummedWeights {
		b.WriteString("  Weights of several entries of staticWeightList add up for a cluster, as in v0.1.0. The next edit of the placement makes the largest count.\n")
	}
}
