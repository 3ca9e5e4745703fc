package script

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// CompileFile compiles a file. It holds YAML documents, each a ResourceInterpreter, a
// ResourceInterpreterCustomization of Karmada or a ConfigMap with Argo CD's
// resource.customizations. Any other file is one health script of Argo CD, for every kind. name
// is the place in errors. The error joins all that does not compile.
func CompileFile(name string, text []byte) ([]*Customization, error) {
	docs, ok := splitDocuments(name, text)
	if !ok {
		r, err := newLuaRule(name, qHealth, string(text))
		if err != nil {
			return nil, err
		}
		return []*Customization{{name: name, rules: map[question]*rule{qHealth: r}}}, nil
	}
	compiled, _, err := readDocuments(name, docs)
	return compiled, err
}

// document is a YAML document that is parsed.
type document struct {
	value  any
	json   []byte
	broken error // the text is no YAML
	strict error // the text has a key twice; without it, json is set
}

func parseDocument(text []byte) (d document) {
	if d.json, d.strict = yaml.YAMLToJSONStrict(text); d.strict == nil {
		d.broken = json.UnmarshalCaseSensitivePreserveInts(d.json, &d.value)
	} else {
		d.broken = yaml.Unmarshal(text, &d.value)
	}
	return d
}

// splitDocuments returns the YAML documents of a file; false where the file is a script in Lua.
func splitDocuments(name string, text []byte) (docs []document, ok bool) {
	if strings.HasSuffix(name, ".lua") {
		return nil, false
	}
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, len(docs) > 0
		}
		if err != nil {
			return nil, false
		}
		d := parseDocument(doc)
		if d.broken != nil {
			// Broken YAML is an error where it looks like an object.
			if bytes.Contains(doc, []byte("apiVersion:")) && bytes.Contains(doc, []byte("kind:")) {
				return []document{d}, true
			}
			return nil, false
		}
		switch v := d.value.(type) {
		case nil:
		case map[string]any:
			if v["kind"] == nil && v["apiVersion"] == nil {
				return nil, false
			}
			docs = append(docs, d)
		default:
			return nil, false
		}
	}
}

// readDocuments reads the documents of a file. The error joins those of all documents.
func readDocuments(name string, docs []document) (compiled []*Customization, converted []*v1alpha1.ResourceInterpreter, err error) {
	var bad []error
	for i, d := range docs {
		place := name
		if len(docs) > 1 {
			place = fmt.Sprintf("%s, document %d", name, i+1)
		}
		c, r, err := readDocument(place, d)
		if err != nil {
			bad = append(bad, err)
		}
		compiled, converted = append(compiled, c...), append(converted, r...)
	}
	if len(bad) > 0 {
		return nil, nil, errors.Join(bad...)
	}
	return compiled, converted, nil
}

// readDocument returns the interpreters of a document, compiled and, in the same order, as ResourceInterpreters.
func readDocument(place string, d document) ([]*Customization, []*v1alpha1.ResourceInterpreter, error) {
	if d.broken != nil {
		return nil, nil, &Error{Script: place, Why: strings.ReplaceAll(d.broken.Error(), "\n", " ")}
	}
	u := &unstructured.Unstructured{}
	u.Object, _ = d.value.(map[string]any)
	gvk := u.GroupVersionKind()
	if u.GetName() != "" {
		place += ": " + u.GetName()
	}
	var c *Customization
	var r *v1alpha1.ResourceInterpreter
	var err error
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: Kind}:
		r = &v1alpha1.ResourceInterpreter{}
		if err = decodeStrict(place, d, r); err == nil {
			c, err = CompileSpec(place, r.Spec)
		}
	case customizationGVK.GroupKind():
		var in karmada.ResourceInterpreterCustomization
		if err = decodeStrict(place, d, &in); err == nil {
			c, err = compileKarmada(place, &in.Spec)
		}
		r = newInterpreterObject(in.Name, v1alpha1.InterpreterTarget{})
		r.Labels, r.Annotations, r.Spec = in.Labels, in.Annotations, specFromKarmada(&in.Spec)
	case schema.GroupKind{Kind: "ConfigMap"}:
		var in corev1.ConfigMap
		if err = decodeStrict(place, d, &in); err == nil {
			return parseArgoHealthScripts(place, in.Data)
		}
	default:
		err = &Error{Script: place, Why: fmt.Sprintf("a %s of %s is no interpreter: give a ResourceInterpreter, a ResourceInterpreterCustomization of Karmada, a ConfigMap of Argo CD, or a health.lua", gvk.Kind, u.GetAPIVersion())}
	}
	if err != nil {
		return nil, nil, err
	}
	if u.GetName() != "" {
		c.name = u.GetName()
	}
	return []*Customization{c}, []*v1alpha1.ResourceInterpreter{r}, nil
}

// decodeStrict refuses unknown fields.
func decodeStrict(place string, d document, into any) error {
	if d.strict != nil {
		return &Error{Script: place, Why: strings.ReplaceAll(d.strict.Error(), "\n", " ")}
	}
	strict, err := json.UnmarshalStrict(d.json, into)
	if err = errors.Join(append(strict, err)...); err != nil {
		return &Error{Script: place, Why: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return nil
}

// CompileSpec compiles a spec. The error joins all that is wrong, each an *Error with place and
// field, and with line and column where it is about a script.
func CompileSpec(place string, spec v1alpha1.ResourceInterpreterSpec) (*Customization, error) {
	return compileSpecWithFieldNames(place, spec, nil)
}

// compileSpecWithFieldNames compiles a spec. words maps its fields to the names that errors use.
func compileSpecWithFieldNames(place string, spec v1alpha1.ResourceInterpreterSpec, words map[string]string) (*Customization, error) {
	t, at := spec.Target, func(path string) string { return place + ": " + cmp.Or(words[path], path) }
	if err := checkTarget(at, t); err != nil {
		return nil, err
	}
	b := customizationBuilder{place: place, c: &Customization{name: place, target: t, rules: map[question]*rule{}}}
	for _, f := range ruleFieldsOf(&spec) {
		if *f.rule != nil {
			r, err := newRule(func(part string) string { return at("spec." + f.name + part) }, f.q, **f.rule)
			b.addRule(f.q, r, err)
		}
	}
	return b.finishCustomization()
}

// checkTarget checks the target of a spec. at returns the place of a field for errors.
func checkTarget(at func(path string) string, t v1alpha1.InterpreterTarget) error {
	switch {
	case len(t.Kinds) == 0 || slices.Contains(t.Kinds, ""):
		return &Error{Script: at("spec.target.kinds"), Why: "name at least one kind"}
	case t.APIVersion != "" && t.Group != "":
		return &Error{Script: at("spec.target"), Why: "give apiVersion or group, not both"}
	}
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return &Error{Script: at("spec.target.apiVersion"), Why: err.Error()}
	}
	if t.Group == hiddenKind.Group && gv.Group == hiddenKind.Group && slices.Contains(t.Kinds, hiddenKind.Kind) {
		return &Error{Script: at("spec.target.kinds"), Why: "scripts see no Secrets: people without the right to read Secrets see the answers of scripts"}
	}
	return nil
}

// customizationBuilder builds a customization and collects errors.
type customizationBuilder struct {
	place string
	c     *Customization
	bad   []error
}

func (b *customizationBuilder) addRule(q question, r *rule, err error) {
	if err != nil {
		b.bad = append(b.bad, err)
		return
	}
	b.c.rules[q] = r
}

func (b *customizationBuilder) finishCustomization() (*Customization, error) {
	if len(b.bad) > 0 {
		return nil, errors.Join(b.bad...)
	}
	if len(b.c.rules) == 0 {
		return nil, &Error{Script: b.place, Why: "it answers no question"}
	}
	return b.c, nil
}

// Keys of Argo CD's ConfigMap.
const (
	argoAllKey       = "resource.customizations"
	argoHealthPrefix = "resource.customizations.health."
)

// parseArgoHealthScripts reads health scripts by GROUP_KIND in keys, and by GROUP/KIND, with wildcards, in one
// key. It ignores other keys.
func parseArgoHealthScripts(place string, data map[string]string) (compiled []*Customization, converted []*v1alpha1.ResourceInterpreter, err error) {
	var bad []error
	add := func(key, group, kind, source string) {
		r, err := newLuaRule(place+": "+key, qHealth, source)
		if err != nil {
			bad = append(bad, err)
			return
		}
		out := newHealthInterpreter(v1alpha1.InterpreterTarget{Group: group, Kinds: []string{kind}}, source)
		compiled = append(compiled, &Customization{name: out.Name, target: out.Spec.Target, rules: map[question]*rule{qHealth: r}})
		converted = append(converted, out)
	}
	if err := forEachArgoScript(data, add); err != nil {
		return nil, nil, &Error{Script: place, Why: err.Error()}
	}
	if len(bad) > 0 {
		return nil, nil, errors.Join(bad...)
	}
	if len(compiled) == 0 {
		return nil, nil, &Error{Script: place, Why: "it has no health scripts under " + argoAllKey}
	}
	return compiled, converted, nil
}
