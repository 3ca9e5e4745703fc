package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// checkChoice of the clusters that fit: what the schema cannot say.
func checkChoice(p *v1alpha1.Placement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]int{}
	for i := range p.SpreadConstraints {
		s, in := &p.SpreadConstraints[i], at.Child("spreadConstraints").Index(i)
		key := "field " + string(s.SpreadByField)
		if s.SpreadByLabel != "" {
			key = "label " + s.SpreadByLabel
			for _, msg := range validation.IsQualifiedName(s.SpreadByLabel) {
				errs = append(errs, field.Invalid(in.Child("spreadByLabel"), s.SpreadByLabel, msg))
			}
		}
		if first, twice := seen[key]; twice {
			errs = append(errs, field.Invalid(in, key, fmt.Sprintf("spreadConstraints[%d] spreads over it already: put both into one", first)))
		} else {
			seen[key] = i
		}
		if p.MaxClusters > 0 && s.MinGroups > p.MaxClusters {
			errs = append(errs, field.Invalid(in.Child("minGroups"), s.MinGroups, fmt.Sprintf("so many groups need as many clusters, and maxClusters is %d", p.MaxClusters)))
		}
	}
	scores := map[string]int{}
	for i := range p.Scores {
		s, in := &p.Scores[i], at.Child("scores").Index(i)
		key := string(s.Name) + " " + s.Resource
		if first, twice := scores[key]; twice {
			errs = append(errs, field.Invalid(in, s.Name, fmt.Sprintf("scores[%d] is the same: give it the weight of both", first)))
		} else {
			scores[key] = i
		}
		if s.Resource != "" {
			for _, msg := range validation.IsQualifiedName(s.Resource) {
				errs = append(errs, field.Invalid(in.Child("resource"), s.Resource, msg))
			}
		}
		if s.Full != nil && s.Full.Sign() <= 0 {
			errs = append(errs, field.Invalid(in.Child("full"), s.Full.String(), "must be more than 0"))
		}
	}
	if len(p.Scores) > 0 && p.MaxClusters == 0 && len(p.SpreadConstraints) == 0 {
		errs = append(errs, field.Invalid(at.Child("scores"), len(p.Scores), "all clusters that fit are chosen, however they score: give maxClusters or spreadConstraints too"))
	}
	return errs
}
