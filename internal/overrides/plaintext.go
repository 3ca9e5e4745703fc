package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/userfields"
)

// applyPlaintext carries out one operation of a JSON Patch (RFC 6902).
func (o *ObjectPatcher) applyPlaintext(p *v1alpha1.PlaintextOverrider) error {
	switch p.Operator {
	case v1alpha1.OverrideMove, v1alpha1.OverrideCopy:
		return o.moveOrCopyValue(p)
	case v1alpha1.OverrideTest:
		return o.testValue(p)
	}
	value, err := decodePatchValue(*p)
	if err != nil {
		return err
	}
	path, err := o.parseChangeablePath(p.Path, value)
	if err != nil {
		return err
	}
	if _, err := patchJSONValue(o.Object, p.Operator, path, value); err != nil {
		return err
	}
	o.noteChange(provenanceValue(p.Operator, value), path...)
	return nil
}

// parseChangeablePath parses the path of a field that the overrider sets to the value or takes away.
func (o *ObjectPatcher) parseChangeablePath(text string, value any) ([]string, error) {
	path, err := parseAllowedPath(text, value)
	if err != nil {
		return nil, err
	}
	if o.hasPlacementReplicas() && slices.Equal(path, o.placementReplicasPath()) {
		return nil, errReplicasDivided
	}
	return path, nil
}

// moveOrCopyValue moves or copies a value. A copy counts among the bytes that overriders write, because
// copies of copies would grow without bound.
func (o *ObjectPatcher) moveOrCopyValue(p *v1alpha1.PlaintextOverrider) error {
	if err := checkMoveOrCopy(p); err != nil {
		return err
	}
	from, err := parseAllowedPath(p.From, nil)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	value, ok := jsonpointer.Get(o.Object, from)
	if !ok {
		return fmt.Errorf("there is nothing at %s to %s", p.From, p.Operator)
	}
	path, err := o.parseChangeablePath(p.Path, value)
	if err != nil {
		return err
	}
	if p.Operator == v1alpha1.OverrideMove {
		if _, err := o.parseChangeablePath(p.From, nil); err != nil {
			return fmt.Errorf("from: %w", err)
		}
		if _, err := patchJSONValue(o.Object, v1alpha1.OverrideRemove, from, nil); err != nil {
			return fmt.Errorf("from: %w", err)
		}
		o.noteChange(nil, from...)
	} else {
		if err := o.countCopiedBytes(value); err != nil {
			return err
		}
		value = runtime.DeepCopyJSONValue(value)
	}
	if _, err := patchJSONValue(o.Object, v1alpha1.OverrideAdd, path, value); err != nil {
		return err
	}
	o.noteChange(provenanceValue(v1alpha1.OverrideAdd, value), path...)
	return nil
}

// testValue returns an error unless the object has the value at the path. The error does not quote
// what is there.
func (o *ObjectPatcher) testValue(p *v1alpha1.PlaintextOverrider) error {
	value, err := decodePatchValue(*p)
	if err != nil {
		return err
	}
	path, err := parseAllowedPath(p.Path, nil)
	if err != nil {
		return err
	}
	is, ok := jsonpointer.Get(o.Object, path)
	switch {
	case !ok:
		return fmt.Errorf("the test fails: there is nothing at %s", p.Path)
	case !userfields.EqualJSON(is, value):
		return fmt.Errorf("the test fails: %s has another value", p.Path)
	}
	return nil
}

// countCopiedBytes counts the bytes of a value that is copied: about its length in JSON.
func (o *ObjectPatcher) countCopiedBytes(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if err := o.countBytes(len(name) + 4); err != nil {
				return err
			}
			if err := o.countCopiedBytes(e); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := o.countCopiedBytes(e); err != nil {
				return err
			}
		}
	case string:
		return o.countBytes(len(v) + 2)
	}
	return o.countBytes(8)
}

// provenanceValue returns the value of an operation for its Provenance, in which nil is a removal.
func provenanceValue(op v1alpha1.OverriderOperator, value any) any {
	if value == nil && op != v1alpha1.OverrideRemove {
		return json.RawMessage("null")
	}
	return value
}

// usesFromPath returns whether the operator takes its value from another path of the object.
func usesFromPath(op v1alpha1.OverriderOperator) bool {
	return op == v1alpha1.OverrideMove || op == v1alpha1.OverrideCopy
}

// checkMoveOrCopy returns why a move or a copy can never apply, apart from its paths.
func checkMoveOrCopy(p *v1alpha1.PlaintextOverrider) error {
	switch {
	case p.From == "":
		return fmt.Errorf("operator %s needs a path from which it takes the value", p.Operator)
	case p.Value != nil || p.ValueFrom != nil:
		return fmt.Errorf("operator %s takes no value", p.Operator)
	case p.Operator == v1alpha1.OverrideMove && isBelow(p.Path, p.From):
		return errors.New("a value cannot be moved into itself")
	}
	return nil
}

// isBelow returns whether the path is below the other one.
func isBelow(path, other string) bool {
	parts, err := jsonpointer.ParsePointer(path)
	above, otherErr := jsonpointer.ParsePointer(other)
	return err == nil && otherErr == nil && len(parts) > len(above) && slices.Equal(parts[:len(above)], above)
}

func checkPlaintext(p *v1alpha1.PlaintextOverrider, report problemReporter) {
	if usesFromPath(p.Operator) {
		if err := checkMoveOrCopy(p); err != nil {
			report(".from", err.Error())
		} else if _, err := parseAllowedPath(p.From, nil); err != nil {
			report(".from", err.Error())
		}
		if _, err := parseAllowedPath(p.Path, nil); err != nil {
			report(".path", err.Error())
		}
		return
	}
	if p.From != "" {
		report(".from", fmt.Sprintf("operator %s takes no value from another path", p.Operator))
	}
	value, err := decodePatchValue(*p)
	if err != nil && p.ValueFrom == nil {
		report(".value", err.Error())
	} else if isDeeperThan(value, maxDepth) {
		report(".value", tooDeepReason)
	}
	if _, err := parseAllowedPath(p.Path, value); err != nil {
		report(".path", err.Error())
	}
}

// setsReplicas returns whether the operation may change spec.replicas.
func setsReplicas(p *v1alpha1.PlaintextOverrider) bool {
	return p.Operator != v1alpha1.OverrideTest && coversSpecReplicas(p.Path) || p.Operator == v1alpha1.OverrideMove && coversSpecReplicas(p.From)
}

func coversSpecReplicas(path string) bool { return path == "/spec" || path == "/spec/replicas" }

// touchesSecretData returns whether the operation reads or changes the data of a Secret.
func touchesSecretData(p *v1alpha1.PlaintextOverrider) bool {
	return isSecretDataPath(p.Path) || p.From != "" && isSecretDataPath(p.From)
}

// describePlaintext names the operation in an error.
func describePlaintext(p *v1alpha1.PlaintextOverrider) string {
	if usesFromPath(p.Operator) {
		return fmt.Sprintf("%s %s to %s", p.Operator, p.From, p.Path)
	}
	return fmt.Sprintf("%s %s", p.Operator, p.Path)
}
