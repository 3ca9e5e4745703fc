package expr

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Most expressions compare a few texts of a cluster with literals. Those are made of Go
// functions instead of interpreted: placement asks them of every cluster of a fleet. What
// is not of that kind is CEL's to evaluate, and so are the words of an error.

// truth of an expression about one cluster.
type truth int8

const (
	no truth = iota
	yes
	fails // as CEL has it: a key is not there
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

type (
	// quick says what an expression is of a cluster.
	quick func(c Cluster) truth
	// text gives a text of a cluster; false: it fails.
	text func(c Cluster) (string, bool)
	// textMap gives labels or properties.
	textMap func(c Cluster) map[string]string
)

// quicken an expression that was checked; nil where it is not of the kind.
func quicken(e ast.Expr) quick {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			is := truthOf(bool(b))
			return func(Cluster) truth { return is }
		}
	case ast.SelectKind:
		if s := e.AsSelect(); s.IsTestOnly() {
			return has(mapOf(s.Operand()), s.FieldName())
		}
	case ast.CallKind:
		return quickenCall(e.AsCall())
	}
	return nil
}

func has(m textMap, key string) quick {
	if m == nil {
		return nil
	}
	return func(c Cluster) truth {
		_, ok := m(c)[key]
		return truthOf(ok)
	}
}

func quickenCall(call ast.CallExpr) quick {
	args := call.Args()
	if call.IsMemberFunction() {
		return quickenMember(call)
	}
	switch call.FunctionName() {
	case operators.LogicalNot:
		return not(quicken(args[0]))
	case operators.LogicalAnd:
		return both(quicken(args[0]), quicken(args[1]), no)
	case operators.LogicalOr:
		return both(quicken(args[0]), quicken(args[1]), yes)
	case operators.Equals, operators.NotEquals:
		return compare(textOf(args[0]), textOf(args[1]), call.FunctionName() == operators.Equals)
	case operators.In:
		return quickenIn(textOf(args[0]), args[1])
	}
	return nil
}

func not(q quick) quick {
	if q == nil {
		return nil
	}
	return func(c Cluster) truth {
		switch q(c) {
		case no:
			return yes
		case yes:
			return no
		}
		return fails
	}
}

// both of two decide: where one of them is the decisive truth, that is what they are,
// also where the other fails.
func both(a, b quick, decisive truth) quick {
	if a == nil || b == nil {
		return nil
	}
	return func(c Cluster) truth {
		l := a(c)
		if l == decisive {
			return l
		}
		if r := b(c); r == decisive || l != fails {
			return r
		}
		return fails
	}
}

func compare(a, b text, equal bool) quick {
	if a == nil || b == nil {
		return nil
	}
	return func(c Cluster) truth {
		l, ok := a(c)
		r, there := b(c)
		if !ok || !there {
			return fails
		}
		return truthOf((l == r) == equal)
	}
}

// quickenIn: a text in a list of literals, in the sets, or among the keys of a map.
func quickenIn(a text, in ast.Expr) quick {
	if a == nil {
		return nil
	}
	within := func(found func(c Cluster, s string) bool) quick {
		return func(c Cluster) truth {
			s, ok := a(c)
			if !ok {
				return fails
			}
			return truthOf(found(c, s))
		}
	}
	if m := mapOf(in); m != nil {
		return within(func(c Cluster, s string) bool { _, ok := m(c)[s]; return ok })
	}
	switch in.Kind() {
	case ast.IdentKind:
		if in.AsIdent() == nameSets {
			return within(func(c Cluster, s string) bool { return slices.Contains(c.Sets, s) })
		}
	case ast.ListKind:
		var list []string
		for _, el := range in.AsList().Elements() {
			s, ok := literal(el)
			if !ok {
				return nil
			}
			list = append(list, s)
		}
		if len(list) == 0 {
			return nil // false in CEL, also where the text fails
		}
		return within(func(_ Cluster, s string) bool { return slices.Contains(list, s) })
	}
	return nil
}

// quickenMember: what texts begin with, end with or contain.
func quickenMember(call ast.CallExpr) quick {
	if len(call.Args()) != 1 {
		return nil
	}
	var test func(s, part string) bool
	switch call.FunctionName() {
	case "startsWith":
		test = strings.HasPrefix
	case "endsWith":
		test = strings.HasSuffix
	case "contains":
		test = strings.Contains
	default:
		return nil
	}
	of, part := textOf(call.Target()), textOf(call.Args()[0])
	if of == nil || part == nil {
		return nil
	}
	return func(c Cluster) truth {
		s, ok := of(c)
		p, there := part(c)
		if !ok || !there {
			return fails
		}
		return truthOf(test(s, p))
	}
}

// textOf an expression that is a literal, a field of the cluster, or a value of its
// labels or properties by a literal key; nil for others.
func textOf(e ast.Expr) text {
	if s, ok := literal(e); ok {
		return func(Cluster) (string, bool) { return s, true }
	}
	switch e.Kind() {
	case ast.IdentKind:
		switch e.AsIdent() {
		case "cluster.name":
			return func(c Cluster) (string, bool) { return c.Name, true }
		case "cluster.region":
			return func(c Cluster) (string, bool) { return c.Region, true }
		case "cluster.zone":
			return func(c Cluster) (string, bool) { return c.Zone, true }
		case "cluster.provider":
			return func(c Cluster) (string, bool) { return c.Provider, true }
		}
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return valueOf(mapOf(s.Operand()), s.FieldName())
		}
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 {
			return nil
		}
		if key, ok := literal(call.Args()[1]); ok {
			return valueOf(mapOf(call.Args()[0]), key)
		}
	}
	return nil
}

func valueOf(m textMap, key string) text {
	if m == nil {
		return nil
	}
	return func(c Cluster) (string, bool) {
		v, ok := m(c)[key]
		return v, ok
	}
}

func mapOf(e ast.Expr) textMap {
	if e.Kind() != ast.IdentKind {
		return nil
	}
	switch e.AsIdent() {
	case "cluster.labels":
		return func(c Cluster) map[string]string { return c.Labels }
	case nameProperties:
		return func(c Cluster) map[string]string { return c.Properties }
	}
	return nil
}
