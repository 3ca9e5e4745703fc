package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

// Template is the template of a SourceSet, with its texts parsed.
type Template struct {
	metadata v1alpha1.SourceTemplateMetadata
	spec     map[string]any
	texts    map[string]*template.Template
}

// TextError is a text of a template that cannot be used, with its path below template.
type TextError struct {
	// Path such as spec.paths[0].
	Path string
	Err  error
}

// Error returns the path and the cause.
func (e *TextError) Error() string { return "template." + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *TextError) Unwrap() error { return e.Err }

// NewTemplate parses the texts of a template. The error is a *TextError.
func NewTemplate(t *v1alpha1.SourceTemplate) (*Template, error) {
	if len(t.Spec.Raw) > MaxTemplateBytes {
		return nil, &TextError{"spec", fmt.Errorf("has more than %d bytes", MaxTemplateBytes)}
	}
	spec, err := render.UnmarshalMap(t.Spec.Raw)
	if err != nil || spec == nil {
		return nil, &TextError{"spec", errors.New("is no map of fields")}
	}
	out := &Template{metadata: t.Metadata, spec: spec, texts: map[string]*template.Template{}}
	_, err = out.mapTexts(func(path, text string) (string, error) {
		if !strings.Contains(text, "{{") || out.texts[text] != nil {
			return text, nil
		}
		parsed, err := parseText(text)
		if err != nil {
			return "", err
		}
		out.texts[text] = parsed
		return text, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// filled is what a template gives for one entry.
type filled struct {
	name                string
	labels, annotations map[string]string
	spec                map[string]any
}

// fillIn returns the template with the parameters of an entry. The error is a *TextError.
func (t *Template) fillIn(parameters map[string]any) (filled, error) {
	return t.mapTexts(func(_, text string) (string, error) {
		parsed := t.texts[text]
		if parsed == nil {
			return text, nil
		}
		var out boundedText
		if err := parsed.Execute(&out, parameters); err != nil {
			return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
		}
		return out.String(), nil
	})
}

// mapTexts returns the template with each text replaced by what change returns.
func (t *Template) mapTexts(change func(path, text string) (string, error)) (out filled, err error) {
	apply := func(path, text string) string {
		if err != nil {
			return ""
		}
		changed, failed := change(path, text)
		if failed != nil {
			err = &TextError{path, failed}
		}
		return changed
	}
	out.name = apply("metadata.name", t.metadata.Name)
	out.labels = mapValues(t.metadata.Labels, "metadata.labels", apply)
	out.annotations = mapValues(t.metadata.Annotations, "metadata.annotations", apply)
	out.spec, _ = mapTree(t.spec, "spec", apply).(map[string]any)
	return out, err
}

// mapValues returns a map with each value replaced, in the order of its keys.
func mapValues(from map[string]string, path string, apply func(path, text string) string) map[string]string {
	out := make(map[string]string, len(from))
	for _, key := range slices.Sorted(maps.Keys(from)) {
		out[key] = apply(path+"["+key+"]", from[key])
	}
	return out
}

// mapTree returns a value of JSON with each text replaced, in the order of its keys.
func mapTree(v any, path string, apply func(path, text string) string) any {
	switch v := v.(type) {
	case string:
		return apply(path, v)
	case []any:
		out := make([]any, 0, len(v))
		for i, one := range v {
			out = append(out, mapTree(one, fmt.Sprintf("%s[%d]", path, i), apply))
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = mapTree(v[key], path+"."+key, apply)
		}
		return out
	}
	return v
}

// boundedText takes what a template writes, up to a bound.
type boundedText struct{ strings.Builder }

// Write adds to the text.
func (b *boundedText) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxTextBytes {
		return 0, errTextTooLong
	}
	return b.Builder.Write(p)
}

var errTextTooLong = fmt.Errorf("the text has more than %d bytes", MaxTextBytes)

// parseText parses a text. Its cost is bounded by its length: it has no loop, and each of its functions bounds what it returns.
func parseText(text string) (*template.Template, error) {
	if len(text) > MaxTextBytes {
		return nil, errTextTooLong
	}
	t, err := template.New("text").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return nil, errors.New("define and block are not allowed")
	}
	if err := restrictNode(t.Root); err != nil {
		return nil, err
	}
	return t, nil
}

// restrictNode refuses what could cost more than the length of the text, and functions that are not listed. It ends each pipeline that
// writes by the function that accepts texts, numbers and booleans alone.
func restrictNode(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		return restrictList(n)
	case *parse.ActionNode:
		if err := restrictPipe(n.Pipe); err != nil {
			return err
		}
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(scalarFunction).SetPos(n.Pos)}})
		}
		return nil
	case *parse.IfNode:
		return restrictBranch(&n.BranchNode)
	case *parse.WithNode:
		return restrictBranch(&n.BranchNode)
	case *parse.TextNode, *parse.CommentNode:
		return nil
	}
	return fmt.Errorf("%q is not allowed: a template has values, functions, if and with", n.String())
}

func restrictList(n *parse.ListNode) error {
	if n == nil {
		return nil
	}
	for _, one := range n.Nodes {
		if err := restrictNode(one); err != nil {
			return err
		}
	}
	return nil
}

func restrictBranch(n *parse.BranchNode) error {
	if err := restrictPipe(n.Pipe); err != nil {
		return err
	}
	if err := restrictList(n.List); err != nil {
		return err
	}
	return restrictList(n.ElseList)
}

// restrictPipe refuses functions that are not listed.
func restrictPipe(n *parse.PipeNode) error {
	if n == nil {
		return nil
	}
	for _, c := range n.Cmds {
		for _, arg := range c.Args {
			if err := restrictArgument(arg); err != nil {
				return err
			}
		}
	}
	return nil
}

func restrictArgument(n parse.Node) error {
	switch n := n.(type) {
	case *parse.PipeNode:
		return restrictPipe(n)
	case *parse.ChainNode:
		return restrictArgument(n.Node)
	case *parse.IdentifierNode:
		if _, own := functions[n.Ident]; !own && !slices.Contains(builtins, n.Ident) {
			return fmt.Errorf("the function %s is not one of templates of Sources: %s", n.Ident, strings.Join(FunctionNames(), ", "))
		}
	}
	return nil
}

// encodeObject returns the object in JSON, for its size and its hash.
func encodeObject(object map[string]any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("generate: a Source cannot be encoded: %v", err))
	}
	return raw
}
