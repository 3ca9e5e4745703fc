package offline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"atoll.dev/atoll/internal/expr"
)

// rulesExtension holds the CEL rules of a part of a schema.
const rulesExtension = "x-kubernetes-validations"

// schemaRule is a CEL rule over self, and the hub's error when it is false.
type schemaRule struct{ rule, message string }

// compiledRules caches rules by their text.
var compiledRules sync.Map

// findBrokenRules returns an error for each rule of the schema that a part of the object breaks. Rules
// about a change are left out, because files have no earlier object.
func findBrokenRules(obj map[string]any, root *spec.Schema) (errs []error) {
	walkSchema(obj, root, nil, func(v any, s *spec.Schema, at *field.Path) {
		for _, r := range rulesOf(s) {
			if err := r.checkValue(v, at); err != nil {
				errs = append(errs, err)
			}
		}
	})
	return errs
}

// rulesOf returns the rules of the schema itself.
func rulesOf(s *spec.Schema) (rules []schemaRule) {
	list, _ := s.Extensions[rulesExtension].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		rule, _ := m["rule"].(string)
		message, _ := m["message"].(string)
		rules = append(rules, schemaRule{rule, message})
	}
	return slices.DeleteFunc(rules, func(r schemaRule) bool { return strings.Contains(r.rule, "oldSelf") })
}

func (r schemaRule) checkValue(v any, at *field.Path) error {
	compiled, err := r.compileRule()
	if err != nil {
		return err
	}
	why := r.message
	result, err := compiled.EvaluateWith(map[string]any{"self": v})
	if err != nil {
		why = fmt.Sprintf("%s (%v)", r.message, err)
	} else if holds, ok := result.(bool); ok && holds {
		return nil
	}
	if at == nil { // a rule about the whole object
		return errors.New(why)
	}
	return field.Invalid(at, field.OmitValueType{}, why)
}

func (r schemaRule) compileRule() (*expr.DocumentExpression, error) {
	if known, ok := compiledRules.Load(r.rule); ok {
		return known.(*expr.DocumentExpression), nil
	}
	compiled, err := expr.CompileDocumentExpression(r.rule, "self")
	if err != nil {
		return nil, fmt.Errorf("compile the rule %q of Atoll's schemas: %w", r.rule, err)
	}
	compiledRules.Store(r.rule, compiled)
	return compiled, nil
}
