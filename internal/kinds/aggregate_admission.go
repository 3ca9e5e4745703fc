package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxTypeWarnings is the number of warnings of a type check that a cluster reports.
	maxTypeWarnings = 8
	// maxTypeWarning is the length of one of them, and of the name of its field.
	maxTypeWarning = 256
)

// reflectAdmissionPolicy returns field and text of each warning of the type check, one after the other.
func reflectAdmissionPolicy(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{C: packConditions(conditionsOf(st))}
	_, observes := observedGenerationOf(st)
	r.setFlag(observes, flagObserves)
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	warnings := listField(nestedMap(st, "typeChecking"), "expressionWarnings")
	for _, e := range warnings[:min(len(warnings), maxTypeWarnings)] {
		m, _ := e.(map[string]any)
		r.L = append(r.L, phrase.CutText(stringField(m, "fieldRef"), maxTypeWarning), phrase.CutText(stringField(m, "warning"), maxTypeWarning))
	}
	return r, observes || len(r.C) > 0
}

// aggregateAdmissionPolicy returns the type check of the cluster with the most warnings. Clusters differ in
// the kinds that they serve.
func aggregateAdmissionPolicy(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	worst := a.leastFinishedRow(func(r clusterRow) []int64 { return []int64{-int64(len(r.L))} })
	st := map[string]any{}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if worst.hasFlag(flagObserves) {
		check := map[string]any{}
		var warnings []any
		for i := 0; i+1 < len(worst.L); i += 2 {
			warnings = append(warnings, map[string]any{"fieldRef": worst.L[i], "warning": worst.L[i+1]})
		}
		if len(warnings) > 0 {
			check["expressionWarnings"] = warnings
		}
		st["typeChecking"] = check
	}
	if cs := a.buildStandardConditions(worst.conditionsWithMessages()); len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}
