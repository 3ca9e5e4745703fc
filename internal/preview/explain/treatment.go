package explain

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// itemTreatment returns how members treat the object; nil: as all others, or it is no item of the
// Bundle.
func (in ExplanationInput) itemTreatment(b Bundle) *atoll.Treatment {
	if item := in.itemOf(b); item != nil {
		return item.Treatment
	}
	return nil
}

// conflictTexts describe what happens to an object that Atoll did not create.
var conflictTexts = map[v1alpha1.ConflictResolution]string{
	v1alpha1.ConflictAbort: "left alone", v1alpha1.ConflictAdoptIfSame: "adopted if it has the same fields", v1alpha1.ConflictOverwrite: "adopted and overwritten",
}

// removalTexts describe what happens to an object in clusters that it is taken out of.
var removalTexts = map[v1alpha1.RemovalMode]string{
	v1alpha1.RemoveOrphan:  "stays in clusters that it is taken out of",
	v1alpha1.RemoveConfirm: "stays in clusters that it is taken out of until a person confirms it with `atoll confirm`",
	v1alpha1.RemoveLast:    "is deleted in clusters that it is taken out of, after all other objects of the Bundle that go there",
	v1alpha1.RemoveDelete:  "is deleted in clusters that it is taken out of",

	v1alpha1.RemoveWithBundle: "stays in clusters that it is taken out of, and is deleted where its Bundle is deleted",
}

// updateText returns the line about the writes of clusters; empty where they write the object as all others.
func updateText(t *atoll.Treatment) string {
	switch {
	case t.Observation() == atoll.ObserveDrift:
		return "  Clusters write nothing of it, and report where it differs (drift: Report): atoll drift lists the differences.\n"
	case t.Observation() == atoll.ObserveForApproval:
		return "  Clusters write nothing of it before a person approves what they report (drift: Approve): atoll drift lists the differences, and atoll drift correct approves them.\n"
	case t.Observation() == atoll.ObserveHealth:
		return "  Clusters write nothing of it, and report its health (update: ReadOnly).\n"
	case t.IsCreateOnly():
		return "  Clusters create it and own it from then on (update: CreateOnly): no edit or override reaches it there.\n"
	case t.IsRecreated():
		return "  Clusters delete it and create it again where they refuse an edit (update: Recreate).\n"
	}
	return ""
}

// writeAssessment writes a line for each part of an assessment.
func writeAssessment(b *strings.Builder, a *atoll.Assessment) {
	if a == nil {
		return
	}
	if len(a.Feedback) > 0 {
		names := make([]string, len(a.Feedback))
		for i, f := range a.Feedback {
			names[i] = f.Name
		}
		fmt.Fprintf(b, "  Clusters report %s of it (feedback).\n", strings.Join(names, ", "))
	}
	if len(a.Health) > 0 {
		fmt.Fprintf(b, "  It is healthy where %s true (health).\n", map[bool]string{true: "the expression of its policy is", false: "all expressions of its policy are"}[len(a.Health) == 1])
	}
	if a.Completion != "" {
		fmt.Fprintf(b, "  It has run to completion where %s is true (completion).\n", phrase.EscapeLine(a.Completion))
	}
	if ttl := a.TTLSecondsAfterFinished; ttl != nil {
		fmt.Fprintf(b, "  Clusters delete it %d s after it has run to completion (ttlSecondsAfterFinished).\n", *ttl)
	}
}

// writeHook writes when clusters run the object of a hook; nothing for nil.
func writeHook(b *strings.Builder, h *atoll.Hook) {
	switch {
	case h == nil:
	case len(h.Events) == 0:
		b.WriteString("  It is a hook that never runs: clusters do not apply it.\n")
	default:
		each := "each content"
		if h.RunsOnlyAtRemoval() {
			each = "each removal"
		} else if len(h.RemovalPhases()) > 0 {
			each = "each content and each removal"
		}
		fmt.Fprintf(b, "  It is a hook: clusters run it once for %s of the Bundle, in %s, and delete it by %s.\n", each, h.Text(), h.DeletePolicyText())
	}
}

// writeTreatment writes a line for each part of a treatment.
func writeTreatment(b *strings.Builder, t *atoll.Treatment) {
	if t == nil {
		return
	}
	b.WriteString(updateText(t))
	if len(t.IgnoreFields) > 0 && t.Update != v1alpha1.UpdateReadOnly && t.Update != v1alpha1.UpdateCreateOnly {
		fmt.Fprintf(b, "  Each cluster keeps its own values of %s (ignoreFields).\n", strings.Join(t.IgnoreFields, ", "))
	}
	if t.ConflictResolution != "" {
		fmt.Fprintf(b, "  An object of this name that is not Atoll's is %s (conflictResolution: %s).\n", conflictTexts[t.ConflictResolution], t.ConflictResolution)
	}
	if t.ServiceAccount != "" {
		fmt.Fprintf(b, "  Clusters write only what their ServiceAccount %s has the right to as well (serviceAccount).\n", t.ServiceAccount)
	}
	writeHook(b, t.StatedHook())
	if t.Wave != 0 && t.StatedHook() != nil {
		fmt.Fprintf(b, "  It is of wave %d of its phase.\n", t.Wave)
	} else if t.Wave != 0 {
		fmt.Fprintf(b, "  It is of wave %d: clusters apply it when the wave before is healthy, and remove it before earlier waves.\n", t.Wave)
	}
	writeAssessment(b, t.Assessment)
	if t.Removal != "" {
		fmt.Fprintf(b, "  It %s (removal: %s).\n", removalTexts[t.Removal], t.Removal)
	}
}
