package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
)

// MaxRowCost bounds the cost of all expressions of a row, in expr's units: about a millisecond.
// Each expression counts once, with its cost on a large cluster.
const MaxRowCost = 10_000

// ClusterValues holds the values of a cluster by expression.
type ClusterValues map[string]evaluatedValue

type evaluatedValue struct {
	result any
	err    error
}

// EvaluateValues evaluates each expression once for a cluster. known are the distinct expressions
// in order.
func EvaluateValues(texts []string, c *atoll.ClusterView) (out ClusterValues, known []string) {
	out = make(ClusterValues, len(texts))
	spent := uint64(0)
	for _, text := range texts {
		if _, has := out[text]; !has {
			known = append(known, text)
			out[text] = evaluateExpression(text, c, &spent)
		}
	}
	return out, known
}

func evaluateExpression(text string, c *atoll.ClusterView, spent *uint64) (v evaluatedValue) {
	e, err := expr.CompileValueExpression(text)
	if err != nil {
		return evaluatedValue{err: err}
	}
	if *spent += e.MaxEstimatedCost(); *spent > MaxRowCost {
		return evaluatedValue{err: fmt.Errorf("with those before it, it may cost more than the %d units that all of a cluster may", MaxRowCost)}
	}
	v.result, v.err = e.EvaluateFor(c)
	return v
}

// ValuesForVariantHash returns the values in order, for the name of a variant.
func (v ClusterValues) ValuesForVariantHash(texts []string) []any {
	out := make([]any, 0, 2*len(texts))
	for _, t := range texts {
		if one := v[t]; one.err != nil {
			out = append(out, t, map[string]string{"error": one.err.Error()})
		} else {
			out = append(out, t, []any{one.result})
		}
	}
	return out
}

// getValue returns the value of a source.
func (v ClusterValues) getValue(s *v1alpha1.ValueSource) (any, error) {
	one, ok := v[s.CEL]
	if !ok {
		return nil, errors.New("valueFrom: it is not known for which cluster")
	}
	if one.err != nil {
		return nil, fmt.Errorf("valueFrom %s: %w", s.CEL, one.err)
	}
	return one.result, nil
}

func (v ClusterValues) getText(s *v1alpha1.ValueSource) (string, error) {
	is, err := v.getValue(s)
	if err != nil {
		return "", err
	}
	switch is := is.(type) {
	case string:
		return is, nil
	case bool:
		return strconv.FormatBool(is), nil
	case int64:
		return strconv.FormatInt(is, 10), nil
	case float64:
		return strconv.FormatFloat(is, 'g', -1, 64), nil
	}
	return "", fmt.Errorf("valueFrom %s gives no text", s.CEL)
}

func (v ClusterValues) getJSON(s *v1alpha1.ValueSource) (*apiextensionsv1.JSON, error) {
	is, err := v.getValue(s)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("valueFrom %s: %w", s.CEL, err)
	}
	return &apiextensionsv1.JSON{Raw: raw}, nil
}

// valueSource is an expression, and its path below the overrider.
type valueSource struct {
	path string
	*v1alpha1.ValueSource
	// hasValue: the overrider has a value as well.
	hasValue bool
}

// singleSource returns the source of an overrider that has at most one. hasValue: the overrider has
// a value as well.
func singleSource(from *v1alpha1.ValueSource, hasValue bool) []valueSource {
	if from == nil {
		return nil
	}
	return []valueSource{{".valueFrom", from, hasValue}}
}

func keySources(l *v1alpha1.LabelAnnotationOverrider) (out []valueSource) {
	for _, key := range sortedKeys(l.ValueFrom) {
		from := l.ValueFrom[key]
		_, hasValue := l.Value[key]
		out = append(out, valueSource{".valueFrom[" + key + "]", &from, hasValue})
	}
	return out
}

func documentSources(f *v1alpha1.FieldOverrider) (out []valueSource) {
	for _, of := range []struct {
		format  string
		patches []v1alpha1.DocumentPatch
	}{{"json", f.JSON}, {"yaml", f.YAML}} {
		for i, p := range of.patches {
			if p.ValueFrom != nil {
				out = append(out, valueSource{fmt.Sprintf(".%s[%d].valueFrom", of.format, i), p.ValueFrom, p.Value != nil})
			}
		}
	}
	return out
}

func envSources(e *v1alpha1.EnvOverrider) (out []valueSource) {
	for i, v := range e.Value {
		if v.ValueFrom != nil {
			out = append(out, valueSource{fmt.Sprintf(".value[%d].valueFrom", i), v.ValueFrom, v.Value != ""})
		}
	}
	return out
}

// ListExpressions returns the expressions of the overriders, in order.
func ListExpressions(o *v1alpha1.Overriders) (out []string) {
	for _, s := range listSteps(o) {
		out = append(out, s.stepExpressions()...)
	}
	return out
}

func (s overrideStep) stepExpressions() (out []string) {
	if !s.usesValues {
		return nil
	}
	for _, src := range s.kind.listSources(&s.overrider) {
		out = append(out, src.CEL)
	}
	return out
}

func (v ClusterValues) resolveImage(im *v1alpha1.ImageOverrider) (err error) {
	if im.Value, err = v.getText(im.ValueFrom); err != nil {
		return err
	}
	if reason := checkImageValue(*im); reason != "" {
		return fmt.Errorf("valueFrom %s: %s", im.ValueFrom.CEL, reason)
	}
	return nil
}

func (v ClusterValues) resolveField(f *v1alpha1.FieldOverrider) (err error) {
	if f.JSON, err = v.resolveDocuments(f.JSON); err == nil {
		f.YAML, err = v.resolveDocuments(f.YAML)
	}
	return err
}

func (v ClusterValues) resolveDocuments(list []v1alpha1.DocumentPatch) (out []v1alpha1.DocumentPatch, err error) {
	out = slices.Clone(list)
	for i := range out {
		if src := out[i].ValueFrom; src != nil {
			if out[i].Value, err = v.getJSON(src); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (v ClusterValues) resolveEnv(e *v1alpha1.EnvOverrider) (err error) {
	e.Value = slices.Clone(e.Value)
	for i := range e.Value {
		if src := e.Value[i].ValueFrom; src != nil && err == nil {
			e.Value[i].Value, err = v.getText(src)
		}
	}
	return err
}

func (v ClusterValues) resolvePlaintext(p *v1alpha1.PlaintextOverrider) (err error) {
	p.Value, err = v.getJSON(p.ValueFrom)
	return err
}

func (v ClusterValues) resolveCommandArgs(c *v1alpha1.CommandArgsOverrider) error {
	is, err := v.getValue(c.ValueFrom)
	if err != nil {
		return err
	}
	list, ok := is.([]any)
	if !ok {
		list = []any{is}
	}
	c.Value = slices.Clone(c.Value)
	for _, e := range list {
		text, ok := e.(string)
		if !ok {
			return fmt.Errorf("valueFrom %s gives neither a text nor a list of texts", c.ValueFrom.CEL)
		}
		c.Value = append(c.Value, text)
	}
	return nil
}

// resolveKeys adds the values of further keys. validate returns what is wrong with a value; nil
// accepts any value.
func (v ClusterValues) resolveKeys(l *v1alpha1.LabelAnnotationOverrider, validate func(string) []string) error {
	if l.Value = maps.Clone(l.Value); l.Value == nil {
		l.Value = map[string]string{}
	}
	for _, key := range sortedKeys(l.ValueFrom) {
		src := l.ValueFrom[key]
		text, err := v.getText(&src)
		if err != nil {
			return err
		}
		if validate != nil {
			if wrong := validate(text); len(wrong) > 0 {
				return fmt.Errorf("valueFrom %s gives %q: %s", src.CEL, text, wrong[0])
			}
		}
		l.Value[key] = text
	}
	return nil
}

// checkValueSources reports expressions that can never give a value.
func checkValueSources(s overrideStep, report problemReporter) {
	for _, src := range s.kind.listSources(&s.overrider) {
		if _, err := expr.CompileValueExpression(src.CEL); err != nil {
			report(src.path+".cel", err.Error())
		}
		if src.hasValue {
			report(src.path, "a value stands beside it")
		} else if s.has(traitRemoval) {
			report(src.path, "operator remove takes no value")
		}
	}
}

// SumExpressionCost returns the cost of the expressions of a policy's rules, those that select
// clusters and those that give values. over: it is more than MaxRowCost.
func SumExpressionCost(rules []v1alpha1.RuleWithCluster) (cost uint64, over bool) {
	known, selecting := map[string]bool{}, map[string]bool{}
	for i := range rules {
		if t := rules[i].TargetCluster; t != nil && t.CELSelector != "" && !selecting[t.CELSelector] {
			selecting[t.CELSelector] = true
			if e, err := expr.CompileClusterSelector(t.CELSelector); err == nil {
				cost += e.MaxEstimatedCost()
			}
		}
		for _, text := range ListExpressions(&rules[i].Overriders) {
			if e, err := expr.CompileValueExpression(text); err == nil && !known[text] {
				known[text] = true
				cost += e.MaxEstimatedCost()
			}
		}
	}
	return cost, cost > MaxRowCost
}
