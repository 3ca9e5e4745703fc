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

// Template is the template of a SourceSet, with its texts parsed. It is for one goroutine, and for one call of Generate, whose work it counts.
type Template struct {
	meter    meter
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
	out := &Template{meter: meter{left: MaxWorkBytes}, metadata: t.Metadata, spec: spec, texts: map[string]*template.Template{}}
	functions := newFunctions(&out.meter)
	_, err = out.mapTexts(func(text string) (string, error) {
		if !strings.Contains(text, "{{") || out.texts[text] != nil {
			return text, nil
		}
		parsed, err := parseText(text, functions)
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
	return t.mapTexts(func(text string) (string, error) {
		if err := t.meter.spendTexts(text); err != nil {
			return "", err
		}
		parsed := t.texts[text]
		if parsed == nil {
			return text, nil
		}
		var out boundedText
		if err := parsed.Execute(&out, parameters); err != nil {
			if t.meter.left < 0 {
				return "", errTooMuchWork
			}
			return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
		}
		return out.String(), nil
	})
}

// mapTexts returns the template with each text replaced by what change returns. The error is a *TextError.
func (t *Template) mapTexts(change func(text string) (string, error)) (out filled, err error) {
	if out.name, err = change(t.metadata.Name); err != nil {
		return filled{}, &TextError{"metadata.name", err}
	}
	if out.labels, err = mapValues(t.metadata.Labels, change); err != nil {
		return filled{}, addPath("metadata.labels", err)
	}
	if out.annotations, err = mapValues(t.metadata.Annotations, change); err != nil {
		return filled{}, addPath("metadata.annotations", err)
	}
	spec, err := mapTree(t.spec, MaxDepth, change)
	if err != nil {
		return filled{}, addPath("spec", err)
	}
	out.spec, _ = spec.(map[string]any)
	return out, nil
}

// addPath returns an error of a text with what goes before its path. A path is made of an error alone.
func addPath(prefix string, err error) error {
	var at *TextError
	if errors.As(err, &at) {
		return &TextError{prefix + at.Path, at.Err}
	}
	return &TextError{prefix, err}
}

// mapValues returns a map with each value replaced, in the order of its keys.
func mapValues(from map[string]string, change func(text string) (string, error)) (map[string]string, error) {
	out := make(map[string]string, len(from))
	for _, key := range slices.Sorted(maps.Keys(from)) {
		text, err := change(from[key])
		if err != nil {
			return nil, &TextError{"[" + key + "]", err}
		}
		out[key] = text
	}
	return out, nil
}

// mapTree returns a value of JSON with each text replaced, in the order of its keys. It may have so many levels.
func mapTree(v any, levels int, change func(text string) (string, error)) (any, error) {
	if levels < 0 {
		return nil, fmt.Errorf("is nested deeper than %d levels", MaxDepth)
	}
	switch v := v.(type) {
	case string:
		return change(v)
	case []any:
		out := make([]any, 0, len(v))
		for i, one := range v {
			mapped, err := mapTree(one, levels-1, change)
			if err != nil {
				return nil, addPath(fmt.Sprintf("[%d]", i), err)
			}
			out = append(out, mapped)
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			mapped, err := mapTree(v[key], levels-1, change)
			if err != nil {
				return nil, addPath("."+key, err)
			}
			out[key] = mapped
		}
		return out, nil
	}
	return v, nil
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

// parseText parses a text. Its cost is bounded: it has no loop, each of its functions bounds what it returns, and the functions are metered.
func parseText(text string, functions template.FuncMap) (*template.Template, error) {
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
		if name, is := c.Args[0].(*parse.IdentifierNode); is && slices.Contains(comparisons, name.Ident) {
			meterArguments(c)
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
		if !slices.Contains(functionNames, n.Ident) {
			return fmt.Errorf("the function %s is not one of templates of Sources: %s", n.Ident, strings.Join(functionNames, ", "))
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
