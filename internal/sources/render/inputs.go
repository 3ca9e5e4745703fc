package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxInputBytes is the most bytes of all inputs of a Source.
const MaxInputBytes = 128 << 10

// InputID identifies a key of a ConfigMap or a Secret, as KIND/NAME/KEY.
type InputID string

const secretPrefix = "Secret/"

// NewInputID returns the ID of a key. Neither a name nor a key has a slash.
func NewInputID(kind, name, key string) InputID { return InputID(kind + "/" + name + "/" + key) }

// IsSecret reports whether the key is of a Secret.
func (id InputID) IsSecret() bool { return strings.HasPrefix(string(id), secretPrefix) }

// Format returns the ID for people.
func (id InputID) Format() string {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) < 3 {
		return string(id)
	}
	return fmt.Sprintf("%s %s, key %s", parts[0], parts[1], parts[2])
}

// Inputs are texts with values of charts. An optional one that does not exist is not among them.
type Inputs map[InputID][]byte

// Digest returns a digest of the inputs; empty without any.
func (in Inputs) Digest() string {
	if len(in) == 0 {
		return ""
	}
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(h, "%s %d\n", id, len(in[id]))
		h.Write(in[id])
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// HasSecrets reports whether an input is of a Secret.
func (in Inputs) HasSecrets() bool {
	for id := range in {
		if id.IsSecret() {
			return true
		}
	}
	return false
}

// MaskSecrets returns the inputs with other values in place of those of Secrets. Keys of maps, types and lengths of lists stay. The
// problem is that of a text without values, and has nothing of the text.
func (in Inputs) MaskSecrets() (Inputs, *Problem) {
	out := maps.Clone(in)
	for id, text := range in {
		if !id.IsSecret() {
			continue
		}
		raw, err := expandDocument(text)
		var values map[string]any
		if err == nil {
			err = json.Unmarshal(raw, &values)
		}
		if err != nil {
			return nil, &Problem{File: id.Format(), Message: "the text is no YAML map with values; the error may have values of the Secret, and is left out"}
		}
		if out[id], err = json.Marshal(maskValue(values)); err != nil {
			panic(fmt.Sprintf("render: values of decoded JSON cannot be encoded: %v", err))
		}
	}
	return out, nil
}

// MaskedText is in the place of each text of a Secret.
const MaskedText = "hidden"

// maskValue returns a value of the same type.
func maskValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, one := range v {
			out[key] = maskValue(one)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = maskValue(one)
		}
		return out
	case string:
		return MaskedText
	case float64:
		return 1
	case bool:
		return true
	}
	return nil
}
