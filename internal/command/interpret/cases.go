package interpret

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/kinds/script"
)

// testCase is one request and the expected answers.
type testCase struct {
	name      string
	dir       string // file names are relative to it
	readError error  // why the case cannot be read

	fields caseFields
}

type caseFields struct {
	Object   any            `json:"object"`
	Observed any            `json:"observed"`
	Items    any            `json:"items"`
	With     string         `json:"with"`
	Op       string         `json:"op"`
	Replicas *int64         `json:"replicas"`
	Expect   map[string]any `json:"expect"`
	Error    string         `json:"error"`
}

// The names of files in a directory that is a case.
var (
	objectFiles   = []string{"object.yaml", "object.yml", "object.json"}
	observedFiles = []string{"observed.yaml", "observed.yml", "observed.json"}
	itemsFiles    = []string{"items.yaml", "items.yml", "items.json"}
	withFiles     = []string{"with.yaml", "with.yml", "with.json", "with.lua", "health.lua"}
	expectFiles   = []string{"expected.json", "expected.yaml", "expected.yml"}
)

// findCases returns the cases in a directory and below, sorted by name.
func findCases(dir string) (cases []*testCase, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if object := firstExistingFile(path, objectFiles); object != "" {
				cases = append(cases, readDirectoryCase(path, object))
				return fs.SkipDir
			}
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			if c := readFileCase(path); c != nil {
				cases = append(cases, c)
			}
		}
		return nil
	})
	return cases, err
}

// firstExistingFile returns the first of the names that exists in the directory, or "".
func firstExistingFile(dir string, names []string) string {
	for _, name := range names {
		if s, err := os.Stat(filepath.Join(dir, name)); err == nil && !s.IsDir() {
			return name
		}
	}
	return ""
}

func readDirectoryCase(dir, object string) *testCase {
	c := &testCase{name: dir, dir: dir}
	if ask := firstExistingFile(dir, []string{"ask.yaml", "ask.yml", "ask.json"}); ask != "" {
		if c.readError = decodeFileStrict(filepath.Join(dir, ask), &c.fields); c.readError != nil {
			return c
		}
	}
	c.fields.Object = object
	for _, f := range []struct {
		names []string
		to    *any
	}{{observedFiles, &c.fields.Observed}, {itemsFiles, &c.fields.Items}} {
		if name := firstExistingFile(dir, f.names); name != "" {
			*f.to = name
		}
	}
	if name := firstExistingFile(dir, withFiles); name != "" {
		c.fields.With = name
	}
	if name := firstExistingFile(dir, expectFiles); name != "" {
		path := filepath.Join(dir, name)
		if c.readError = decodeFileStrict(path, &c.fields.Expect); c.readError == nil {
			c.readError = checkExpectedKeys(path, "", "in ask.yaml, without this file", c.fields.Expect)
		}
	}
	return c
}

// readFileCase returns the case in a file; nil where the file is none.
func readFileCase(path string) *testCase {
	var has map[string]any
	text, err := os.ReadFile(path)
	if err != nil {
		return &testCase{name: path, readError: err}
	}
	if yaml.Unmarshal(text, &has) != nil || has["object"] == nil && has["expect"] == nil && has["error"] == nil || has["kind"] != nil {
		return nil
	}
	c := &testCase{name: path, dir: filepath.Dir(path)}
	if c.readError = decodeFileStrict(path, &c.fields); c.readError == nil {
		c.readError = checkExpectedKeys(path, "expect.", "in place of expect, next to object", c.fields.Expect)
	}
	return c
}

// checkExpectedKeys returns an error where expect has a key that no answer has. prefix is the
// path of the keys in the file. where describes how to expect an error.
func checkExpectedKeys(path, prefix, where string, expect map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(expect)) {
		if key == "error" {
			return fmt.Errorf("%s: %serror is no answer: an error is expected by error %s", path, prefix, where)
		}
		if !slices.Contains(answerKeys, key) {
			return fmt.Errorf("%s: %s%s is no answer: it is one of %s", path, prefix, key, strings.Join(answerKeys, ", "))
		}
	}
	return nil
}

// answerKeys are the keys of script.AnswerRequest.
var answerKeys = []string{"aggregated", "components", "dependencies", "health", "replicas", "requirements", "retained", "revised", "status"}

// decodeFileStrict decodes a file and refuses unknown fields. Whole numbers are int64, as in objects of
// a cluster.
func decodeFileStrict(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	strict, err := strictjson.UnmarshalStrict(raw, into)
	if err = errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// resolveField returns the value of a field, or the content of the file that the field names.
func (c *testCase) resolveField(field string, v any) (any, error) {
	name, ok := v.(string)
	if !ok {
		return v, nil
	}
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", field, name, err)
	}
	var out any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", field, name, err)
	}
	return out, nil
}

func (c *testCase) resolveObject(field string, v any) (map[string]any, error) {
	v, err := c.resolveField(field, v)
	if v == nil || err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", field)
	}
	return m, nil
}

func (c *testCase) evaluationRequest() (a script.EvaluationRequest, err error) {
	a.Op, a.Replicas = c.fields.Op, c.fields.Replicas
	if a.Object, err = c.resolveObject("object", c.fields.Object); err != nil {
		return a, err
	}
	if a.Object == nil {
		return a, errors.New("it has no object")
	}
	if a.Observed, err = c.resolveObject("observed", c.fields.Observed); err != nil {
		return a, err
	}
	items, err := c.resolveField("items", c.fields.Items)
	if err != nil || items == nil {
		return a, err
	}
	list, ok := items.([]any)
	if !ok {
		return a, errors.New("items is no list")
	}
	a.Items = list
	return a, nil
}

func (c *testCase) evaluateCase(with string, read interpreterReader) (map[string]any, error) {
	if c.fields.With != "" {
		with = filepath.Join(c.dir, c.fields.With)
	}
	if with == "" {
		return nil, errNoInterpreter
	}
	interpreters, err := read(with)
	if err != nil {
		return nil, err
	}
	a, err := c.evaluationRequest()
	if err != nil {
		return nil, err
	}
	return EvaluateScripts(interpreters, a)
}

// findDifferences returns the differences between the answers and the expected ones, as text.
// with is the interpreter of a case that names none.
func (c *testCase) findDifferences(with string, read interpreterReader) []string {
	if c.readError != nil {
		return []string{c.readError.Error()}
	}
	if (c.fields.Expect == nil) == (c.fields.Error == "") {
		return []string{"it needs either what to expect, or an error"}
	}
	got, err := c.evaluateCase(with, read)
	switch {
	case err != nil && c.fields.Error != "" && strings.Contains(err.Error(), c.fields.Error):
		return nil
	case err != nil && c.fields.Error != "":
		return []string{"error", "- " + c.fields.Error, "+ " + err.Error()}
	case err != nil:
		return []string{err.Error()}
	case c.fields.Error != "":
		return []string{"error", "- " + c.fields.Error, "+ none, but " + compactJSON(got)}
	}
	got, _ = plainJSON(got).(map[string]any)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c.fields.Expect)) {
		compareAt(key, c.fields.Expect[key], got[key], &out)
	}
	return out
}

// plainJSON returns the value after a round trip through JSON.
func plainJSON(v any) (out any) {
	raw, err := json.Marshal(v)
	if err != nil || utiljson.Unmarshal(raw, &out) != nil {
		return v
	}
	return out
}

// compareAt appends three lines for each difference: its path, a line - for the expected value,
// and a line + for the answer.
func compareAt(path string, want, got any, out *[]string) {
	wantMap, isMap := want.(map[string]any)
	gotMap, gotIsMap := got.(map[string]any)
	if isMap && gotIsMap {
		keys := map[string]bool{}
		for k := range wantMap {
			keys[k] = true
		}
		for k := range gotMap {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			compareAt(path+"."+k, wantMap[k], gotMap[k], out)
		}
		return
	}
	wantList, isList := want.([]any)
	gotList, gotIsList := got.([]any)
	if isList && gotIsList && len(wantList) == len(gotList) {
		for i := range wantList {
			compareAt(fmt.Sprintf("%s[%d]", path, i), wantList[i], gotList[i], out)
		}
		return
	}
	if !reflect.DeepEqual(want, got) {
		*out = append(*out, path, "- "+compactJSON(want), "+ "+compactJSON(got))
	}
}

// compactJSON encodes a value; nil is "nothing".
func compactJSON(v any) string {
	if v == nil {
		return "nothing"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
