package assess

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"atoll.dev/atoll/internal/atoll"
)

// objectPath is a compiled JSONPath that leads to at most one value of an object.
type objectPath struct{ path *jsonpath.JSONPath }

// compilePath compiles a path such as ".status.phase", with or without braces. Parts that multiply results are
// refused: the cost of all others is in proportion to the object.
func compilePath(text string) (*objectPath, error) {
	if len(text) > atoll.MaxPath { // the parser's depth grows with the text
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), atoll.MaxPath)
	}
	braced := text
	if !strings.HasPrefix(text, "{") {
		braced = "{" + text + "}"
	}
	parsed, err := jsonpath.Parse("path", braced)
	if err != nil {
		return nil, err
	}
	roots := parsed.Root.Nodes
	if len(roots) != 1 || roots[0].Type() != jsonpath.NodeList {
		return nil, errors.New("it is not one path: write .field.field")
	}
	if err := checkPathNodes(roots[0].(*jsonpath.ListNode)); err != nil {
		return nil, err
	}
	path := jsonpath.New("path").AllowMissingKeys(true)
	if err := path.Parse(braced); err != nil {
		return nil, err
	}
	return &objectPath{path}, nil
}

// checkPathNodes returns an error for a part of a path that is neither a field, an index, a filter nor a wildcard.
func checkPathNodes(list *jsonpath.ListNode) error {
	if len(list.Nodes) == 0 {
		return errors.New("it names no field")
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *jsonpath.FieldNode, *jsonpath.ArrayNode, *jsonpath.WildcardNode:
		case *jsonpath.FilterNode:
			for _, operand := range []*jsonpath.ListNode{node.Left, node.Right} {
				if err := checkFilterOperand(operand); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("%s is not allowed: use fields, indexes, filters and [*]", strings.TrimPrefix(jsonpath.NodeTypeName[node.Type()], "Node"))
		}
	}
	return nil
}

// checkFilterOperand checks an operand of a filter: a constant, a path, or nothing.
func checkFilterOperand(operand *jsonpath.ListNode) error {
	if len(operand.Nodes) == 0 {
		return nil
	}
	switch operand.Nodes[0].Type() {
	case jsonpath.NodeText, jsonpath.NodeInt, jsonpath.NodeFloat, jsonpath.NodeBool:
		if len(operand.Nodes) == 1 {
			return nil
		}
	}
	return checkPathNodes(operand)
}

// findValue returns the value at the path; false where there is none.
func (p *objectPath) findValue(object map[string]any) (any, bool, error) {
	found, err := p.path.FindResults(object)
	if err != nil && strings.HasPrefix(err.Error(), "array index out of bounds") { // as a field that is not there
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if len(found) != 1 || len(found[0]) == 0 {
		return nil, false, nil
	}
	if n := len(found[0]); n > 1 {
		return nil, false, fmt.Errorf("the path leads to %d values, and not to one", n)
	}
	if v := found[0][0]; v.CanInterface() {
		return v.Interface(), v.Interface() != nil, nil
	}
	return nil, false, nil
}
