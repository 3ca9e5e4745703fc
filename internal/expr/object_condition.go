package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// objectVariable is the variable of an ObjectCondition.
const objectVariable = "object"

// ObjectCondition is a compiled condition over one object. It is immutable and safe for concurrent use.
type ObjectCondition struct{ document *DocumentExpression }

// CompileObjectCondition compiles a text that sees an object as the variable object, and gives true or false. The
// error states what is wrong and where, in one line.
func CompileObjectCondition(text string) (*ObjectCondition, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxLength)
	}
	document, result, err := compileDocument(text, ObjectStopCost, objectVariable)
	if err != nil {
		return nil, err
	}
	if !result.IsExactType(cel.BoolType) && !result.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("gives a %s, and true or false is needed", result)
	}
	return &ObjectCondition{document}, nil
}

// IsTrueFor reports whether the condition is true for the object. The object is not changed. An error is about this
// object: a key is missing, the result is neither true nor false, or the evaluation costs too much.
func (c *ObjectCondition) IsTrueFor(object map[string]any) (bool, error) {
	v, _, err := c.document.program.Eval(map[string]any{objectVariable: object})
	if err != nil {
		return false, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("gives a %s, and true or false is needed", v.Type().TypeName())
	}
	return bool(b), nil
}
