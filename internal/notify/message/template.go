package message

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxFieldBytes is the longest field in a text, and maxMessageBytes that of a message of an event.
	maxFieldBytes, maxMessageBytes = 256, 600
	// maxTextBytes is the longest text of a message, and maxLines the most lines of it.
	maxTextBytes, maxLines = 3000, 60
)

// DefaultTemplate is the template of Notifications that state none.
const DefaultTemplate = `{{.Title}}: {{.Kind}} {{if .Namespace}}{{.Namespace}}/{{end}}{{.Name}}{{if or .Reason .Message}}
{{.Reason}}{{if and .Reason .Message}}: {{end}}{{.Message}}{{end}}
{{if .Commit}}Commit {{.Commit}}. {{end}}{{if .Stage}}Stage {{.Stage}}. {{end}}{{if .Cluster}}Cluster {{.Cluster}}. {{end}}{{if .By}}By {{.By}}. {{end}}Since {{.Since}}.{{if .Actor}} Must act: {{.Actor}}.{{end}}`

// Fields are what a template can show of an event. All of them are there, and empty where they are not known.
type Fields struct {
	Event, Title, Kind, Namespace, Name, Reason, Message, Since, Commit, Revision, Stage, Cluster, By, Actor string
}

// fieldNames are the names of the Fields.
var fieldNames = func() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Fields]()) {
		names = append(names, f.Name)
	}
	return names
}()

// allowedFunctions are the functions of templates, whose results are no longer than their arguments.
var allowedFunctions = []string{"eq", "ne", "and", "or", "not"}

// newFields returns the fields of an event, each in one line.
func newFields(e *happening.Event) Fields {
	cut := func(s string) string { return phrase.TruncateText(phrase.EscapeLine(s), maxFieldBytes) }
	return Fields{
		Event: cut(string(e.Type)), Title: happening.TitleOf(e.Type), Kind: cut(e.Kind), Namespace: cut(e.Namespace), Name: cut(e.Name),
		Reason: cut(e.Reason), Message: phrase.TruncateText(phrase.EscapeLine(e.Message), maxMessageBytes), Since: phrase.FormatTime(e.Time),
		Commit: cut(e.Commit), Revision: cut(e.Revision), Stage: cut(e.Stage), Cluster: cut(e.Cluster), By: cut(e.By), Actor: cut(e.Actor),
	}
}

// CheckTemplate returns why a template is refused; nil: it is not.
func CheckTemplate(text string) error {
	t, err := parseTemplate(text)
	if err != nil {
		return err
	}
	for _, value := range []string{"", "text"} { // for both branches of an if
		if err := t.Execute(&strings.Builder{}, fillFields(value)); err != nil {
			return errors.New(phrase.TruncateText(phrase.EscapeLine(err.Error()), maxFieldBytes))
		}
	}
	return nil
}

// fillFields returns fields that have all the same value.
func fillFields(value string) (f Fields) {
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(value)
	}
	return f
}

// parseTemplate parses a template that has allowed parts alone: each part runs once, so that its costs are bounded by its length.
func parseTemplate(text string) (*template.Template, error) {
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, errors.New(phrase.TruncateText(phrase.EscapeLine(err.Error()), maxFieldBytes))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("it may not define templates")
	}
	if t.Tree == nil || t.Tree.Root == nil {
		return nil, errors.New("it has no text")
	}
	return t, checkNode(t.Tree.Root)
}

// checkNode refuses what a template may not have.
func checkNode(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		return checkList(n)
	case *parse.ActionNode:
		return checkPipe(n.Pipe)
	case *parse.IfNode:
		return errors.Join(checkPipe(n.Pipe), checkList(n.List), checkList(n.ElseList))
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.BoolNode, *parse.NumberNode:
		return nil
	case *parse.PipeNode:
		return checkPipe(n)
	case *parse.FieldNode:
		return checkField(n)
	case *parse.IdentifierNode:
		if !slices.Contains(allowedFunctions, n.Ident) {
			return fmt.Errorf("the function %s is none of %s", n.Ident, strings.Join(allowedFunctions, ", "))
		}
		return nil
	}
	return fmt.Errorf("it may have texts, fields, if and else alone, and not %s", phrase.TruncateText(phrase.EscapeLine(n.String()), 40))
}

func checkList(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := checkNode(n); err != nil {
			return err
		}
	}
	return nil
}

func checkPipe(p *parse.PipeNode) error {
	if p == nil {
		return nil
	}
	if len(p.Decl) > 0 {
		return errors.New("it may have no variables")
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			if err := checkNode(arg); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkField(n *parse.FieldNode) error {
	if len(n.Ident) != 1 || !slices.Contains(fieldNames, n.Ident[0]) {
		return fmt.Errorf("there is no field %s; the fields are %s", n.String(), strings.Join(fieldNames, ", "))
	}
	return nil
}

// renderText returns the text of an event. A template that fails, which admission refuses, gives way to the default one.
func renderText(text string, e *happening.Event) string {
	fields := newFields(e)
	for _, candidate := range []string{text, DefaultTemplate} {
		if candidate == "" {
			continue
		}
		t, err := parseTemplate(candidate)
		var b strings.Builder
		if err != nil || t.Execute(&b, fields) != nil || strings.TrimSpace(b.String()) == "" {
			continue
		}
		return phrase.TruncateText(trimLines(phrase.EscapeText(b.String())), maxTextBytes)
	}
	return fields.Title
}

// trimLines returns a text without spaces at ends of lines, without empty lines at its ends, and with a bounded number of lines.
func trimLines(text string) string {
	lines := strings.SplitN(strings.Trim(text, "\n"), "\n", maxLines+1)
	lines = lines[:min(len(lines), maxLines)]
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}
