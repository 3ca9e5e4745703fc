package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// healthReader describes how the health of a custom kind is read. The order is: pausedField,
// presence of a status, observed generation, conditions, phase, required conditions.
type healthReader struct {
	// pausedField is a boolean field by which users suspend the object. With runsOnce it has
	// no effect on an object that has ended.
	pausedField fieldPath
	runsOnce    bool
	// healthyWithoutStatus: an object without a status is Healthy. Default: Progressing.
	healthyWithoutStatus bool
	// Each of these conditions gives the health in its name while it is True.
	suspendedConditions, degradedConditions, progressingConditions []string
	// phasePath is relative to the status; nil: the kind has no phase. phaseHealth maps phases
	// to health. Other phases give otherPhases, or Unknown where that is empty.
	phasePath   fieldPath
	phaseHealth map[string]atoll.Health
	otherPhases atoll.Health
	// messagePath of the message that explains the phase, relative to the status.
	messagePath fieldPath
	// requiredConditions have to be True. With falseIsDegraded, False gives Degraded: the kind
	// reports Unknown while it still works. Default: Progressing.
	requiredConditions []string
	falseIsDegraded    bool
	// observedIsEnough: an observed generation alone makes the object Healthy.
	observedIsEnough bool
}

func (r *healthReader) readHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if r.pausedField != nil && valueAt(obj.Object, r.pausedField) == true && !r.hasEnded(obj) {
		return atoll.Suspended, "Suspended", "it is suspended by " + r.pausedField.String()
	}
	st := statusOf(obj)
	switch {
	case hasUnreadableStatus(obj):
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	case len(st) == 0 && r.healthyWithoutStatus:
		return healthyResult()
	case len(st) == 0:
		return notReportedResult()
	}
	if observed, ok := observedGenerationOf(st); ok && observed < obj.GetGeneration() {
		return notObservedResult()
	}
	cs := conditionsOf(st)
	markOutdatedConditions(cs, obj.GetGeneration())
	if h, reason, message := r.readAdverseConditions(cs); h != "" {
		return h, reason, message
	}
	return r.readPhaseAndConditions(st, cs)
}

// readAdverseConditions returns no health where no adverse condition is True.
func (r *healthReader) readAdverseConditions(cs []condition) (atoll.Health, string, string) {
	for _, group := range []struct {
		conditionTypes []string
		health         atoll.Health
	}{{r.suspendedConditions, atoll.Suspended}, {r.degradedConditions, atoll.Degraded}, {r.progressingConditions, atoll.Progressing}} {
		for _, conditionType := range group.conditionTypes {
			if c := findCondition(cs, conditionType); c.hasStatus("True") {
				return group.health, camelCaseReason(orElse(c.reason, conditionType)), c.message
			}
		}
	}
	return "", "", ""
}

// hasEnded reports whether an object that runs once has ended, by its phase.
func (r *healthReader) hasEnded(obj *unstructured.Unstructured) bool {
	h := r.phaseHealth[stringAt(statusOf(obj), r.phasePath)]
	return r.runsOnce && (h == atoll.Healthy || h == atoll.Degraded)
}

// readPhaseAndConditions reads the status once no adverse condition is True.
func (r *healthReader) readPhaseAndConditions(st map[string]any, cs []condition) (atoll.Health, string, string) {
	h, reason, message := r.readPhase(st)
	if h != "" && h != atoll.Healthy {
		return h, reason, message
	}
	reported := r.observedIsEnough || h == atoll.Healthy
	for _, conditionType := range r.requiredConditions {
		c := findCondition(cs, conditionType)
		switch {
		case c.conditionType == "" && reported:
			continue // the phase is enough
		case c.hasStatus("False") && r.falseIsDegraded:
			return atoll.Degraded, camelCaseReason(orElse(c.reason, "Not"+conditionType)), orElse(c.message, fmt.Sprintf("condition %s is False", conditionType))
		case !c.hasStatus("True"):
			return atoll.Progressing, camelCaseReason(orElse(c.reason, "Not"+conditionType)), orElse(c.message, fmt.Sprintf("condition %s is %s", conditionType, orElse(c.status, "not there yet")))
		}
	}
	if reported || len(r.requiredConditions) > 0 {
		return healthyResult()
	}
	return notReportedResult()
}

// readPhase returns no health where the status has no phase.
func (r *healthReader) readPhase(st map[string]any) (atoll.Health, string, string) {
	phase := stringAt(st, r.phasePath)
	if r.phasePath == nil || phase == "" {
		return "", "", ""
	}
	h := cmp.Or(r.phaseHealth[phase], r.otherPhases)
	switch h {
	case "":
		return atoll.Unknown, "UnreadableStatus", fmt.Sprintf("%s is %q, which means nothing here", strings.Join(r.phasePath, "."), phase)
	case atoll.Healthy:
		return healthyResult()
	}
	return h, camelCaseReason(phase), orElse(stringAt(st, r.messagePath), fmt.Sprintf("%s is %s", strings.Join(r.phasePath, "."), phase))
}

func notReportedResult() (atoll.Health, string, string) {
	return atoll.Progressing, "NotReported", "the member's controller has not reported a status yet"
}

func newHealthFunc(r healthReader) healthFunc { return (&r).readHealth }

// observedHealth is for kinds whose controller reports the observed generation alone.
var observedHealth = newHealthFunc(healthReader{observedIsEnough: true})

// configTraits is for kinds of configuration, whose status has no bearing on health.
var configTraits = kindTraits{health: existenceHealth}

// readyHealth is for kinds whose controller reports the condition Ready.
var readyHealth = newHealthFunc(healthReader{degradedConditions: []string{"Stalled"}, progressingConditions: []string{"Reconciling"}, requiredConditions: []string{"Ready"}})

// camelCaseReason turns a phase into a reason: "SUBMISSION_FAILED" becomes SubmissionFailed.
func camelCaseReason(s string) string {
	parts := strings.FieldsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9')
	})
	for i, p := range parts {
		if strings.ToUpper(p) == p {
			p = strings.ToLower(p)
		}
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}

// The health of phases, in short for the tables.
const (
	phaseHealthy     = atoll.Healthy
	phaseDegraded    = atoll.Degraded
	phaseProgressing = atoll.Progressing
	phaseSuspended   = atoll.Suspended
)

// endedInPhase returns a function that reports whether the phase is one of these.
func endedInPhase(at fieldPath, phases ...string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		return slices.Contains(phases, stringAt(statusOf(obj), at))
	}
}

// endedByCondition returns a function that reports whether one of these conditions is True.
func endedByCondition(conditions ...string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		cs := conditionsOf(statusOf(obj))
		for _, kind := range conditions {
			if findCondition(cs, kind).hasStatus("True") {
				return true
			}
		}
		return false
	}
}
