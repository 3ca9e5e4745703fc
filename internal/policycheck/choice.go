package policycheck

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// checkSpreadScoresAndGroups checks the choice of the clusters that fit, beyond what the schema can express.
func checkSpreadScoresAndGroups(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	errs := append(checkSpread(pl, refused, at), checkScores(pl, refused, at)...)
	names := map[string]bool{}
	for i, g := range pl.DecisionGroups {
		in := at.Child("decisionGroups").Index(i)
		switch empty := len(g.LabelSelector.MatchLabels)+len(g.LabelSelector.MatchExpressions) == 0; {
		case empty && i < len(pl.DecisionGroups)-1:
			errs = append(errs, field.Required(in.Child("labelSelector"), "an empty selector takes all that is left, so that only the last group may have one"))
		case !empty:
			errs = append(errs, CheckLabelSelector(&pl.DecisionGroups[i].LabelSelector, in.Child("labelSelector"))...)
		}
		if names[g.GroupName] {
			errs = append(errs, field.Duplicate(in.Child("groupName"), g.GroupName))
		}
		names[g.GroupName] = true
	}
	if pl.MaxClusters > 0 || len(pl.SpreadConstraints) > 0 {
		return errs
	}
	const all = "all clusters that fit are chosen, however they score: give maxClusters or spreadConstraints too"
	if len(pl.Scores) > 0 {
		errs = append(errs, field.Invalid(at.Child("scores"), len(pl.Scores), all))
	}
	if r := pl.Rescheduling; r != nil && r.When == v1alpha1.RescheduleWhenBetter {
		errs = append(errs, field.Invalid(at.Child("rescheduling", "when"), r.When, all))
	}
	return errs
}

func checkSpread(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]int{}
	for i := range pl.SpreadConstraints {
		s, in := &pl.SpreadConstraints[i], at.Child("spreadConstraints").Index(i)
		key, keyErrs := checkSpreadKey(s, refused, in)
		errs = append(errs, keyErrs...)
		if first, twice := seen[key]; twice {
			errs = append(errs, field.Invalid(in, key, fmt.Sprintf("spreadConstraints[%d] spreads over it already: put both into one", first)))
		} else {
			seen[key] = i
		}
		if pl.MaxClusters > 0 && int64(s.MinGroups) > mostGroups(s, pl.MaxClusters) {
			errs = append(errs, field.Invalid(in.Child("minGroups"), s.MinGroups, fmt.Sprintf("so many groups need more clusters, and maxClusters is %d", pl.MaxClusters)))
		}
	}
	return errs
}

// mostGroups returns the most groups that so many clusters can be in: one each, and several zones.
func mostGroups(s *v1alpha1.SpreadConstraint, clusters int32) int64 {
	if s.SpreadByField == v1alpha1.SpreadByZone {
		return int64(clusters) * v1alpha1.MaxZones
	}
	return int64(clusters)
}

// checkSpreadKey returns what a constraint spreads over, and its errors.
func checkSpreadKey(s *v1alpha1.SpreadConstraint, refused PropertyRefusal, at *field.Path) (key string, errs field.ErrorList) {
	switch {
	case s.SpreadByLabel != "":
		for _, msg := range validation.IsQualifiedName(s.SpreadByLabel) {
			errs = append(errs, field.Invalid(at.Child("spreadByLabel"), s.SpreadByLabel, msg))
		}
		return "label " + s.SpreadByLabel, errs
	case s.SpreadByProperty != "":
		if why := refused(s.SpreadByProperty); why != "" {
			errs = append(errs, field.Invalid(at.Child("spreadByProperty"), s.SpreadByProperty, why))
		}
		return "property " + s.SpreadByProperty, errs
	}
	return "field " + string(cmp.Or(s.SpreadByField, v1alpha1.SpreadByCluster)), nil
}

func checkScores(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	scores := map[string]int{}
	for i := range pl.Scores {
		s, in := &pl.Scores[i], at.Child("scores").Index(i)
		key := string(s.Name) + " " + s.Resource + s.Measure
		if s.Property != nil {
			key += s.Property.Name
			errs = append(errs, checkScoredProperty(s.Property, refused, in.Child("property"))...)
		}
		first, twice := scores[key]
		switch {
		case s.Bundles != nil: // several may have different ones
			errs = append(errs, CheckLabelSelector(s.Bundles.LabelSelector, in.Child("bundles", "labelSelector"))...)
		case s.ClusterAffinity != nil: // several may prefer different ones
			errs = append(errs, checkPreferredClusters(s.ClusterAffinity, refused, in.Child("clusterAffinity"))...)
		case twice:
			errs = append(errs, field.Invalid(in, s.Name, fmt.Sprintf("scores[%d] is the same: give it the weight of both", first)))
		default:
			scores[key] = i
		}
		errs = append(errs, checkScoreScale(s, in)...)
	}
	return errs
}

// checkPreferredClusters checks the affinity of a score as that of a placement, and refuses one that selects all clusters.
func checkPreferredClusters(a *v1alpha1.ClusterAffinity, refused PropertyRefusal, at *field.Path) field.ErrorList {
	if a.LabelSelector == nil && a.FieldSelector == nil && len(a.ClusterNames) == 0 && len(a.ExcludeClusters) == 0 {
		return field.ErrorList{field.Required(at, "an empty affinity prefers all clusters equally")}
	}
	return append(checkAffinity(a, at), checkFieldKeys(a.FieldSelector, at.Child("fieldSelector"), refused)...)
}

// checkScoredProperty refuses a property that steers no placement, and a range without a middle.
func checkScoredProperty(property *v1alpha1.PropertyScore, refused PropertyRefusal, at *field.Path) (errs field.ErrorList) {
	if why := refused(property.Name); why != "" {
		errs = append(errs, field.Invalid(at.Child("name"), property.Name, why))
	}
	if property.From.Cmp(property.To) == 0 {
		errs = append(errs, field.Invalid(at.Child("to"), property.To.String(), "must differ from from, so that there is something between them"))
	}
	return errs
}

// checkScoreScale refuses malformed names of what a score counts, and a scale of nothing.
func checkScoreScale(s *v1alpha1.Score, at *field.Path) (errs field.ErrorList) {
	if s.Resource != "" {
		for _, msg := range validation.IsQualifiedName(s.Resource) {
			errs = append(errs, field.Invalid(at.Child("resource"), s.Resource, msg))
		}
	}
	if s.Measure != "" {
		for _, msg := range validation.IsDNS1123Label(s.Measure) {
			errs = append(errs, field.Invalid(at.Child("measure"), s.Measure, msg))
		}
	}
	if s.Full != nil && s.Full.Sign() <= 0 {
		errs = append(errs, field.Invalid(at.Child("full"), s.Full.String(), "must be more than 0"))
	}
	return errs
}
