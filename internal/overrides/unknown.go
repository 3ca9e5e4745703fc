package overrides

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// The operators that this hub supports. A newer hub may support more, and the default of a switch would give
// them another meaning.
var (
	keyOperators       = []v1alpha1.OverriderOperator{v1alpha1.OverrideAdd, v1alpha1.OverrideRemove, v1alpha1.OverrideReplace}
	listOperators      = []v1alpha1.OverriderOperator{v1alpha1.OverrideAdd, v1alpha1.OverrideRemove}
	plaintextOperators = slices.Concat(keyOperators, []v1alpha1.OverriderOperator{v1alpha1.OverrideMove, v1alpha1.OverrideCopy, v1alpha1.OverrideTest})
	imageComponents    = []v1alpha1.ImageComponent{v1alpha1.ImageRegistry, v1alpha1.ImageRepository, v1alpha1.ImageTag, v1alpha1.ImageDigest}
)

// describeUnknownOperator returns the operator in words if it is none of those known; empty otherwise.
func describeUnknownOperator(op v1alpha1.OverriderOperator, known []v1alpha1.OverriderOperator) string {
	if slices.Contains(known, op) {
		return ""
	}
	return fmt.Sprintf("operator %q", op)
}

func unknownImagePart(im *v1alpha1.ImageOverrider) string {
	if !slices.Contains(imageComponents, im.Component) {
		return fmt.Sprintf("component %q", im.Component)
	}
	return describeUnknownOperator(im.Operator, keyOperators)
}

func unknownDocumentPart(f *v1alpha1.FieldOverrider) string {
	for _, p := range slices.Concat(f.JSON, f.YAML) {
		if part := describeUnknownOperator(p.Operator, keyOperators); part != "" {
			return part
		}
	}
	if len(f.JSON)+len(f.YAML) == 0 && f.MergePatch == nil {
		return "the change of the document"
	}
	return ""
}
