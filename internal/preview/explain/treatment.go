package explain

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// itemTreatment returns how members treat the object; nil: as all others, or it is no item of the
// Bundle.
func (in Input) itemTreatment(b Bundle) *atoll.Treatment {
	if item := in.itemOf(b); item != nil {
		return item.Treatment
	}
	return nil
}

// writeTreatment writes a line for each part of a treatment.
func writeTreatment(b *strings.Builder, t *atoll.Treatment) {
	if t == nil {
		return
	}
	switch t.Observation() {
	case atoll.ObserveDrift:
		b.WriteString("  Clusters write nothing of it, and report where it differs (drift: Report): atoll drift lists the differences.\n")
	case atoll.ObserveHealth:
		b.WriteString("  Clusters write nothing of it, and report its health (update: ReadOnly).\n")
	}
	switch {
	case t.Observation() == atoll.ObserveHealth:
	case t.IsCreateOnly() && t.Observation() == "":
		b.WriteString("  Clusters create it and own it from then on (update: CreateOnly): no edit or override reaches it there.\n")
	case len(t.IgnoreFields) > 0:
		fmt.Fprintf(b, "  Each cluster keeps its own values of %s (ignoreFields).\n", strings.Join(t.IgnoreFields, ", "))
	}
	switch t.Removal {
	case v1alpha1.RemoveOrphan:
		b.WriteString("  It stays in clusters that it is taken out of (removal: Orphan).\n")
	case v1alpha1.RemoveDelete:
		b.WriteString("  It is deleted in clusters that it is taken out of (removal: Delete).\n")
	}
}
