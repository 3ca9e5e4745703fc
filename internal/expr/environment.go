package expr

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"

	"atoll.dev/atoll/internal/quantity"
)

// selectorEnvironment is the environment of Selectors.
var selectorEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	texts := cel.MapType(cel.StringType, cel.StringType)
	return cel.NewEnv(append(hubClusterVariables(), cel.Variable(nameProperties, texts))...)
})

// hubClusterVariables returns the fields of a Cluster that are set on the hub, and the functions.
func hubClusterVariables() []cel.EnvOption {
	return append([]cel.EnvOption{
		cel.Variable("cluster.name", cel.StringType),
		cel.Variable("cluster.labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("cluster.region", cel.StringType),
		cel.Variable("cluster.zone", cel.StringType),
		cel.Variable(nameZones, cel.ListType(cel.StringType)),
		cel.Variable("cluster.provider", cel.StringType),
		cel.Variable(nameSets, cel.ListType(cel.StringType)),
	}, sharedFunctions()...)
}

// sharedFunctions returns the functions and options of all expressions.
func sharedFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(64),
		cel.Function("quantity", cel.Overload("quantity_string", []*cel.Type{cel.StringType}, cel.DoubleType,
			cel.UnaryBinding(quantityValue))),
		cel.Function("versionAtLeast", cel.Overload("version_at_least_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(versionAtLeast))),
	}
}

const (
	// maxVersion is the longest version that is parsed, in bytes.
	maxVersion = 256
	// maxQuoted is how much of a text an error quotes, in characters.
	maxQuoted = 64
)

func quantityValue(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	q, err := quantity.Parse(string(text))
	if err != nil {
		return types.NewErr("quantity(%.*q): it is none", maxQuoted, string(text))
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
	if len(text) > maxVersion { // parsing takes time in proportion
		return nil, types.NewErr("versionAtLeast: %.*q is no version", maxQuoted, string(text))
	}
	parsed, err := version.ParseGeneric(string(text))
	if err != nil {
		return nil, types.NewErr("versionAtLeast: %.*q is no version", maxQuoted, string(text))
	}
	return parsed, nil
}

// The sizes of a large Cluster. An evaluation on a larger one stops at StopCost.
const (
	largeMap  = 64
	largeText = 63
)

// sizeEstimator returns the largest sizes of variables for cost estimates.
type sizeEstimator struct{}

// EstimateSize returns the size of a variable, its keys and its values.
func (sizeEstimator) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
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

// EstimateCallCost returns the cost of quantity and versionAtLeast.
func (sizeEstimator) EstimateCallCost(function, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	switch function {
	case "quantity", "versionAtLeast":
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 2, Max: 10}}
	}
	return nil
}
