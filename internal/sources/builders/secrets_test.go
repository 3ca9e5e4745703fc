package builders

import (
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/sources/render"
)

// secretJob is a chart with a value of a Secret. Its template is the text.
func secretJob(template, secret string) render.Job {
	j := chartJob("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" + template)
	j.Options.Helm = &render.HelmOptions{ValuesFrom: []render.InputID{"Secret/s/k"}}
	j.Inputs = render.Inputs{"Secret/s/k": []byte(secret)}
	return j
}

// No error of a chart has a value of a Secret, and each has its place or its cause.
func TestErrorsHaveNoValuesOfSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		job  render.Job
		want string
	}{
		"a template that fails with it": {secretJob(`data: {a: {{ fail .Values.password }}}`, "password: hunter22"), "templates/a.yaml:4: "},
		"another form of it":            {secretJob(`data: {a: {{ fail (upper .Values.password) }}}`, "password: hunter22"), "templates/a.yaml:4: "},
		"only this value fails":         {secretJob(`data: {a: {{ if ne .Values.password "hidden" }}{{ fail .Values.password }}{{ end }}}`, "password: hunter22"), "cannot be rendered with the values of the Secrets"},
		"a schema": {addFile(secretJob("", "password: hunter22"), "values.schema.json", []byte(`{"properties": {"password": {"pattern": "^[0-9]*$"}}}`)),
			"found with other values"},
		"a schema that only it fails": {addFile(secretJob("", "password: hunter22"), "values.schema.json", []byte(`{"properties": {"password": {"pattern": "^hidden$"}}}`)),
			"Chart.yaml:0: it cannot be rendered with the values of the Secrets"},
		"no YAML":                {secretJob("", "hunter22: [hunter22"), "Secret s, key k:0: the text is no YAML map"},
		"no map":                 {secretJob("", "hunter22"), "Secret s, key k:0: the text is no YAML map"},
		"an object that is none": {secretJob(`data: {a: {{ .Values.password }} }`, `password: "{hunter22: ["`), "templates/a.yaml"},
		"an error of the chart":  {secretJob(`data: {a: {{ .Values.absent.field }}}`, "password: hunter22"), "nil pointer"},
	} {
		got := describe(RenderJob(c.job))
		if !strings.Contains(got, c.want) || strings.Contains(strings.ToLower(got), "hunter") || !strings.Contains(got, "problem") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := describe(RenderJob(secretJob(`data: {a: {{ .Values.password }}}`, "password: hunter22"))); !strings.Contains(got, `"data":{"a":"hunter22"}`) {
		t.Errorf("a chart that renders: %s", got)
	}
}

// Values of a variant go before those of the Source: first its files, then its inputs, then its own.
func TestValuesOfVariantsGoFirst(t *testing.T) {
	j := chartJob("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {one: {{ .Values.one }}, two: {{ .Values.two }}, three: {{ .Values.three }}, four: {{ .Values.four }}}\n")
	j.Files["v.yaml"] = []byte("{two: file, three: file, four: file}")
	j.Inputs = render.Inputs{"ConfigMap/base/k": []byte("one: base"), "ConfigMap/own/k": []byte("{three: own, four: own}")}
	own := j.Options
	j.Options.Helm = &render.HelmOptions{ValuesFrom: []render.InputID{"ConfigMap/base/k"}, Values: []byte("{two: source, three: source, four: source}")}
	helm := *j.Options.Helm
	helm.VariantFiles, helm.VariantFrom, helm.VariantValues = []string{"v.yaml"}, []render.InputID{"ConfigMap/absent/k", "ConfigMap/own/k"}, []byte("four: variant")
	own.Helm = &helm
	j.Variants = []render.VariantJob{{Name: "v", Builds: j.Builds, Options: own}}
	result := RenderJob(j)
	objects, ok := result.ObjectsOf("v")
	if !ok || len(objects) != 1 {
		t.Fatal(describe(result))
	}
	if got, want := fmt.Sprint(objects[0].Fields["data"]), "map[four:variant one:base three:own two:file]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(result.Objects[0].Fields["data"]), "map[four:source one:base three:source two:source]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
