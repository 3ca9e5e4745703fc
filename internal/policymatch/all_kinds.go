package policymatch

import "k8s.io/apimachinery/pkg/runtime/schema"

// AllKinds in a resourceSelector stands for every kind, or for every API group.
const AllKinds = "*"

// selectingKinds returns the kinds of the selectors that may choose objects of a kind.
func selectingKinds(gk schema.GroupKind) [3]schema.GroupKind {
	return [3]schema.GroupKind{gk, {Group: gk.Group, Kind: AllKinds}, {Group: AllKinds, Kind: AllKinds}}
}

// IncludesKind returns whether kinds, some of which may be AllKinds, include a kind.
func IncludesKind(kinds map[schema.GroupKind]bool, gk schema.GroupKind) bool {
	for _, one := range selectingKinds(gk) {
		if kinds[one] {
			return true
		}
	}
	return false
}

// selectorKindSpecificity returns the part of a selector's specificity that its kind has, and its name.
func selectorKindSpecificity(kind schema.GroupKind) (specificity int, why string) {
	switch {
	case kind.Group == AllKinds:
		return 0, "by everything"
	case kind.Kind == AllKinds:
		return specificGroup, "by group"
	}
	return specificKind, "by kind"
}
