package render

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// errAliases is the error of a document that its aliases make too large.
var errAliases = fmt.Errorf("the document has more than %d bytes when its aliases are expanded", MaxContentBytes)

// CheckAliases returns an error for a document that expands to more bytes than all objects of a Source may have.
// The decoder bounds the number of fields that aliases make, and not their bytes, and its memory is that of all Sources of
// the Repository. So this comes first.
func CheckAliases(text []byte) error {
	if !bytes.ContainsRune(text, '*') || !bytes.ContainsRune(text, '&') {
		return nil
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return err
	}
	if (expansion{}).measureNode(&n) > MaxContentBytes {
		return errAliases
	}
	return nil
}

// expansion is the bytes of nodes with their aliases expanded. A node that is being measured has the bound, because an alias
// in itself has no end.
type expansion map[*yaml.Node]int

// measureNode returns the bytes of a node, or a number above the bound.
func (e expansion) measureNode(n *yaml.Node) int {
	const tooMany = MaxContentBytes + 1
	if size, known := e[n]; known {
		return size
	}
	if n.Kind == yaml.AliasNode {
		return e.measureNode(n.Alias)
	}
	if n.Anchor != "" {
		e[n] = tooMany
	}
	size := 1 + len(n.Value)
	for _, one := range n.Content {
		if size += e.measureNode(one); size > tooMany {
			size = tooMany
			break
		}
	}
	if n.Anchor != "" {
		e[n] = size
	}
	return size
}
