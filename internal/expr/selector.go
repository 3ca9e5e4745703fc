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
	"k8s.io/utils/lru"

	"atoll.dev/atoll/internal/atoll"
)

// The bounds of an expression.
const (
	// MaxLength of a text, in bytes.
	MaxLength = 2048
	// MaxCost that an expression may be estimated to have on one Cluster.
	MaxCost = 2000
	// StopCost at which one evaluation is given up.
	StopCost = 4000
)

// Cluster is what an expression sees of one.
type Cluster struct{ *atoll.ClusterView }

// Selector is a compiled expression that gives true or false.
type Selector struct {
	text       string
	program    cel.Program
	quick      quick // nil: only the program knows
	properties []string
	cost       uint64
}

// compiled holds Selectors and errors by text.
var compiled = lru.New(1024)

type outcome struct {
	s   *Selector
	err error
}

// Compile a text. The error says in one line what is wrong and where.
func Compile(text string) (*Selector, error) {
	if v, ok := compiled.Get(text); ok {
		o := v.(outcome)
		return o.s, o.err
	}
	s, err := compile(text)
	if len(text) <= MaxLength {
		compiled.Add(text, outcome{s, err})
	}
	return s, err
}

func compile(text string) (*Selector, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxLength)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, ofCluster(firstIssue(issues), issues, text, "properties")
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("gives a %s, and true or false is needed", t)
	}
	r := reader{}
	r.walk(checked.NativeRep().Expr())
	if r.err != nil {
		return nil, r.err
	}
	cost, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be told: %w", err)
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
	return &Selector{
		text: text, program: program, quick: quicken(checked.NativeRep().Expr()), properties: slices.Compact(r.properties),
		cost: max(cost.Max, 1),
	}, nil
}

// firstIssue in one line.
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

// ofCluster names the field of a cluster that there is none of, where that is the first issue:
// CEL calls cluster itself undeclared, since it has no value but its fields. There are those
// that people set, and more.
func ofCluster(first error, issues *cel.Issues, text string, more ...string) error {
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
	fields := append([]string{"name", "labels", "region", "zone", "provider", "sets"}, more...)
	return fmt.Errorf("line %d, column %d: cluster %s: it has %s and %s", at.Line(), at.Column()+1, what,
		strings.Join(fields[:len(fields)-1], ", "), fields[len(fields)-1])
}

var fieldOfCluster = regexp.MustCompile(`^cluster\s*\.\s*(\w+)`)

// Properties that the expression reads, sorted.
func (s *Selector) Properties() []string { return s.properties }

// Cost is what the expression costs at most on a large cluster.
func (s *Selector) Cost() uint64 { return s.cost }

// String is the text.
func (s *Selector) String() string { return s.text }

// Match tells whether the expression is true of the cluster. An error is about this
// cluster alone: it lacks a key that the expression takes for granted, or costs too
// much.
func (s *Selector) Match(c Cluster) (bool, error) {
	if s.quick != nil {
		if is := s.quick(c); is != fails {
			return is == yes, nil
		}
	}
	return s.evaluate(c)
}

// True is Match without the error's words; where expressions are simple, it allocates
// nothing.
func (s *Selector) True(c Cluster) bool {
	if s.quick != nil {
		return s.quick(c) == yes
	}
	ok, _ := s.evaluate(c)
	return ok
}

func (s *Selector) evaluate(c Cluster) (bool, error) {
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

// activation gives the interpreter a cluster's fields without building maps of them.
type activation struct{ Cluster }

var activations = sync.Pool{New: func() any { return &activation{} }}

const (
	nameProperties = "cluster.properties"
	nameSets       = "cluster.sets"
)

// ResolveName is for the interpreter.
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
	case "cluster.provider":
		return a.Provider, true
	case nameSets:
		return a.Sets, true
	case nameProperties:
		return a.Properties, true
	}
	return nil, false
}

// Parent is for the interpreter: there is none.
func (a *activation) Parent() interpreter.Activation { return nil }

// reader finds out what an expression reads.
type reader struct {
	properties []string
	loops      bool
	err        error
}

func (r *reader) walk(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		if e.AsIdent() == nameProperties && r.err == nil {
			r.err = errors.New("properties are read by a literal name: cluster.properties['NAME'], or 'NAME' in cluster.properties")
		}
	case ast.SelectKind:
		if s := e.AsSelect(); isProperties(s.Operand()) {
			r.properties = append(r.properties, s.FieldName())
		} else {
			r.walk(s.Operand())
		}
	case ast.CallKind:
		r.call(e.AsCall())
	case ast.ListKind:
		for _, el := range e.AsList().Elements() {
			r.walk(el)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.walk(entry.AsMapEntry().Key())
			r.walk(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.loops = true
		for _, part := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			r.walk(part)
		}
	}
}

func (r *reader) call(c ast.CallExpr) {
	args := c.Args()
	if len(args) == 2 {
		of, key := args[0], args[1]
		if c.FunctionName() == operators.In {
			of, key = key, of
		}
		if name, ok := literal(key); ok && isProperties(of) && (c.FunctionName() == operators.In || c.FunctionName() == operators.Index) {
			r.properties = append(r.properties, name)
			return
		}
	}
	if c.IsMemberFunction() {
		r.walk(c.Target())
	}
	for _, a := range args {
		r.walk(a)
	}
}

func isProperties(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == nameProperties }

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
