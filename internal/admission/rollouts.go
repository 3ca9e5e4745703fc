package admission

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// checkRollout returns the fields of a rollout that could not be honoured.
func checkRollout(r *v1alpha1.Rollout, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	errs = append(errs, checkRolloutBound(r.MaxUnavailable, 1, at.Child("maxUnavailable"))...)
	if staged := r.Type == v1alpha1.RolloutStaged; staged != (len(r.Stages)+len(r.AutoStages) > 0) {
		errs = append(errs, field.Invalid(at.Child("type"), r.Type, "stages and autoStages need type: Staged, and type: Staged needs one of them"))
	}
	errs = append(errs, checkAutoStages(r, at)...)
	errs = append(errs, checkWindows(r.Windows, at.Child("windows"))...)
	errs = append(errs, checkGateURLs(r, at)...)
	if n := countNeededApprovals(r); n > maxApprovals {
		stages := "stages"
		if len(r.AutoStages) > 0 {
			stages = "autoStages"
		}
		errs = append(errs, field.Invalid(at.Child(stages), n, fmt.Sprintf("the gates need more than the %d approvals that a Bundle can hold", maxApprovals)))
	}
	names := map[string]bool{v1alpha1.RestStage: true}
	for i := range r.Stages {
		s, in := &r.Stages[i], at.Child("stages").Index(i)
		if names[s.Name] {
			errs = append(errs, field.Duplicate(in.Child("name"), s.Name))
		}
		names[s.Name] = true
		errs = append(errs, checkStageClusters(&s.Clusters, i == len(r.Stages)-1, in.Child("clusters"))...)
		errs = append(errs, checkRolloutBound(s.MaxConcurrency, 1, in.Child("maxConcurrency"))...)
		errs = append(errs, checkRolloutBound(s.MaxFailures, 0, in.Child("maxFailures"))...)
		errs = append(errs, rollout.CheckGates(s, i == 0, in)...)
	}
	return errs
}

// checkWindows checks change windows.
func checkWindows(list []v1alpha1.ChangeWindow, at *field.Path) field.ErrorList {
	errs := changewindow.CheckWindows(list, at)
	for i := range list[:min(len(list), changewindow.MaxWindows)] {
		errs = append(errs, checkLabels(list[i].ClusterSelector, at.Index(i).Child("clusterSelector"))...)
	}
	return errs
}

// checkAutoStages checks sizes and options of automatic stages.
func checkAutoStages(r *v1alpha1.Rollout, at *field.Path) (errs field.ErrorList) {
	in := at.Child("autoStages")
	if len(r.Stages) > 0 && len(r.AutoStages) > 0 {
		errs = append(errs, field.Forbidden(in, "give stages or autoStages, and not both"))
	}
	for i := range r.AutoStages {
		size := &r.AutoStages[i]
		if bad := checkRolloutBound(size, 1, in.Index(i)); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		if i > 0 && !isLargerStage(&r.AutoStages[i-1], size) {
			errs = append(errs, field.Invalid(in.Index(i), size.String(), "must be larger than the size before it; numbers come before percentages"))
		}
	}
	o := r.AutoStageOptions
	if o == nil {
		return errs
	}
	in = at.Child("autoStageOptions")
	if len(r.AutoStages) == 0 {
		errs = append(errs, field.Forbidden(in, "autoStageOptions need autoStages"))
	}
	if len(o.GatesBefore) > 0 && len(r.AutoStageSizes()) == 1 {
		errs = append(errs, field.Forbidden(in.Child("gatesBefore"), "the gates hold each stage but the first, and autoStages has one stage: state a smaller size before it"))
	}
	errs = append(errs, checkRolloutBound(o.MaxConcurrency, 1, in.Child("maxConcurrency"))...)
	errs = append(errs, checkRolloutBound(o.MaxFailures, 0, in.Child("maxFailures"))...)
	return append(errs, rollout.CheckGates(&v1alpha1.RolloutStage{GatesBefore: o.GatesBefore}, false, in)...)
}

// isLargerStage reports whether a size of an automatic stage may follow another one. Only sizes of one type are comparable before
// the number of clusters is known.
func isLargerStage(before, size *intstr.IntOrString) bool {
	if before.Type != size.Type {
		return size.Type == intstr.String
	}
	return stageSize(before) < stageSize(size)
}

// stageSize returns the number, or that of the percentage, of a size; 0 where it is malformed.
func stageSize(b *intstr.IntOrString) int {
	if b.Type == intstr.Int {
		return int(b.IntVal)
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(b.StrVal, "%"))
	return n
}

// countNeededApprovals returns how many approvals the gates of all stages need.
func countNeededApprovals(r *v1alpha1.Rollout) (n int) {
	for _, s := range r.ListStages() {
		for _, g := range slices.Concat(s.GatesBefore, s.GatesAfter) {
			if g.Approval != nil {
				n += g.Approval.NeededApprovers()
			}
		}
	}
	return n
}

func checkStageClusters(c *v1alpha1.StageClusters, isLast bool, at *field.Path) field.ErrorList {
	sel := c.LabelSelector
	switch {
	case (sel != nil) == (len(c.Names) > 0):
		return field.ErrorList{field.Required(at, "give names or labelSelector, and not both")}
	case sel == nil:
		return nil
	case len(sel.MatchLabels)+len(sel.MatchExpressions) > 0:
		return checkLabels(sel, at.Child("labelSelector"))
	case !isLast:
		return field.ErrorList{field.Required(at.Child("labelSelector"), "an empty selector takes all that is left, so that only the last stage may have one")}
	}
	return nil
}

// checkRolloutBound checks a number or a percentage of at least so much.
func checkRolloutBound(b *intstr.IntOrString, least int, at *field.Path) field.ErrorList {
	if b == nil {
		return nil
	}
	n, most := int(b.IntVal), math.MaxInt32
	if b.Type == intstr.String {
		var err error
		if n, err = strconv.Atoi(b.StrVal[:max(0, len(b.StrVal)-1)]); err != nil || !percentage.MatchString(b.StrVal) {
			n = -1
		}
		most = 100
	}
	if n < least || n > most {
		return field.ErrorList{field.Invalid(at, b.String(), fmt.Sprintf("must be a number of at least %d, or a percentage from %d%% to 100%%", least, least))}
	}
	return nil
}

// checkRolloutFitsInt32 refuses bounds that the typed object could not hold, which the schema of a number or a
// percentage lets through.
func checkRolloutFitsInt32(obj runtime.Object) (errs field.ErrorList) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	at := field.NewPath("spec", "rollout")
	check := func(of map[string]any, name string, at *field.Path) {
		if n, is := of[name].(int64); is && n != int64(int32(n)) {
			errs = append(errs, field.Invalid(at.Child(name), n, fmt.Sprintf("must be at most %d", math.MaxInt32)))
		}
	}
	stated, _, _ := unstructured.NestedMap(u.Object, "spec", "rollout")
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
