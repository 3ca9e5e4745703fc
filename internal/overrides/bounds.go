package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

const (
	// MaxObjectBytes bounds an object that overriders change, and each document in it. It is the
	// largest request that a Kubernetes API server accepts.
	MaxObjectBytes = 3 << 20
	// MaxObjectDepth bounds the nesting of an object that overriders change.
	MaxObjectDepth = 1000
	// maxSteps is how many overriders of all rules may apply to one object.
	maxSteps = 2000
	// maxPatchBytes bounds what all overriders of one object read and write of documents, and
	// copy of the object under onMissing Skip.
	maxPatchBytes = 16 << 20
)

// errOverBound means that overriders of an object cost more than they may. OnMissing does not
// skip it.
var errOverBound = refusal.WithReason(atoll.ReasonRuleTooCostly, errors.New("over the bound of what overriders may do to one object"))

// ErrObjectTooLarge means that an object, or a document in it, is over MaxObjectBytes.
var ErrObjectTooLarge = fmt.Errorf("%w: it has more than %d bytes", errOverBound, MaxObjectBytes)

// countStep counts one more overrider.
func (o *ObjectPatcher) countStep() error {
	if o.steps++; o.steps > maxSteps {
		return fmt.Errorf("%w: more than %d overriders apply to it", errOverBound, maxSteps)
	}
	return nil
}

// countBytes counts bytes that an overrider reads, writes or copies.
func (o *ObjectPatcher) countBytes(n int) error {
	if o.patchBytes += n; o.patchBytes > maxPatchBytes {
		return fmt.Errorf("%w: its overriders patch more than %d bytes of documents", errOverBound, maxPatchBytes)
	}
	return nil
}

// limitedBuffer takes up to limit bytes.
type limitedBuffer struct {
	bytes []byte
	limit int
	// isOver: more bytes were to be written.
	isOver bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.bytes)+len(p) > b.limit {
		b.isOver = true
		return 0, ErrObjectTooLarge
	}
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

var _ io.Writer = (*limitedBuffer)(nil)

// indentationBytesFit reports whether a document that is written with an indentation of so many bytes a
// level has at most limit bytes of line ends and indentation.
func indentationBytesFit(v any, indent, limit int) bool {
	var addLines func(v any, depth int) bool
	addLines = func(v any, depth int) bool {
		var children int
		switch v := v.(type) {
		case map[string]any:
			children = len(v)
			for _, e := range v {
				if !addLines(e, depth+1) {
					return false
				}
			}
		case []any:
			children = len(v)
			for _, e := range v {
				if !addLines(e, depth+1) {
					return false
				}
			}
		}
		if children > 0 {
			limit -= children*(1+(depth+1)*indent) + 1 + depth*indent
		}
		return limit >= 0
	}
	return addLines(v, 0)
}

// encodeDocument writes a JSON document, indented where indent is not nil.
func encodeDocument(doc any, indent *string) (string, error) {
	if indent != nil && !indentationBytesFit(doc, len(*indent), MaxObjectBytes) {
		return "", ErrObjectTooLarge
	}
	out := limitedBuffer{limit: MaxObjectBytes}
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if indent != nil {
		e.SetIndent("", *indent)
	}
	if err := e.Encode(doc); err != nil {
		return "", fmt.Errorf("write it: %w", err)
	}
	return string(out.bytes), nil
}
