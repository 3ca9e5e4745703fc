package script

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
)

// Kind of the objects in which users write what they know of kinds.
const Kind = "ResourceInterpreter"

// unseen is the kind whose objects no script sees, since what scripts say is shown to people
// who may not read it.
var unseen = schema.GroupKind{Kind: "Secret"}

// Sees tells whether scripts may see objects of the kind at all.
func Sees(gk schema.GroupKind) bool { return gk != unseen }

// matches tells whether the kind is meant. A target without kinds means all, as a health
// script of Argo CD's that stands alone does; Secrets none.
func matches(t *v1alpha1.InterpreterTarget, gvk schema.GroupVersionKind) bool {
	if !Sees(gvk.GroupKind()) {
		return false
	}
	if len(t.Kinds) == 0 {
		return true
	}
	if t.APIVersion != "" && t.APIVersion != gvk.GroupVersion().String() || t.APIVersion == "" && !glob(t.Group, gvk.Group) {
		return false
	}
	return slices.ContainsFunc(t.Kinds, func(k string) bool { return glob(k, gvk.Kind) })
}

// meansKind tells whether the kind is meant in some version.
func meansKind(t *v1alpha1.InterpreterTarget, gk schema.GroupKind) bool {
	if gv, err := schema.ParseGroupVersion(t.APIVersion); t.APIVersion != "" && err == nil {
		return matches(t, gv.WithKind(gk.Kind)) && gv.Group == gk.Group
	}
	return matches(t, gk.WithVersion("any"))
}

// names tells whether the kind is meant without wildcards.
func names(t *v1alpha1.InterpreterTarget, gvk schema.GroupVersionKind) bool {
	return (t.APIVersion != "" || t.Group == gvk.Group) && slices.Contains(t.Kinds, gvk.Kind)
}

// glob with * and ?, in time proportional to the product of lengths.
func glob(pattern, s string) bool {
	star, from := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, j
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == s[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
