package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/jsonpointer"
)

// mergeDocument merges a JSON merge patch (RFC 7386) into a document, which is a map in JSON or YAML.
// It also returns what the patch sets, and which keys it removes.
func mergeDocument(text string, patch []byte) (changed string, list []documentChange, err error) {
	p, err := parseDocumentMerge(patch)
	if err != nil {
		return "", nil, err
	}
	if doc, err := decodeJSON(text); err == nil {
		m, ok := doc.(map[string]any)
		if !ok {
			return "", nil, errNoMap
		}
		list = mergeDocumentMap(nil, "", m, p)
		changed, err = encodeJSONLike(text, m)
		return changed, list, err
	}
	doc, err := decodeYAML(text)
	if err != nil {
		return "", nil, err
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return "", nil, errNoMap
	}
	if list, err = mergeYAMLMap(nil, "", doc.Content[0], p); err != nil {
		return "", nil, err
	}
	changed, err = encodeYAMLLike(text, doc)
	return changed, list, err
}

var errNoMap = errors.New("it is no map, into which alone a merge patch can be merged")

// parseDocumentMerge parses a merge patch, and keeps numbers as they are written.
func parseDocumentMerge(raw []byte) (map[string]any, error) {
	v, err := decodeJSON(string(raw))
	p, ok := v.(map[string]any)
	switch {
	case err != nil || !ok:
		return nil, errors.New("a merge patch has to be an object")
	case isDeeperThan(p, maxDepth):
		return nil, errors.New(tooDeepReason)
	}
	var plain map[string]any
	if err := utiljson.Unmarshal(raw, &plain); err != nil {
		return nil, fmt.Errorf("the merge patch is not JSON: %w", err)
	}
	return p, nil
}

// mergeDocumentMap merges a patch into m, the map at the path, and appends the changes.
func mergeDocumentMap(list []documentChange, path string, m, patch map[string]any) []documentChange {
	for _, name := range sortedKeys(patch) {
		at := path + jsonpointer.FormatPointer(name)
		old, there := m[name]
		sub, isMap := patch[name].(map[string]any)
		into, wasMap := old.(map[string]any)
		switch {
		case patch[name] == nil && there:
			delete(m, name)
			list = append(list, documentChange{at, nil})
		case patch[name] == nil:
		case isMap && wasMap:
			list = mergeDocumentMap(list, at, into, sub)
		default:
			m[name] = withoutNulls(patch[name])
			list = append(list, documentChange{at, normalizeNumbers(m[name])})
		}
	}
	return list
}

// mergeYAMLMap merges a patch into n, the map at the path. Comments and the order of keys stay.
func mergeYAMLMap(list []documentChange, path string, n *yaml.Node, patch map[string]any) ([]documentChange, error) {
	if n.Anchor != "" && len(patch) > 0 {
		return nil, fmt.Errorf("%q is in what &%s names, which other places of the document use too", path, n.Anchor)
	}
	for _, name := range sortedKeys(patch) {
		at := path + jsonpointer.FormatPointer(name)
		i, err := findUniqueKeyIndex(n, name)
		if err != nil {
			return nil, err
		}
		if patch[name] == nil {
			if i >= 0 {
				n.Content = slices.Delete(n.Content, i, i+2)
				list = append(list, documentChange{at, nil})
			}
			continue
		}
		if list, err = mergeYAMLValue(list, at, n, i, patch[name]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// mergeYAMLValue merges a value other than null at a path into n, the map above it. i is the index of
// the key in n; -1: it is new.
func mergeYAMLValue(list []documentChange, at string, n *yaml.Node, i int, v any) ([]documentChange, error) {
	if sub, isMap := v.(map[string]any); isMap && i >= 0 {
		switch old := n.Content[i+1]; old.Kind {
		case yaml.AliasNode:
			return nil, fmt.Errorf("%q is what *%s stands for, which other places of the document use too", at, old.Value)
		case yaml.MappingNode:
			return mergeYAMLMap(list, at, old, sub)
		}
	}
	value := withoutNulls(v)
	node := newYAMLNode(value)
	if i < 0 {
		parts, err := jsonpointer.ParsePointer(at)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, newYAMLNode(parts[len(parts)-1]), node)
	} else {
		old := n.Content[i+1]
		node.HeadComment, node.LineComment, node.FootComment = old.HeadComment, old.LineComment, old.FootComment
		if node.Kind != yaml.ScalarNode && node.LineComment != "" { // it would come after the last line of the value
			key := n.Content[i]
			key.HeadComment = strings.TrimPrefix(key.HeadComment+"\n"+node.LineComment, "\n")
			node.LineComment = ""
		}
		n.Content[i+1] = node
	}
	return append(list, documentChange{at, normalizeNumbers(value)}), nil
}

// withoutNulls returns a value of a merge patch as it is set where no map is: without the keys that it
// removes. Nulls in lists stay.
func withoutNulls(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for name, e := range m {
		if e != nil {
			out[name] = withoutNulls(e)
		}
	}
	return out
}

// normalizeNumbers returns a value with numbers of the types that Provenance has.
func normalizeNumbers(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if utiljson.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}
