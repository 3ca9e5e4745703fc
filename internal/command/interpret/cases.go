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

	"atoll.dev/atoll/internal/interpret/script"
)

// testCase is one question and what should be answered.
type testCase struct {
	name string
	dir  string // that files are named from
	bad  error  // the case itself cannot be read

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

// findCases in a directory and below, by name.
func findCases(dir string) (cases []*testCase, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if object := firstOf(path, objectFiles); object != "" {
				cases = append(cases, directoryCase(path, object))
				return fs.SkipDir
			}
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			if c := fileCase(path); c != nil {
				cases = append(cases, c)
			}
		}
		return nil
	})
	return cases, err
}

// firstOf the names that is there, or "".
func firstOf(dir string, names []string) string {
	for _, name := range names {
		if s, err := os.Stat(filepath.Join(dir, name)); err == nil && !s.IsDir() {
			return name
		}
	}
	return ""
}

func directoryCase(dir, object string) *testCase {
	c := &testCase{name: dir, dir: dir}
	if ask := firstOf(dir, []string{"ask.yaml", "ask.yml", "ask.json"}); ask != "" {
		if c.bad = readInto(filepath.Join(dir, ask), &c.fields); c.bad != nil {
			return c
		}
	}
	c.fields.Object = object
	for _, f := range []struct {
		names []string
		to    *any
	}{{observedFiles, &c.fields.Observed}, {itemsFiles, &c.fields.Items}} {
		if name := firstOf(dir, f.names); name != "" {
			*f.to = name
		}
	}
	if name := firstOf(dir, withFiles); name != "" {
		c.fields.With = name
	}
	if name := firstOf(dir, expectFiles); name != "" {
		path := filepath.Join(dir, name)
		if c.bad = readInto(path, &c.fields.Expect); c.bad == nil {
			c.bad = misplaced(path, "", "in ask.yaml, without this file", c.fields.Expect)
		}
	}
	return c
}

// fileCase is the case that a file is; nil if it is none.
func fileCase(path string) *testCase {
	var has map[string]any
	text, err := os.ReadFile(path)
	if err != nil {
		return &testCase{name: path, bad: err}
	}
	if yaml.Unmarshal(text, &has) != nil || has["object"] == nil && has["expect"] == nil && has["error"] == nil || has["kind"] != nil {
		return nil
	}
	c := &testCase{name: path, dir: filepath.Dir(path)}
	if c.bad = readInto(path, &c.fields); c.bad == nil {
		c.bad = misplaced(path, "expect.", "in place of expect, beside object", c.fields.Expect)
	}
	return c
}

// misplaced is an error where something is expected that no answer is called; the file's keys
// of that begin with prefix, and where says how an error is expected.
func misplaced(path, prefix, where string, expect map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(expect)) {
		if key == "error" {
			return fmt.Errorf("%s: %serror is no answer: an error is expected by error %s", path, prefix, where)
		}
		if !slices.Contains(answers, key) {
			return fmt.Errorf("%s: %s%s is no answer: it is one of %s", path, prefix, key, strings.Join(answers, ", "))
		}
	}
	return nil
}

// answers by their keys, as script's Outcome gives them.
var answers = []string{"aggregated", "components", "dependencies", "health", "replicas", "requirements", "retained", "revised", "status"}

// readInto a value; fields that it does not have are refused. Whole numbers are int64, as
// in objects of a cluster.
func readInto(path string, into any) error {
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

// value of a field that may name a file.
func (c *testCase) value(field string, v any) (any, error) {
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

func (c *testCase) objectOf(field string, v any) (map[string]any, error) {
	v, err := c.value(field, v)
	if v == nil || err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", field)
	}
	return m, nil
}

func (c *testCase) asking() (a script.Asking, err error) {
	a.Op, a.Replicas = c.fields.Op, c.fields.Replicas
	if a.Object, err = c.objectOf("object", c.fields.Object); err != nil {
		return a, err
	}
	if a.Object == nil {
		return a, errors.New("it has no object")
	}
	if a.Observed, err = c.objectOf("observed", c.fields.Observed); err != nil {
		return a, err
	}
	items, err := c.value("items", c.fields.Items)
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

func (c *testCase) answer(with string) (map[string]any, error) {
	if c.fields.With != "" {
		with = filepath.Join(c.dir, c.fields.With)
	}
	if with == "" {
		return nil, errNoInterpreter
	}
	interpreters, err := ReadInterpreters(with)
	if err != nil {
		return nil, err
	}
	a, err := c.asking()
	if err != nil {
		return nil, err
	}
	return Evaluate(interpreters, a)
}

// differences between what is answered and what should be, for people.
func (c *testCase) differences(with string) []string {
	if c.bad != nil {
		return []string{c.bad.Error()}
	}
	if (c.fields.Expect == nil) == (c.fields.Error == "") {
		return []string{"it needs either what to expect, or an error"}
	}
	got, err := c.answer(with)
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

// plainJSON value, as JSON gives it.
func plainJSON(v any) (out any) {
	raw, err := json.Marshal(v)
	if err != nil || utiljson.Unmarshal(raw, &out) != nil {
		return v
	}
	return out
}

// compareAt a path: each difference is a path, a line - for what is expected and a line +
// for what is answered.
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

// compactJSON of a value; what is not there is "nothing".
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
