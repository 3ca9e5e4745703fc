package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
)

// overrideDocument patches a JSON or YAML document that a text field holds.
func (o *ObjectPatcher) overrideDocument(f *v1alpha1.FieldOverrider) error {
	path, err := parseAllowedPath(f.FieldPath, nil)
	if err != nil {
		return err
	}
	v, _ := kinds.LookupPath(o.Object, path)
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("there is no text at %s", f.FieldPath)
	}
	changed, list, err := o.patchDocument(f, text)
	if err != nil && o.Item.Key.IsSecret() {
		return fmt.Errorf("the document at %s cannot be patched so", f.FieldPath) // the other error may quote it
	}
	if err != nil {
		return fmt.Errorf("in the document at %s: %w", f.FieldPath, err)
	}
	if changed == text {
		return nil
	}
	if _, err := patchJSONValue(o.Object, v1alpha1.OverrideReplace, path, changed); err != nil {
		return err
	}
	for _, c := range list {
		o.noteChangeAt(f.FieldPath+"#"+c.path, c.value)
	}
	return nil
}

// documentChange is what an operation sets in a document, for its Provenance.
type documentChange struct {
	path  string
	value any
}

// patchDocument patches a document, and counts what that costs. It also returns the changes.
func (o *ObjectPatcher) patchDocument(f *v1alpha1.FieldOverrider, text string) (changed string, list []documentChange, err error) {
	if err := o.countBytes(len(text)); err != nil {
		return "", nil, err
	}
	switch {
	case f.MergePatch != nil:
		changed, list, err = mergeDocument(text, f.MergePatch.Raw)
	case len(f.JSON) > 0:
		if changed, err = patchJSON(text, f.JSON); err == nil {
			list, err = listChanges(f.JSON)
		}
	default:
		if changed, err = patchYAML(text, f.YAML); err == nil {
			list, err = listChanges(f.YAML)
		}
	}
	if err == nil {
		err = o.countBytes(len(changed))
	}
	return changed, list, err
}

func listChanges(patches []v1alpha1.DocumentPatch) (out []documentChange, err error) {
	for _, p := range patches {
		value, err := decodePatchValue(v1alpha1.PlaintextOverrider{Operator: p.Operator, Value: p.Value})
		if err != nil {
			return nil, err
		}
		out = append(out, documentChange{p.SubPath, provenanceValue(p.Operator, value)})
	}
	return out, nil
}

// decodeDocumentValue decodes the value of an operation, and keeps numbers as they are written.
func decodeDocumentValue(p v1alpha1.DocumentPatch) (any, error) {
	plain, err := decodePatchValue(v1alpha1.PlaintextOverrider{Operator: p.Operator, Value: p.Value})
	if err != nil || plain == nil && p.Operator == v1alpha1.OverrideRemove {
		return nil, err
	}
	return decodeJSON(string(p.Value.Raw))
}

func decodeJSON(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the end of the document")
	}
	return v, nil
}

// patchJSON patches a JSON document. It keeps the indentation and the end of the document, and
// sorts keys.
func patchJSON(text string, list []v1alpha1.DocumentPatch) (string, error) {
	doc, err := decodeJSON(text)
	if err != nil {
		return "", fmt.Errorf("it is not JSON: %w", err)
	}
	for _, p := range list {
		path, err := jsonpointer.ParsePointer(p.SubPath)
		if err != nil {
			return "", err
		}
		value, err := decodeDocumentValue(p)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", p.Operator, p.SubPath, err)
		}
		if doc, err = patchJSONValue(doc, p.Operator, path, value); err != nil {
			return "", fmt.Errorf("%s %s: %w", p.Operator, p.SubPath, err)
		}
	}
	return encodeJSONLike(text, doc)
}

// encodeJSONLike writes a document with the indentation and the end of the text.
func encodeJSONLike(text string, doc any) (string, error) {
	out, err := encodeDocument(doc, detectIndent(text))
	if err != nil {
		return "", err
	}
	bare := strings.TrimRight(text, " \t\r\n")
	return strings.TrimSuffix(out, "\n") + text[len(bare):], nil
}

// detectIndent returns the indentation of a JSON document of several lines: that of its second
// line. It is nil for a document of one line.
func detectIndent(text string) *string {
	_, rest, ok := strings.Cut(strings.TrimSpace(text), "\n")
	if !ok {
		return nil
	}
	indent := rest[:len(rest)-len(strings.TrimLeft(rest, " \t"))]
	return &indent
}

// patchYAML patches a YAML document. It keeps comments and the order of keys. It expands no alias,
// because what an alias refers to cannot change in one place only.
func patchYAML(text string, list []v1alpha1.DocumentPatch) (string, error) {
	doc, err := decodeYAML(text)
	if err != nil {
		return "", err
	}
	for _, p := range list {
		path, err := jsonpointer.ParsePointer(p.SubPath)
		if err != nil {
			return "", err
		}
		value, err := yamlNodeForPatch(p)
		if err == nil {
			err = patchYAMLNode(doc.Content[0], p.Operator, path, value)
		}
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", p.Operator, p.SubPath, err)
		}
	}
	return encodeYAMLLike(text, doc)
}

// decodeYAML returns the only document of a text.
func decodeYAML(text string) (*yaml.Node, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if len(doc.Content) != 1 {
		return nil, errors.New("it is no YAML document")
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is more than one YAML document")
	}
	return &doc, nil
}

// encodeYAMLLike writes a document with the end of the text.
func encodeYAMLLike(text string, doc *yaml.Node) (string, error) {
	out := limitedBuffer{limit: MaxObjectBytes}
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		if out.isOver { // the library keeps only the text of the error
			err = ErrObjectTooLarge
		}
		return "", fmt.Errorf("write it: %w", err)
	}
	if err := yaml.Unmarshal(out.bytes, &yaml.Node{}); err != nil {
		return "", fmt.Errorf("what remains is not YAML: %w", err)
	}
	if !strings.HasSuffix(text, "\n") {
		return strings.TrimSuffix(string(out.bytes), "\n"), nil
	}
	return string(out.bytes), nil
}

// yamlNodeForPatch returns the value of an operation in YAML's own style.
func yamlNodeForPatch(p v1alpha1.DocumentPatch) (*yaml.Node, error) {
	v, err := decodeDocumentValue(p)
	if err != nil || p.Operator == v1alpha1.OverrideRemove {
		return nil, err
	}
	return newYAMLNode(v), nil
}

func newYAMLNode(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, name := range sortedKeys(v) {
			n.Content = append(n.Content, newYAMLNode(name), newYAMLNode(v[name]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range v {
			n.Content = append(n.Content, newYAMLNode(e))
		}
		return n
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}
	case string:
		// As the library writes a string: quoted where older readers would take it for a bool or a
		// number.
		n := &yaml.Node{}
		if n.Encode(v) != nil {
			n.SetString(v)
		}
		return n
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

// patchYAMLNode carries out one operation of a JSON Patch below n.
func patchYAMLNode(n *yaml.Node, op v1alpha1.OverriderOperator, path []string, value *yaml.Node) error {
	for last := len(path) - 1; ; path, last = path[1:], last-1 {
		i, err := findNodeIndex(n, op, path[0], last == 0)
		if err != nil {
			return err
		}
		if last > 0 {
			n = n.Content[i]
			continue
		}
		size := 1
		if n.Kind == yaml.MappingNode {
			size = 2
			if i == len(n.Content) {
				n.Content = append(n.Content, newYAMLNode(path[0]), nil)
			}
			i++
		}
		switch {
		case op == v1alpha1.OverrideRemove:
			n.Content = slices.Delete(n.Content, i+1-size, i+1)
		case size == 1 && op == v1alpha1.OverrideAdd:
			n.Content = slices.Insert(n.Content, i, value)
		default:
			if old := n.Content[i]; old != nil {
				value.HeadComment, value.LineComment, value.FootComment = old.HeadComment, old.LineComment, old.FootComment
			}
			n.Content[i] = value
		}
		return nil
	}
}

// findNodeIndex returns the index in n.Content of what a part of a path names. In a map it is the
// index of the value on the way, and of the key at the end. For a key that is added it is the end
// of the map.
func findNodeIndex(n *yaml.Node, op v1alpha1.OverriderOperator, part string, last bool) (int, error) {
	if n.Anchor != "" {
		return 0, fmt.Errorf("above %q is what &%s names, which other places of the document use too", part, n.Anchor)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return 0, fmt.Errorf("%q is in what *%s stands for, which other places of the document use too", part, n.Value)
	case yaml.SequenceNode:
		return findListIndex(len(n.Content), op, part, last)
	case yaml.MappingNode:
	default:
		return 0, fmt.Errorf("there is no %q: the value above it is neither a map nor a list", part)
	}
	found, err := findUniqueKeyIndex(n, part)
	switch {
	case err != nil:
		return 0, err
	case found >= 0 && last:
		return found, nil
	case found >= 0:
		return found + 1, nil
	case last && op == v1alpha1.OverrideAdd:
		return len(n.Content), nil
	}
	return 0, fmt.Errorf("there is no %q", part)
}

// findUniqueKeyIndex returns the index of a key in the map n, or -1.
func findUniqueKeyIndex(n *yaml.Node, key string) (int, error) {
	found := -1
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value != key || n.Content[i].Kind != yaml.ScalarNode {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("%q is there twice", key)
		}
		found = i
	}
	return found, nil
}

func findListIndex(length int, op v1alpha1.OverriderOperator, part string, last bool) (int, error) {
	adds := last && op == v1alpha1.OverrideAdd
	if adds && part == "-" {
		return length, nil
	}
	i, err := jsonpointer.ParseIndex(part)
	if err != nil {
		return 0, err
	}
	if i > length || i == length && !adds {
		return 0, fmt.Errorf("there is no element %d in a list of %d", i, length)
	}
	return i, nil
}
