package history

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
)

// Operation is what a user did to an object.
type Operation string

// The operations.
const (
	Edited  Operation = "Edited"
	Deleted Operation = "Deleted"
	// Created is an object that came back after a kept deletion. It has no former content.
	Created Operation = "Created"
)

// Change is one change of an object by a user.
type Change struct {
	// ID is the name under which the change is kept.
	ID     string        `json:"-"`
	Object atoll.ItemKey `json:"object"`
	// Resource of the object in the API.
	Resource string `json:"resource"`
	// NamespaceUID of the namespace that the object was in; empty for objects without a namespace.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// UID of the object with the former content; empty for a created object.
	UID string `json:"uid,omitempty"`
	// Revision is the resourceVersion of the former content; of a created object, that of its first one.
	Revision  string    `json:"revision"`
	Operation Operation `json:"operation"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	// Fields are the first changed fields, and MoreFields counts the others.
	Fields     []string `json:"fields,omitempty"`
	MoreFields int      `json:"moreFields,omitempty"`
	// Bytes that the change takes in the store.
	Bytes int64 `json:"-"`
}

// compareChanges orders the changes of one object, the oldest first: by revision, and by time where a revision is no number.
func compareChanges(a, b *Change) int {
	x, errX := strconv.ParseUint(a.Revision, 10, 64)
	y, errY := strconv.ParseUint(b.Revision, 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Revision, b.Revision))
}

// Content is what undo needs of one change.
type Content struct {
	// Object is the former content; nil for a created object.
	Object map[string]any `json:"object,omitempty"`
	// ManagedFields of the former content.
	ManagedFields []any `json:"managedFields,omitempty"`
	// Changed are the fields that the edit changed; nil for a deletion.
	Changed Fields `json:"changed,omitempty"`
}

// IsOf reports whether the content is one of the object.
func (c *Content) IsOf(key atoll.ItemKey) bool {
	u := unstructured.Unstructured{Object: c.Object}
	gk := u.GroupVersionKind().GroupKind()
	return gk.Group == key.Group && gk.Kind == key.Kind && u.GetName() == key.Name && u.GetNamespace() == key.Namespace
}

const (
	// MaxContentBytes bounds a content as JSON; a larger one is not kept.
	MaxContentBytes = 8 << 20
	// maxChangeBytes bounds the description of a change.
	maxChangeBytes = 16 << 10
)

// ErrTooLarge is the error of a content that is too large to be kept.
var ErrTooLarge = errors.New("the content is too large to be kept for undo")

// EncodeContent returns the content in compressed form.
func EncodeContent(c *Content) ([]byte, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the content: %w", err)
	}
	if len(raw) > MaxContentBytes {
		return nil, ErrTooLarge
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("compress the content: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the content: %w", err)
	}
	if out.Len() > MaxObjectBytes-changeOverhead-maxChangeBytes {
		return nil, ErrTooLarge
	}
	return out.Bytes(), nil
}

// DecodeContent reads a compressed content, of MaxContentBytes at most.
func DecodeContent(compressed []byte) (*Content, error) {
	if len(compressed) > MaxObjectBytes {
		return nil, ErrTooLarge
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("decompress the content: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, MaxContentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decompress the content: %w", err)
	}
	if len(raw) > MaxContentBytes {
		return nil, ErrTooLarge
	}
	var c Content
	if err := utiljson.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("read the content: %w", err)
	}
	return &c, nil
}

// EncodeChange returns the description of a change.
func EncodeChange(c *Change) ([]byte, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the change: %w", err)
	}
	if len(raw) > maxChangeBytes {
		return nil, ErrTooLarge
	}
	return raw, nil
}

// DecodeChange reads the description of a change that is kept under an ID, with a compressed content of so many bytes.
func DecodeChange(id string, raw []byte, contentBytes int64) (*Change, error) {
	if len(raw) > maxChangeBytes {
		return nil, ErrTooLarge
	}
	c := &Change{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("read the change: %w", err)
	}
	if c.Object.Kind == "" || c.Object.Name == "" || c.Revision == "" || c.At.IsZero() {
		return nil, errors.New("the change has no object, no revision or no time")
	}
	switch c.Operation {
	case Edited, Deleted, Created:
	default:
		return nil, fmt.Errorf("the change has the operation %q", c.Operation)
	}
	c.ID, c.Bytes = id, contentBytes+int64(len(raw))+changeOverhead
	return c, nil
}
