package script

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
)

// Kind of the objects in which users teach kinds.
const Kind = "ResourceInterpreter"

// hiddenKind is never shown to scripts: people without the right to read Secrets see the answers
// of scripts.
var hiddenKind = schema.GroupKind{Kind: "Secret"}

// MayScriptsSee reports whether scripts may see objects of the kind.
func MayScriptsSee(gk schema.GroupKind) bool { return gk != hiddenKind }

// targetMatches reports whether the target covers the kind. A target without kinds covers all
// kinds, as a health script of Argo CD that stands alone does. No target covers Secrets.
func targetMatches(t *v1alpha1.InterpreterTarget, gvk schema.GroupVersionKind) bool {
	if !MayScriptsSee(gvk.GroupKind()) {
		return false
	}
	if len(t.Kinds) == 0 {
		return true
	}
	if t.APIVersion != "" && t.APIVersion != gvk.GroupVersion().String() || t.APIVersion == "" && !matchesGlob(t.Group, gvk.Group) {
		return false
	}
	return slices.ContainsFunc(t.Kinds, func(k string) bool { return matchesGlob(k, gvk.Kind) })
}

// targetMatchesGroupKind reports whether the target covers some version of the kind.
func targetMatchesGroupKind(t *v1alpha1.InterpreterTarget, gk schema.GroupKind) bool {
	if gv, err := schema.ParseGroupVersion(t.APIVersion); t.APIVersion != "" && err == nil {
		return targetMatches(t, gv.WithKind(gk.Kind)) && gv.Group == gk.Group
	}
	return targetMatches(t, gk.WithVersion("any"))
}

// namesKindExactly reports whether the target names the kind without wildcards.
func namesKindExactly(t *v1alpha1.InterpreterTarget, gvk schema.GroupVersionKind) bool {
	return (t.APIVersion != "" || t.Group == gvk.Group) && slices.Contains(t.Kinds, gvk.Kind)
}

// matchesGlob supports * and ?. It takes time proportional to the product of the lengths.
func matchesGlob(pattern, s string) bool {
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
