package expr

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Most expressions compare a few texts of a cluster with literals. They are compiled to Go
// functions, since placement evaluates them for every cluster of a fleet. CEL evaluates all
// others, and gives the texts of errors.

// matchResult of an expression for one cluster.
type matchResult int8

const (
	resultFalse matchResult = iota
	resultTrue
	resultError // a key is missing, which is an error in CEL
)

func resultOf(b bool) matchResult {
	if b {
		return resultTrue
	}
	return resultFalse
}

type (
	// quickMatcher evaluates an expression for a cluster.
	quickMatcher func(c Cluster) matchResult
	// textReader returns a text of a cluster; false where the expression fails.
	textReader func(c Cluster) (string, bool)
	// mapReader returns labels or properties.
	mapReader func(c Cluster) map[string]string
)

// compileQuick compiles a checked expression; nil where it needs CEL.
func compileQuick(e ast.Expr) quickMatcher {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			is := resultOf(bool(b))
			return func(Cluster) matchResult { return is }
		}
	case ast.SelectKind:
		if s := e.AsSelect(); s.IsTestOnly() {
			return hasKey(mapReaderOf(s.Operand()), s.FieldName())
		}
	case ast.CallKind:
		return compileQuickCall(e.AsCall())
	}
	return nil
}

func hasKey(m mapReader, key string) quickMatcher {
	if m == nil {
		return nil
	}
	return func(c Cluster) matchResult {
		_, ok := m(c)[key]
		return resultOf(ok)
	}
}

func compileQuickCall(call ast.CallExpr) quickMatcher {
	args := call.Args()
	if call.IsMemberFunction() {
		return compileQuickMember(call)
	}
	switch call.FunctionName() {
	case operators.LogicalNot:
		return negateQuick(compileQuick(args[0]))
	case operators.LogicalAnd:
		return combineQuick(compileQuick(args[0]), compileQuick(args[1]), resultFalse)
	case operators.LogicalOr:
		return combineQuick(compileQuick(args[0]), compileQuick(args[1]), resultTrue)
	case operators.Equals, operators.NotEquals:
		return compareTexts(textReaderOf(args[0]), textReaderOf(args[1]), call.FunctionName() == operators.Equals)
	case operators.In:
		return compileQuickIn(textReaderOf(args[0]), args[1])
	}
	return nil
}

func negateQuick(q quickMatcher) quickMatcher {
	if q == nil {
		return nil
	}
	return func(c Cluster) matchResult {
		switch q(c) {
		case resultFalse:
			return resultTrue
		case resultTrue:
			return resultFalse
		}
		return resultError
	}
}

// combineQuick evaluates && and ||. The decisive result of one side wins, even where the other
// side fails.
func combineQuick(a, b quickMatcher, decisive matchResult) quickMatcher {
	if a == nil || b == nil {
		return nil
	}
	return func(c Cluster) matchResult {
		l := a(c)
		if l == decisive {
			return l
		}
		if r := b(c); r == decisive || l != resultError {
			return r
		}
		return resultError
	}
}

func compareTexts(a, b textReader, equal bool) quickMatcher {
	if a == nil || b == nil {
		return nil
	}
	return func(c Cluster) matchResult {
		l, ok := a(c)
		r, there := b(c)
		if !ok || !there {
			return resultError
		}
		return resultOf((l == r) == equal)
	}
}

// compileQuickIn compiles a text in a list of literals, in the sets, or among the keys of a map.
func compileQuickIn(a textReader, in ast.Expr) quickMatcher {
	if a == nil {
		return nil
	}
	within := func(found func(c Cluster, s string) bool) quickMatcher {
		return func(c Cluster) matchResult {
			s, ok := a(c)
			if !ok {
				return resultError
			}
			return resultOf(found(c, s))
		}
	}
	if m := mapReaderOf(in); m != nil {
		return within(func(c Cluster, s string) bool { _, ok := m(c)[s]; return ok })
	}
	switch in.Kind() {
	case ast.IdentKind:
		switch in.AsIdent() {
		case nameSets:
			return within(func(c Cluster, s string) bool { return slices.Contains(c.Sets, s) })
		case nameZones:
			return within(func(c Cluster, s string) bool { return c.HasZone(s) })
		}
	case ast.ListKind:
		var list []string
		for _, el := range in.AsList().Elements() {
			s, ok := stringLiteral(el)
			if !ok {
				return nil
			}
			list = append(list, s)
		}
		if len(list) == 0 {
			return nil // false in CEL, even where the text fails
		}
		return within(func(_ Cluster, s string) bool { return slices.Contains(list, s) })
	}
	return nil
}

// compileQuickMember compiles startsWith, endsWith and contains.
func compileQuickMember(call ast.CallExpr) quickMatcher {
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
	of, part := textReaderOf(call.Target()), textReaderOf(call.Args()[0])
	if of == nil || part == nil {
		return nil
	}
	return func(c Cluster) matchResult {
		s, ok := of(c)
		p, there := part(c)
		if !ok || !there {
			return resultError
		}
		return resultOf(test(s, p))
	}
}

// textReaderOf returns the reader of a literal, a field of the cluster, or a label or property by a
// literal key; nil for other expressions.
func textReaderOf(e ast.Expr) textReader {
	if s, ok := stringLiteral(e); ok {
		return func(Cluster) (string, bool) { return s, true }
	}
	switch e.Kind() {
	case ast.IdentKind:
		return fieldReaders[e.AsIdent()]
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return mapValueReader(mapReaderOf(s.Operand()), s.FieldName())
		}
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 {
			return nil
		}
		if key, ok := stringLiteral(call.Args()[1]); ok {
			return mapValueReader(mapReaderOf(call.Args()[0]), key)
		}
	}
	return nil
}

var fieldReaders = map[string]textReader{
	"cluster.name":     func(c Cluster) (string, bool) { return c.Name, true },
	"cluster.region":   func(c Cluster) (string, bool) { return c.Region, true },
	"cluster.zone":     func(c Cluster) (string, bool) { return c.Zone, true },
	"cluster.provider": func(c Cluster) (string, bool) { return c.Provider, true },
}

func mapValueReader(m mapReader, key string) textReader {
	if m == nil {
		return nil
	}
	return func(c Cluster) (string, bool) {
		v, ok := m(c)[key]
		return v, ok
	}
}

func mapReaderOf(e ast.Expr) mapReader {
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
