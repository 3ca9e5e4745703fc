package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/internal/atoll"
)

// MaxValue is how large what an expression gives may be, in bytes of text and elements.
const MaxValue = 4096

// maxNesting of what an expression gives.
const maxNesting = 8

// Value is a compiled expression that gives a value of a cluster. It sees what is set on
// the hub, and so not the properties of the cluster.
type Value struct {
	text    string
	program cel.Program
	cost    uint64
}

// compiledValues holds Values and errors by text.
var compiledValues = lru.New(1024)

type valueOutcome struct {
	v   *Value
	err error
}

var valueEnvironment = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(stated()...) })

// CompileValue of a text. The error says in one line what is wrong and where.
func CompileValue(text string) (*Value, error) {
	if v, ok := compiledValues.Get(text); ok {
		o := v.(valueOutcome)
		return o.v, o.err
	}
	v, err := compileValue(text)
	if len(text) <= MaxLength {
		compiledValues.Add(text, valueOutcome{v, err})
	}
	return v, err
}

func compileValue(text string) (*Value, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxLength)
	}
	env, err := valueEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, ofCluster(firstIssue(issues), issues, text)
	}
	cost, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be told: %w", err)
	}
	if cost.Max > MaxCost {
		return nil, fmt.Errorf("may cost %d units on one cluster, and at most %d are allowed: use fewer or smaller loops", cost.Max, MaxCost)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(StopCost))
	if err != nil {
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	return &Value{text: text, program: program, cost: max(cost.Max, 1)}, nil
}

// Cost is what the expression costs at most on a large cluster.
func (v *Value) Cost() uint64 { return v.cost }

// String is the text.
func (v *Value) String() string { return v.text }

// Of a cluster: a value of JSON, with int64 and float64 for numbers. An error is about
// this cluster alone: it lacks a key that the expression takes for granted, or costs too
// much.
func (v *Value) Of(c *atoll.ClusterView) (any, error) {
	a := activations.Get().(*activation)
	a.Cluster = Cluster{ClusterView: c}
	got, _, err := v.program.Eval(a)
	a.Cluster = Cluster{}
	activations.Put(a)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	room := room{left: MaxValue, element: 1, list: 1}
	given, err := plain(got, &room, maxNesting)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("gives more than %d bytes", MaxValue)
	}
	return given, err
}

var errTooLarge = errors.New("gives more than a value may hold")

// room for what may still come: text by its bytes, other elements, and lists and maps, by what
// they take.
type room struct{ left, element, list int }

// take of the room; false where there is not as much.
func (r *room) take(n int) bool {
	r.left -= n
	return r.left >= 0
}

// plain gives what JSON can hold, as far as there is room.
func plain(v ref.Val, room *room, nesting int) (any, error) {
	text, isText := v.(types.String)
	size := room.element + len(text)
	switch v.(type) {
	case traits.Mapper, traits.Lister:
		size = room.list
	}
	if !room.take(size) || nesting < 0 {
		return nil, errTooLarge
	}
	switch v := v.(type) {
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	case types.Null:
		return nil, nil
	case traits.Mapper:
		return plainMap(v, room, nesting)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			e, err := plain(it.Next(), room, nesting-1)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
		return out, nil
	}
	if isText {
		return string(text), nil
	}
	return nil, fmt.Errorf("gives a %s, which is no value of JSON", v.Type().TypeName())
}

func plainMap(m traits.Mapper, room *room, nesting int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("gives a map with a key that is a %s", key.Type().TypeName())
		}
		if !room.take(len(name)) {
			return nil, errTooLarge
		}
		e, err := plain(m.Get(key), room, nesting-1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = e
	}
	return out, nil
}
