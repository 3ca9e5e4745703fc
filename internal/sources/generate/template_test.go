package generate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// fillText fills a text in with parameters, or returns the error.
func fillText(text string, parameters map[string]any) string {
	t, err := NewTemplate(&v1alpha1.SourceTemplate{Metadata: v1alpha1.SourceTemplateMetadata{Name: text}, Spec: apiextensionsv1.JSON{Raw: []byte("{}")}})
	if err != nil {
		return "refused: " + err.Error()
	}
	out, err := t.fillIn(parameters)
	if err != nil {
		return "error: " + err.Error()
	}
	return out.name
}

func TestTexts(t *testing.T) {
	parameters := map[string]any{
		"s": "Some_Text", "n": int64(12345678), "f": 1.5, "b": true, "null": nil, "empty": "", "list": []any{"x", int64(2)},
		"map": map[string]any{"a.b/c": "d", "inner": map[string]any{"v": "w"}},
	}
	for text, want := range map[string]string{
		"plain":                               "plain",
		"{{.s}}-{{.n}}-{{.f}}-{{.b}}":         "Some_Text-12345678-1.5-true",
		"{{.map.inner.v}}":                    "w",
		`{{index .map "a.b/c"}}`:              "d",
		`{{index .map "inner" "v"}}`:          "w",
		"{{index .list 1}}{{index .list -1}}": "22",
		`{{join "," .list}}`:                  "x,2",
		"{{.s | lower | normalize}}":          "some-text",
		"{{upper .s}}":                        "SOME_TEXT",
		`{{replace "_" "-" .s}}`:              "Some-Text",
		`{{.s | trimPrefix "Some"}}`:          "_Text",
		`{{.s | trimSuffix "Text" | trim}}`:   "Some_",
		`{{index (split "_" .s) 0}}`:          "Some",
		`{{default "x" .empty}}{{.null | default "y"}}{{default "z" .s}}`: "xySome_Text",
		`{{print .s "-" .n .b}}`:              "Some_Text-12345678true",
		"{{hash .s}}":                         "cb07ca58",
		"{{if .b}}yes{{else if .s}}no{{end}}": "yes",
		`{{if and (eq .s "Some_Text") (not .empty) (gt .n 3)}}y{{end}}`: "y",
		"{{with .map.inner}}{{.v}}{{end}}":                              "w",
		"{{$x := .s}}{{$x}}{{len .list}}":                               "Some_Text2",
		`{{if hasKey .map "no"}}y{{else}}n{{end}}`:                      "n",
		`{{hasKey .null "no"}}`:                                         "false",
		"{{/* a note */}}x":                                             "x",

		"{{.gone}}":                         `map has no entry for key "gone"`,
		"{{.map.gone}}":                     `map has no entry for key "gone"`,
		"{{.map.gone.deeper}}":              `map has no entry for key "gone"`,
		`{{index .map "gone"}}`:             `map has no entry for key "gone"`,
		"{{index .list 2}}":                 "the list has 2 items, and none at 2",
		`{{index .list "a"}}`:               "index needs a number",
		`{{index .s "a"}}`:                  "index needs a map or a list",
		"{{index .map 1}}":                  "index needs a text",
		"{{.null}}":                         "the parameter has no value",
		"{{.map}}":                          "the parameter is a map",
		"{{.list}}":                         "the parameter is a list",
		`{{hasKey .s "a"}}`:                 "hasKey needs a map",
		`{{replace "" "x" .s}}`:             "replace needs a text",
		`{{split "" .s}}`:                   "split needs a separator",
		`{{join "," (index .map "inner")}}`: "error: ",
		"{{hash .map}}":                     "the parameter is a map",
		"{{.s.t}}":                          "error: ",
		"{{":                                "refused: template.metadata.name: text:1: unclosed action",
		"{{range .list}}x{{end}}":           "refused: template.metadata.name: ",
		"{{template \"x\"}}":                "refused: template.metadata.name: ",
		"{{define \"x\"}}{{end}}y":          "refused: template.metadata.name: define and block are not allowed",
		"{{block \"x\" .}}{{end}}":          "refused: template.metadata.name: ",
		`{{printf "%999999d" 1}}`:           "refused: template.metadata.name: the function printf is not one of templates of Sources",
		`{{call .s}}`:                       "the function call is not one",
		`{{if (html .s)}}{{end}}`:           "the function html is not one",
		`{{with (js .s).x}}{{end}}`:         "the function js is not one",
		`{{env "HOME"}}`:                    `function "env" not defined`,
		`{{.s | urlquery}}`:                 "the function urlquery is not one",
	} {
		if got := fillText(text, parameters); got != want && (!strings.HasPrefix(got, "error: ") && !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// No function makes a text beyond the bound, however its arguments are chosen, and none builds one before it refuses.
func TestFunctionsHaveBounds(t *testing.T) {
	half := strings.Repeat("a", MaxTextBytes/2+1)
	parameters := map[string]any{"s": half, "list": []any{half, half}}
	for _, text := range []string{
		"{{print .s .s}}", `{{join "" .list}}`, `{{replace "a" "bb" .s}}`, `{{replace "a" .s .s}}`, "{{.s}}{{.s}}", `{{len (replace "a" .s .s)}}`,
	} {
		if got := fillText(text, parameters); !strings.Contains(got, errTextTooLong.Error()) {
			t.Errorf("%s: %.80s", text, got)
		}
	}
	for _, text := range []string{"{{lower .s}}", "{{upper .s}}", `{{replace "a" "" .s}}`, "{{normalize .s}}"} {
		if got := fillText(text, parameters); strings.HasPrefix(got, "error") {
			t.Errorf("%s: %.80s", text, got)
		}
	}
	if got := fillText(strings.Repeat("{{.s}}", MaxTextBytes), parameters); !strings.HasPrefix(got, "refused: ") {
		t.Errorf("a long text: %.80s", got)
	}
}

// Each function that reads a text counts it, and all texts of a SourceSet share one meter.
func TestTheWorkOfTextsIsBounded(t *testing.T) {
	parameters := map[string]any{"s": strings.Repeat("a", 1000), "list": []any{strings.Repeat("a", 1000)}}
	for _, text := range []string{
		"{{lower .s}}", "{{upper .s}}", "{{trim .s}}", "{{normalize .s}}", "{{hash .s}}", "{{print .s}}", `{{join "" .list}}`, `{{replace "b" "" .s}}`, "{{.s}}",
		`{{len (split "b" .s)}}`, `{{trimPrefix .s "a"}}`, `{{trimSuffix .s "a"}}`, `{{eq "a" .s}}`, `{{if ne .s "b"}}{{end}}`, `{{.s | lt "b"}}{{.s | trim}}`,
	} {
		parsed, err := NewTemplate(&v1alpha1.SourceTemplate{Metadata: v1alpha1.SourceTemplateMetadata{Name: text}, Spec: apiextensionsv1.JSON{Raw: []byte("{}")}})
		if err != nil {
			t.Fatal(err)
		}
		parsed.meter.left = 2500 // an entry takes a thousand or two
		if _, err := parsed.fillIn(parameters); err != nil {
			t.Errorf("%s: the first entry: %v", text, err)
		}
		_, _ = parsed.fillIn(parameters)
		if _, err := parsed.fillIn(parameters); !errors.Is(err, errTooMuchWork) {
			t.Errorf("%s: the third entry: %v", text, err)
		}
	}
	if got := fillText(`{{len (split "," .s)}}`, map[string]any{"s": strings.Repeat(",", MaxParts-1)}); got != "1024" {
		t.Error(got)
	}
	if got := fillText(`{{len (split "," .s)}}`, map[string]any{"s": strings.Repeat(",", MaxParts)}); !strings.Contains(got, "split gives 1025 parts, and at most 1024 are allowed") {
		t.Error(got)
	}
}

func TestNormalizeName(t *testing.T) {
	for in, want := range map[string]string{
		"Web_App.v1": "web-app-v1", "--a--": "a", "": "", "ä": "", "aä": "a", strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62), strings.Repeat("b", 70): strings.Repeat("b", 63),
	} {
		if got := normalizeName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A template that is too large, or none at all, has a place.
func TestTemplatesThatAreNone(t *testing.T) {
	for raw, want := range map[string]string{
		"[]": "template.spec: is no map of fields", "null": "template.spec: is no map of fields", "": "template.spec: is no map of fields",
		`{"a":` + strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1) + `}`: "template.spec.a" + strings.Repeat("[0]", MaxDepth) + ": is nested deeper than 64 levels",
		`{"paths": ["a", "{{.x"]}`:                               "template.spec.paths[1]: text:1: unclosed action",
		`{"a": "` + strings.Repeat("x", MaxTemplateBytes) + `"}`: "template.spec: has more than 65536 bytes",
	} {
		_, err := NewTemplate(&v1alpha1.SourceTemplate{Spec: apiextensionsv1.JSON{Raw: []byte(raw)}})
		if err == nil || err.Error() != want {
			t.Errorf("%.40s: %v, want %s", raw, err, want)
		}
	}
	_, err := NewTemplate(&v1alpha1.SourceTemplate{Metadata: v1alpha1.SourceTemplateMetadata{Labels: map[string]string{"a": "{{.x"}}, Spec: apiextensionsv1.JSON{Raw: []byte("{}")}})
	if err == nil || !strings.HasPrefix(err.Error(), "template.metadata.labels[a]: ") {
		t.Error(err)
	}
	if names := FunctionNames(); !slices.IsSorted(names) || slices.Contains(names, scalarFunction) || !slices.Contains(names, "normalize") || !slices.Contains(names, "and") {
		t.Error(names)
	}
}
