package expr

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"

	"atoll.dev/atoll/internal/atoll"
)

// environment that expressions are checked in.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	texts := cel.MapType(cel.StringType, cel.StringType)
	return cel.NewEnv(append(stated(), cel.Variable(nameProperties, texts))...)
})

// stated is what the hub has set on a Cluster, and the functions.
func stated() []cel.EnvOption {
	return append([]cel.EnvOption{
		cel.Variable("cluster.name", cel.StringType),
		cel.Variable("cluster.labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("cluster.region", cel.StringType),
		cel.Variable("cluster.zone", cel.StringType),
		cel.Variable("cluster.provider", cel.StringType),
		cel.Variable(nameSets, cel.ListType(cel.StringType)),
	}, functions()...)
}

// functions and rules that all expressions share.
func functions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(64),
		cel.Function("quantity", cel.Overload("quantity_string", []*cel.Type{cel.StringType}, cel.DoubleType,
			cel.UnaryBinding(quantity))),
		cel.Function("versionAtLeast", cel.Overload("version_at_least_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(versionAtLeast))),
	}
}

const (
	// maxVersion is the longest version that is read, in bytes.
	maxVersion = 256
	// told is how much of a text an error tells, in characters.
	told = 64
)

func quantity(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	q, err := atoll.ParseQuantity(string(text))
	if err != nil {
		return types.NewErr("quantity(%.*q): it is none", told, string(text))
	}
	return types.Double(q.AsApproximateFloat64())
}

func versionAtLeast(have, least ref.Val) ref.Val {
	a, err := parseVersion(have)
	if err != nil {
		return err
	}
	b, err := parseVersion(least)
	if err != nil {
		return err
	}
	return types.Bool(a.AtLeast(b))
}

func parseVersion(v ref.Val) (*version.Version, ref.Val) {
	text, ok := v.(types.String)
	if !ok {
		return nil, types.MaybeNoSuchOverloadErr(v)
	}
	if len(text) > maxVersion { // reading it takes the longer, the longer it is
		return nil, types.NewErr("versionAtLeast: %.*q is no version", told, string(text))
	}
	parsed, err := version.ParseGeneric(string(text))
	if err != nil {
		return nil, types.NewErr("versionAtLeast: %.*q is no version", told, string(text))
	}
	return parsed, nil
}

// The sizes of a large Cluster. One that is larger meets StopCost.
const (
	largeMap  = 64
	largeText = 63
)

// sizes tells the estimator how large what expressions see can be.
type sizes struct{}

// EstimateSize of a variable, its keys and its values.
func (sizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	if len(n.Path()) == 0 {
		return nil
	}
	size := checker.SizeEstimate{Max: largeText}
	switch n.Type().Kind() {
	case types.MapKind, types.ListKind:
		size.Max = largeMap
	}
	return &size
}

// EstimateCallCost of our own functions.
func (sizes) EstimateCallCost(function, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	switch function {
	case "quantity", "versionAtLeast":
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 2, Max: 10}}
	}
	return nil
}
