package admission

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/phrase"
)

// checkRolloutFitsInt32 refuses bounds that the typed object could not hold, which the schema of a number or a
// percentage lets through. The rollout is in the named field.
func checkRolloutFitsInt32(obj runtime.Object, in ...string) (errs field.ErrorList) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	at := field.NewPath(in[0], in[1:]...)
	check := func(of map[string]any, name string, at *field.Path) {
		if n, is := of[name].(int64); is && n != int64(int32(n)) {
			errs = append(errs, field.Invalid(at.Child(name), n, fmt.Sprintf("must be at most %d", math.MaxInt32)))
		}
	}
	stated, _, _ := unstructured.NestedMap(u.Object, in...)
	check(stated, "maxUnavailable", at)
	if options, is := stated["autoStageOptions"].(map[string]any); is {
		check(options, "maxConcurrency", at.Child("autoStageOptions"))
		check(options, "maxFailures", at.Child("autoStageOptions"))
	}
	sizes, _ := stated["autoStages"].([]any)
	for i, size := range sizes {
		if n, is := size.(int64); is && n != int64(int32(n)) {
			errs = append(errs, field.Invalid(at.Child("autoStages").Index(i), n, fmt.Sprintf("must be at most %d", math.MaxInt32)))
		}
	}
	stages, _ := stated["stages"].([]any)
	for i, s := range stages {
		if m, is := s.(map[string]any); is {
			check(m, "maxConcurrency", at.Child("stages").Index(i))
			check(m, "maxFailures", at.Child("stages").Index(i))
		}
	}
	return errs
}

// The fields of a Bundle by which people pause and resume its rollout.
var (
	pausePath  = []string{"spec", "pause"}
	resumePath = []string{"spec", "resume"}
)

// stampLayout is how the hub writes a time into a field of a user's object.
const stampLayout = "2006-01-02T15:04:05Z"

// maxAuthorBytes is the length of a user's name that the schema of a pause and a resume accepts.
const maxAuthorBytes = 512

// stampRolloutAuthor writes the user and the time into a pause, a resume, an exemption or an approval that an update states or edits, whatever
// the writer states. An edited pause began when it was first stated.
func (p *AdmissionPlugin) stampRolloutAuthor(a admission.Attributes) {
	now, ok := a.GetObject().(*unstructured.Unstructured)
	before, ok2 := a.GetOldObject().(*unstructured.Unstructured)
	if !ok || !ok2 || a.GetOperation() != admission.Update {
		return
	}
	at := p.Clock.Now().UTC().Format(stampLayout)
	p.stampAuthor(a, now, before, pausePath, "since", at)
	p.stampAuthor(a, now, before, exemptionPath, "at", at)
	p.stampAuthor(a, now, before, resumePath, "at", at)
	p.stampApprovals(a, now, before, at)
}

func (p *AdmissionPlugin) stampAuthor(a admission.Attributes, now, before *unstructured.Unstructured, path []string, timeField, at string) {
	is, stated, _ := unstructured.NestedMap(now.Object, path...)
	was, had, _ := unstructured.NestedMap(before.Object, path...)
	if !stated || had && equality.Semantic.DeepEqual(is, was) {
		return
	}
	if began, _ := was[timeField].(string); began != "" && timeField == "since" {
		at = began
	}
	is["by"], is[timeField] = phrase.TruncateText(a.GetUserInfo().GetName(), maxAuthorBytes), at
	_ = unstructured.SetNestedMap(now.Object, is, path...) // fails for no object that has the path
}
