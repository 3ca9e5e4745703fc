package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
)

// MaxRowCost is what all expressions of a row may cost together, in expr's units: about
// a millisecond. Each counts once, with what it costs on a large cluster.
const MaxRowCost = 10_000

// valueSet has the values of a cluster by expression.
type valueSet map[string]value

type value struct {
	is  any
	err error
}

// valuesOf a cluster: of each expression once, which are known gives them in order.
func valuesOf(texts []string, c *atoll.ClusterView) (out valueSet, known []string) {
	out = make(valueSet, len(texts))
	spent := uint64(0)
	for _, text := range texts {
		if _, has := out[text]; !has {
			known = append(known, text)
			out[text] = evaluate(text, c, &spent)
		}
	}
	return out, known
}

func evaluate(text string, c *atoll.ClusterView, spent *uint64) (v value) {
	e, err := expr.CompileValue(text)
	if err != nil {
		return value{err: err}
	}
	if *spent += e.Cost(); *spent > MaxRowCost {
		return value{err: fmt.Errorf("with those before it, it may cost more than the %d units that all of a cluster may", MaxRowCost)}
	}
	v.is, v.err = e.Of(c)
	return v
}

// print of the values, for the name of a variant.
func (v valueSet) print(texts []string) []any {
	out := make([]any, 0, 2*len(texts))
	for _, t := range texts {
		if one := v[t]; one.err != nil {
			out = append(out, t, map[string]string{"error": one.err.Error()})
		} else {
			out = append(out, t, []any{one.is})
		}
	}
	return out
}

// get the value of a source.
func (v valueSet) get(s *v1alpha1.ValueSource) (any, error) {
	one, ok := v[s.CEL]
	if !ok {
		return nil, errors.New("valueFrom: it is not known for which cluster")
	}
	if one.err != nil {
		return nil, fmt.Errorf("valueFrom %s: %w", s.CEL, one.err)
	}
	return one.is, nil
}

func (v valueSet) text(s *v1alpha1.ValueSource) (string, error) {
	is, err := v.get(s)
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

func (v valueSet) json(s *v1alpha1.ValueSource) (*apiextensionsv1.JSON, error) {
	is, err := v.get(s)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("valueFrom %s: %w", s.CEL, err)
	}
	return &apiextensionsv1.JSON{Raw: raw}, nil
}

// source is an expression and where the overrider has it.
type source struct {
	at string
	*v1alpha1.ValueSource
	// both: a value stands beside it.
	both bool
}

// sources of one overrider.
func sources(do *v1alpha1.OrderedOverrider) (out []source) {
	add := func(at string, s *v1alpha1.ValueSource, both bool) {
		if s != nil {
			out = append(out, source{at, s, both})
		}
	}
	keyed := func(l *v1alpha1.LabelAnnotationOverrider) {
		for _, key := range sortedKeys(l.ValueFrom) {
			s := l.ValueFrom[key]
			_, both := l.Value[key]
			add(".valueFrom["+key+"]", &s, both)
		}
	}
	switch {
	case do.ImageOverrider != nil:
		add(".valueFrom", do.ImageOverrider.ValueFrom, do.ImageOverrider.Value != "")
	case do.CommandOverrider != nil:
		add(".valueFrom", do.CommandOverrider.ValueFrom, false)
	case do.ArgsOverrider != nil:
		add(".valueFrom", do.ArgsOverrider.ValueFrom, false)
	case do.LabelsOverrider != nil:
		keyed(do.LabelsOverrider)
	case do.AnnotationsOverrider != nil:
		keyed(do.AnnotationsOverrider)
	case do.FieldOverrider != nil:
		for i, p := range do.FieldOverrider.JSON {
			add(fmt.Sprintf(".json[%d].valueFrom", i), p.ValueFrom, p.Value != nil)
		}
		for i, p := range do.FieldOverrider.YAML {
			add(fmt.Sprintf(".yaml[%d].valueFrom", i), p.ValueFrom, p.Value != nil)
		}
	case do.EnvOverrider != nil:
		for i, e := range do.EnvOverrider.Value {
			add(fmt.Sprintf(".value[%d].valueFrom", i), e.ValueFrom, e.Value != "")
		}
	case do.Plaintext != nil:
		add(".valueFrom", do.Plaintext.ValueFrom, do.Plaintext.Value != nil)
	}
	return out
}

// expressions of the overriders, in order.
func expressions(o *v1alpha1.Overriders) (out []string) {
	each(o, func(_ string, _ int, do *v1alpha1.OrderedOverrider) {
		for _, src := range sources(do) {
			out = append(out, src.CEL)
		}
	})
	return out
}

// resolve gives the overrider, which has sources, with the cluster's values in their
// place.
func (v valueSet) resolve(do v1alpha1.OrderedOverrider) (v1alpha1.OrderedOverrider, error) {
	var err error
	switch {
	case do.ImageOverrider != nil:
		im := *do.ImageOverrider
		if im.Value, err = v.text(im.ValueFrom); err == nil {
			if reason := checkImageValue(im); reason != "" {
				err = fmt.Errorf("valueFrom %s: %s", im.ValueFrom.CEL, reason)
			}
		}
		do.ImageOverrider = &im
	case do.CommandOverrider != nil:
		do.CommandOverrider, err = v.words(do.CommandOverrider)
	case do.ArgsOverrider != nil:
		do.ArgsOverrider, err = v.words(do.ArgsOverrider)
	case do.LabelsOverrider != nil:
		do.LabelsOverrider, err = v.keyed(do.LabelsOverrider, validation.IsValidLabelValue)
	case do.AnnotationsOverrider != nil:
		do.AnnotationsOverrider, err = v.keyed(do.AnnotationsOverrider, nil)
	case do.FieldOverrider != nil:
		f := *do.FieldOverrider
		if f.JSON, err = v.documents(f.JSON); err == nil {
			f.YAML, err = v.documents(f.YAML)
		}
		do.FieldOverrider = &f
	case do.EnvOverrider != nil:
		e := *do.EnvOverrider
		e.Value = slices.Clone(e.Value)
		for i := range e.Value {
			if src := e.Value[i].ValueFrom; src != nil && err == nil {
				e.Value[i].Value, err = v.text(src)
			}
		}
		do.EnvOverrider = &e
	case do.Plaintext != nil:
		p := *do.Plaintext
		p.Value, err = v.json(p.ValueFrom)
		do.Plaintext = &p
	}
	return do, err
}

func (v valueSet) words(c *v1alpha1.CommandArgsOverrider) (*v1alpha1.CommandArgsOverrider, error) {
	out := *c
	is, err := v.get(c.ValueFrom)
	if err != nil {
		return nil, err
	}
	list, ok := is.([]any)
	if !ok {
		list = []any{is}
	}
	out.Value = slices.Clone(c.Value)
	for _, e := range list {
		text, ok := e.(string)
		if !ok {
			return nil, fmt.Errorf("valueFrom %s gives neither a text nor a list of texts", c.ValueFrom.CEL)
		}
		out.Value = append(out.Value, text)
	}
	return &out, nil
}

func (v valueSet) keyed(l *v1alpha1.LabelAnnotationOverrider, check func(string) []string) (*v1alpha1.LabelAnnotationOverrider, error) {
	out := *l
	if out.Value = maps.Clone(l.Value); out.Value == nil {
		out.Value = map[string]string{}
	}
	for _, key := range sortedKeys(l.ValueFrom) {
		src := l.ValueFrom[key]
		text, err := v.text(&src)
		if err != nil {
			return nil, err
		}
		if check != nil {
			if wrong := check(text); len(wrong) > 0 {
				return nil, fmt.Errorf("valueFrom %s gives %q: %s", src.CEL, text, wrong[0])
			}
		}
		out.Value[key] = text
	}
	return &out, nil
}

func (v valueSet) documents(list []v1alpha1.DocumentPatch) ([]v1alpha1.DocumentPatch, error) {
	out := slices.Clone(list)
	for i := range out {
		if src := out[i].ValueFrom; src != nil {
			var err error
			if out[i].Value, err = v.json(src); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// checkSources finds expressions that can never give a value.
func checkSources(s step, say func(below, reason string)) {
	removes := removes(&s.do)
	for _, src := range sources(&s.do) {
		if _, err := expr.CompileValue(src.CEL); err != nil {
			say(src.at+".cel", err.Error())
		}
		if src.both {
			say(src.at, "a value stands beside it")
		} else if removes {
			say(src.at, "operator remove takes no value")
		}
	}
}

// removes tells of overriders that take no value.
func removes(do *v1alpha1.OrderedOverrider) bool {
	switch {
	case do.ImageOverrider != nil:
		return do.ImageOverrider.Operator == v1alpha1.OverrideRemove
	case do.LabelsOverrider != nil:
		return do.LabelsOverrider.Operator == v1alpha1.OverrideRemove
	case do.AnnotationsOverrider != nil:
		return do.AnnotationsOverrider.Operator == v1alpha1.OverrideRemove
	case do.EnvOverrider != nil:
		return do.EnvOverrider.Operator == v1alpha1.OverrideRemove
	case do.Plaintext != nil:
		return do.Plaintext.Operator == v1alpha1.OverrideRemove
	}
	return false
}

// Expensive tells how much the expressions of a policy's rules, those that select clusters
// and those that give values, may cost together, where that is more than MaxRowCost.
func Expensive(rules []v1alpha1.RuleWithCluster) (cost uint64, over bool) {
	known, selecting := map[string]bool{}, map[string]bool{}
	for i := range rules {
		if t := rules[i].TargetCluster; t != nil && t.CELSelector != "" && !selecting[t.CELSelector] {
			selecting[t.CELSelector] = true
			if e, err := expr.Compile(t.CELSelector); err == nil {
				cost += e.Cost()
			}
		}
		for _, text := range expressions(&rules[i].Overriders) {
			if e, err := expr.CompileValue(text); err == nil && !known[text] {
				known[text] = true
				cost += e.Cost()
			}
		}
	}
	return cost, cost > MaxRowCost
}
