package v1alpha1

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// UnmarshalJSON keeps a value of null.
func (p *PlaintextOverrider) UnmarshalJSON(data []byte) error {
	type fields PlaintextOverrider
	if err := json.Unmarshal(data, (*fields)(p)); err != nil {
		return err
	}
	p.Value = keepNullValue(data, p.Value, p.Operator, p.ValueFrom)
	return nil
}

// UnmarshalJSON keeps a value of null.
func (p *DocumentPatch) UnmarshalJSON(data []byte) error {
	type fields DocumentPatch
	if err := json.Unmarshal(data, (*fields)(p)); err != nil {
		return err
	}
	p.Value = keepNullValue(data, p.Value, p.Operator, p.ValueFrom)
	return nil
}

// keepNullValue returns the value of an operation, which encoding/json reads as absent where it is
// null. Operations that take no value keep none, so that what earlier versions stored stays equal.
func keepNullValue(data []byte, value *apiextensionsv1.JSON, op OverriderOperator, from *ValueSource) *apiextensionsv1.JSON {
	if value != nil || from != nil || op != OverrideAdd && op != OverrideReplace && op != OverrideTest {
		return value
	}
	var stated struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(data, &stated) != nil || stated.Value == nil {
		return nil
	}
	return &apiextensionsv1.JSON{Raw: stated.Value}
}
