package policycheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/rollout"
)

// MaxApprovals is how many the schema of a Bundle accepts.
const MaxApprovals = 64

// checkRollout returns the fields of a rollout that could not be honoured.
func checkRollout(r *v1alpha1.Rollout, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	errs = append(errs, checkBound(r.MaxUnavailable, 1, at.Child("maxUnavailable"))...)
	if staged := r.Type == v1alpha1.RolloutStaged; staged != (len(r.Stages)+len(r.AutoStages) > 0) {
		errs = append(errs, field.Invalid(at.Child("type"), r.Type, "stages and autoStages need type: Staged, and type: Staged needs one of them"))
	}
	errs = append(errs, checkAutoStages(r, at)...)
	errs = append(errs, checkWindows(r.Windows, at.Child("windows"))...)
	errs = append(errs, checkGateURLs(r, at)...)
	if n := countNeededApprovals(r); n > MaxApprovals {
		stages := "stages"
		if len(r.AutoStages) > 0 {
			stages = "autoStages"
		}
		errs = append(errs, field.Invalid(at.Child(stages), n, fmt.Sprintf("the gates need more than the %d approvals that a Bundle can hold", MaxApprovals)))
	}
	names := map[string]bool{v1alpha1.RestStage: true}
	for i := range r.Stages {
		s, in := &r.Stages[i], at.Child("stages").Index(i)
		if names[s.Name] {
			errs = append(errs, field.Duplicate(in.Child("name"), s.Name))
		}
		names[s.Name] = true
		errs = append(errs, checkStageClusters(&s.Clusters, i == len(r.Stages)-1, in.Child("clusters"))...)
		errs = append(errs, checkBound(s.MaxConcurrency, 1, in.Child("maxConcurrency"))...)
		errs = append(errs, checkBound(s.MaxFailures, 0, in.Child("maxFailures"))...)
		errs = append(errs, rollout.CheckGates(s, i == 0, in)...)
	}
	return errs
}

// checkWindows checks change windows.
func checkWindows(list []v1alpha1.ChangeWindow, at *field.Path) field.ErrorList {
	errs := changewindow.CheckWindows(list, at)
	for i := range list[:min(len(list), changewindow.MaxWindows)] {
		errs = append(errs, CheckLabelSelector(list[i].ClusterSelector, at.Index(i).Child("clusterSelector"))...)
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
		if bad := checkBound(size, 1, in.Index(i)); len(bad) > 0 {
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
	errs = append(errs, checkBound(o.MaxConcurrency, 1, in.Child("maxConcurrency"))...)
	errs = append(errs, checkBound(o.MaxFailures, 0, in.Child("maxFailures"))...)
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
		return CheckLabelSelector(sel, at.Child("labelSelector"))
	case !isLast:
		return field.ErrorList{field.Required(at.Child("labelSelector"), "an empty selector takes all that is left, so that only the last stage may have one")}
	}
	return nil
}
