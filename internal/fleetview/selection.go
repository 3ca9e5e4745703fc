package fleetview

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"atoll.dev/atoll/internal/atoll"
)

// Fields that hold names, of the object, of where it is, or of what it is about.
const (
	fieldNode      = "spec.nodeName"
	fieldName      = "metadata.name"
	fieldAboutName = "involvedObject.name"
	fieldAboutUID  = "involvedObject.uid"
)

// ownerLabels hold the UID of an owner, which is shown otherwise than it is.
var ownerLabels = []string{batchv1.ControllerUidLabel, "controller-uid"}

// FleetSelection is what a list or watch of what is shown selects. The zero value selects all.
type FleetSelection struct {
	labels  labels.Requirements // of the objects in members
	cluster labels.Requirements // of the clusters' names
	fields  fields.Requirements
	nothing bool
	// ownIn is the one cluster whose objects are selected, and shown, by their own names; empty: all
	// are by their full names.
	ownIn string
}

// SelectionOf returns the selection of a request; either may be nil.
func SelectionOf(l labels.Selector, f fields.Selector) (s FleetSelection) {
	if l != nil {
		all, selectable := l.Requirements()
		s.nothing = !selectable
		for _, r := range all {
			if r.Key() == atoll.LabelCluster {
				s.cluster = append(s.cluster, r)
			} else if slices.Contains(ownerLabels, r.Key()) {
				s.labels = append(s.labels, presenceRequirement(r)...)
			} else {
				s.labels = append(s.labels, r)
			}
		}
	}
	if f != nil {
		s.fields = f.Requirements()
	}
	return s
}

// presenceRequirement is the only requirement on a label whose shown value differs: whether it is there.
func presenceRequirement(r labels.Requirement) []labels.Requirement {
	switch r.Operator() {
	case selection.Exists, selection.DoesNotExist:
		return []labels.Requirement{r}
	case selection.In, selection.Equals, selection.DoubleEquals:
		if exists, err := labels.NewRequirement(r.Key(), selection.Exists, nil); err == nil {
			return []labels.Requirement{*exists}
		}
	}
	return nil
}

// SingleName is the one name that is selected, empty where there may be several.
func (s FleetSelection) SingleName() string { return s.requiredFieldValue(fieldName) }

// requiredFieldValue returns the value that a field must have, empty where it may have several.
func (s FleetSelection) requiredFieldValue(field string) string {
	for _, r := range s.fields {
		if r.Field == field && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) {
			return r.Value
		}
	}
	return ""
}

// ByOwnName returns the selection in which names are those that objects have in one cluster, of
// objects there alone.
func (s FleetSelection) ByOwnName(cluster string) FleetSelection {
	s.ownIn = cluster
	return s
}

// IsByOwnName reports whether names are those of one cluster.
func (s FleetSelection) IsByOwnName() bool { return s.ownIn != "" }

// SelectorsFor returns the selectors of the request to a cluster; false where nothing there can be
// selected. They select at least what is selected of the cluster, and of what may change in
// an object exactly that: names and UIDs that are shown otherwise than they are remain to be
// compared with what is shown.
func (s FleetSelection) SelectorsFor(cluster string) (label, field string, ok bool) {
	if s.nothing || s.ownIn != "" && s.ownIn != cluster {
		return "", "", false
	}
	for _, r := range s.cluster {
		if !r.Matches(labels.Set{atoll.LabelCluster: cluster}) {
			return "", "", false
		}
	}
	var there []fields.Selector
	for _, r := range s.fields {
		if s.ownIn != "" && r.Field == fieldName {
			there = append(there, fieldSelector(r, r.Value))
			continue
		}
		one, ok := memberRequirement(r, cluster)
		if !ok {
			return "", "", false
		}
		if one != nil {
			there = append(there, one)
		}
	}
	return labels.NewSelector().Add(s.labels...).String(), fields.AndSelectors(there...).String(), true
}

// memberRequirement returns a requirement in the form for a cluster, nil where it cannot be; false
// where nothing there meets it.
func memberRequirement(r fields.Requirement, cluster string) (fields.Selector, bool) {
	equal := r.Operator != selection.NotEquals
	name, ofIt := ownName(r.Value, cluster)
	switch r.Field {
	case fieldAboutUID:
		return nil, true
	case fieldNode:
		return nodeRequirement(r, cluster)
	case fieldName:
		if !ofIt {
			return nil, !equal
		}
	case fieldAboutName:
		if !equal {
			return nil, true
		}
		if !ofIt {
			name = r.Value // a template's
		}
	default:
		name = r.Value
	}
	return fieldSelector(r, name), true
}

// fieldSelector returns the selector of a requirement with another value.
func fieldSelector(r fields.Requirement, value string) fields.Selector {
	if r.Operator == selection.NotEquals {
		return fields.OneTermNotEqualSelector(r.Field, value)
	}
	return fields.OneTermEqualSelector(r.Field, value)
}

// eventObjectName is the one name of objects that selected Events are about, empty where there may be
// several.
func (s FleetSelection) eventObjectName() string { return s.requiredFieldValue(fieldAboutName) }

// nodeRequirement requests pods that are on a node, which is their cluster, or on none yet.
func nodeRequirement(r fields.Requirement, cluster string) (fields.Selector, bool) {
	equal := r.Operator != selection.NotEquals
	placed := fields.OneTermNotEqualSelector(fieldNode, "")
	unplaced := fields.OneTermEqualSelector(fieldNode, "")
	switch {
	case r.Value == "" && equal, r.Value == cluster && !equal:
		return unplaced, true
	case r.Value == "", r.Value == cluster:
		return placed, true
	case equal:
		return nil, false
	}
	return nil, true
}
