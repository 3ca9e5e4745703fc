package expr

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"atoll.dev/atoll/internal/atoll"
)

// The bounds of an expression.
const (
	// MaxLength of a text, in bytes.
	MaxLength = 2048
	// MaxCost is the highest estimated cost on one Cluster.
	MaxCost = 2000
	// StopCost ends an evaluation.
	StopCost = 4000
)

// Cluster holds the fields that an expression sees.
type Cluster struct{ *atoll.ClusterView }

// ClusterSelector is a compiled boolean expression. It is immutable and safe for concurrent use.
type ClusterSelector struct {
	text         string
	program      cel.Program
	quickMatcher quickMatcher // nil: the program evaluates
	properties   []string
	cost         uint64
}

// selectorCache holds Selectors and errors by text.
var selectorCache = newCompileCache(compileSelectorUncached)

// CompileClusterSelector compiles a text. The error states what is wrong and where, in one line.
func CompileClusterSelector(text string) (*ClusterSelector, error) {
	return selectorCache.getOrCompile(text)
}

func compileSelectorUncached(text string) (*ClusterSelector, error) {
	env, err := selectorEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues, err := compileText(env, text)
	if err != nil {
		return nil, explainClusterIssue(err, issues, text, "properties")
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("gives a %s, and true or false is needed", t)
	}
	r := propertyReader{}
	r.walkExpression(checked.NativeRep().Expr())
	if r.err != nil {
		return nil, r.err
	}
	cost, err := env.EstimateCost(checked, sizeEstimator{})
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be estimated: %w", err)
	}
	if cost.Max > MaxCost {
		return nil, fmt.Errorf("may cost %d units on one cluster, and at most %d are allowed: use fewer or smaller loops", cost.Max, MaxCost)
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if r.loops {
		options = append(options, cel.CostLimit(StopCost))
	}
	program, err := env.Program(checked, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	slices.Sort(r.properties)
	return &ClusterSelector{
		text: text, program: program, quickMatcher: compileQuick(checked.NativeRep().Expr()), properties: slices.Compact(r.properties),
		cost: max(cost.Max, 1),
	}, nil
}

// firstIssue returns the first issue, in one line.
func firstIssue(issues *cel.Issues) error {
	errs := issues.Errors()
	if len(errs) == 0 {
		return issues.Err()
	}
	e := errs[0]
	message, _, _ := strings.Cut(e.Message, "\n")
	message = strings.TrimSuffix(message, " (in container '')")
	return fmt.Errorf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, message)
}

// explainClusterIssue names the missing field of a cluster, where that is the first issue. CEL
// calls cluster itself undeclared, since it has no value apart from its fields. more are fields
// besides those that users set.
func explainClusterIssue(first error, issues *cel.Issues, text string, more ...string) error {
	errs := issues.Errors()
	if len(errs) == 0 || !strings.HasPrefix(errs[0].Message, "undeclared reference to 'cluster'") {
		return first
	}
	at := errs[0].Location
	lines := strings.Split(text, "\n")
	if at.Line() < 1 || at.Line() > len(lines) {
		return first
	}
	rest := []rune(lines[at.Line()-1])
	what := "is no value by itself"
	if m := fieldOfCluster.FindStringSubmatch(string(rest[min(max(at.Column(), 0), len(rest)):])); m != nil {
		what = fmt.Sprintf("has no field %q here", m[1])
	}
	fields := append([]string{"name", "labels", "region", "zone", "zones", "provider", "sets"}, more...)
	return fmt.Errorf("line %d, column %d: cluster %s: it has %s and %s", at.Line(), at.Column()+1, what,
		strings.Join(fields[:len(fields)-1], ", "), fields[len(fields)-1])
}

var fieldOfCluster = regexp.MustCompile(`^cluster\s*\.\s*(\w+)`)

// PropertyNames returns the sorted names of the properties that the expression reads.
func (s *ClusterSelector) PropertyNames() []string { return s.properties }

// MaxEstimatedCost returns the highest cost on a large cluster.
func (s *ClusterSelector) MaxEstimatedCost() uint64 { return s.cost }

// String returns the text.
func (s *ClusterSelector) String() string { return s.text }

// MatchCluster reports whether the expression is true for the cluster. An error is about this
// cluster alone: a key is missing, or the evaluation costs too much.
func (s *ClusterSelector) MatchCluster(c Cluster) (bool, error) {
	if s.quickMatcher != nil {
		if is := s.quickMatcher(c); is != resultError {
			return is == resultTrue, nil
		}
	}
	return s.evaluateProgram(c)
}

// IsTrueFor is MatchCluster without the error. It allocates nothing for simple expressions.
func (s *ClusterSelector) IsTrueFor(c Cluster) bool {
	if s.quickMatcher != nil {
		return s.quickMatcher(c) == resultTrue
	}
	ok, _ := s.evaluateProgram(c)
	return ok
}

func (s *ClusterSelector) evaluateProgram(c Cluster) (bool, error) {
	a := activations.Get().(*activation)
	a.Cluster = c
	v, _, err := s.program.Eval(a)
	a.Cluster = Cluster{}
	activations.Put(a)
	if err != nil {
		return false, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	return v == types.True, nil
}

// activation passes a cluster's fields to the interpreter without building maps.
type activation struct{ Cluster }

var activations = sync.Pool{New: func() any { return &activation{} }}

const (
	nameProperties = "cluster.properties"
	nameSets       = "cluster.sets"
	nameZones      = "cluster.zones"
)

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "cluster.name":
		return a.Name, true
	case "cluster.labels":
		return a.Labels, true
	case "cluster.region":
		return a.Region, true
	case "cluster.zone":
		return a.Zone, true
	case nameZones:
		return a.ListZones(), true
	case "cluster.provider":
		return a.Provider, true
	case nameSets:
		return a.Sets, true
	case nameProperties:
		return a.Properties, true
	}
	return nil, false
}

// Parent implements interpreter.Activation: there is none.
func (a *activation) Parent() interpreter.Activation { return nil }

// propertyReader collects the properties that an expression reads, and whether it loops.
type propertyReader struct {
	properties []string
	loops      bool
	err        error
}

func (r *propertyReader) walkExpression(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		if e.AsIdent() == nameProperties && r.err == nil {
			r.err = errors.New("properties are read by a literal name: cluster.properties['NAME'], or 'NAME' in cluster.properties")
		}
	case ast.SelectKind:
		if s := e.AsSelect(); isProperties(s.Operand()) {
			r.properties = append(r.properties, s.FieldName())
		} else {
			r.walkExpression(s.Operand())
		}
	case ast.CallKind:
		r.walkCall(e.AsCall())
	case ast.ListKind:
		r.walkAll(e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.walkAll(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.loops = true
		r.walkAll(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
}

func (r *propertyReader) walkAll(list ...ast.Expr) {
	for _, e := range list {
		r.walkExpression(e)
	}
}

func (r *propertyReader) walkCall(c ast.CallExpr) {
	args := c.Args()
	if len(args) == 2 {
		of, key := args[0], args[1]
		if c.FunctionName() == operators.In {
			of, key = key, of
		}
		if name, ok := stringLiteral(key); ok && isProperties(of) && (c.FunctionName() == operators.In || c.FunctionName() == operators.Index) {
			r.properties = append(r.properties, name)
			return
		}
	}
	if c.IsMemberFunction() {
		r.walkExpression(c.Target())
	}
	r.walkAll(args...)
}

func isProperties(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == nameProperties }

func stringLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
