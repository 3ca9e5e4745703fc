package policy

import (
	"slices"
	"strings"

	"atoll.dev/atoll/api/agent/v1alpha1"
)

// matchWildcard reports whether the name matches the pattern, in which "*" stands for any characters.
func matchWildcard(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part) // the first one leaves most to the others
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}

func matchAny(patterns []v1alpha1.Pattern, name string) bool {
	return slices.ContainsFunc(patterns, func(p v1alpha1.Pattern) bool { return matchWildcard(string(p), name) })
}
