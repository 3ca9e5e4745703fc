package generate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// Made is a Source that a SourceSet makes.
type Made struct {
	Name string
	// Object is what is applied: the fields that the template states, in the types of JSON.
	Object map[string]any
	// Hash of the object.
	Hash string
	// Generator is the index of its generator, and Cluster that of its entry; empty for none.
	Generator int
	Cluster   string
	// Path of its generator, and File and Line of its entry, where it comes from a file.
	Path string
	File string
	Line int
}

// Result is the Sources of a SourceSet.
type Result struct {
	// Made by name.
	Made []Made
	// Empty are the indexes of generators that find nothing. Their Sources stay as they are.
	Empty []int
}

// Generate returns the Sources of a SourceSet. Problems make the whole result incomplete.
func Generate(set *v1alpha1.SourceSet, facts Facts) (Result, []Problem) {
	t, err := NewTemplate(&set.Spec.Template)
	if err != nil {
		return Result{}, []Problem{{Reason: atoll.ReasonTemplateFailed, Message: describeTextError(err)}}
	}
	expansion, found := Expand(&set.Spec, facts)
	if len(found) > 0 {
		return Result{}, found
	}
	made, left := make([]Made, 0, len(expansion.Entries)), MaxMadeBytes
	for _, e := range expansion.Entries {
		one, problem := makeSource(set, t, e)
		if problem != nil {
			if found = append(found, *problem); len(found) >= MaxProblems {
				break
			}
			continue
		}
		if left -= len(encodeObject(one.Object)); left < 0 {
			return Result{}, []Problem{e.newProblem(atoll.ReasonTooManySources, "the Sources have more than %d bytes together; divide the SourceSet into several", MaxMadeBytes)}
		}
		made = append(made, one)
	}
	slices.SortStableFunc(made, func(a, b Made) int { return cmp.Compare(a.Name, b.Name) })
	found = append(found, findDuplicates(made)...)
	if len(found) > 0 {
		return Result{}, found[:min(len(found), MaxProblems)]
	}
	return Result{Made: made, Empty: expansion.Empty}, nil
}

// describeTextError returns an error of a template for people.
func describeTextError(err error) string {
	var at *TextError
	if errors.As(err, &at) {
		return "spec." + at.Error()
	}
	return err.Error()
}

// findDuplicates returns the names that two entries give.
func findDuplicates(made []Made) (found []Problem) {
	for i := 1; i < len(made); i++ {
		a, b := made[i-1], made[i]
		if a.Name != b.Name {
			continue
		}
		found = append(found, Problem{
			Reason: atoll.ReasonParametersInvalid, Generator: b.Path, File: b.File, Line: b.Line,
			Message: fmt.Sprintf("the entry gives the name %s, as another entry of %s does; use more parameters in spec.template.metadata.name", b.Name, a.Path),
		})
	}
	return found
}

// makeSource returns the Source of an entry.
func makeSource(set *v1alpha1.SourceSet, t *Template, e Entry) (Made, *Problem) {
	fail := func(format string, args ...any) (Made, *Problem) {
		p := e.newProblem(atoll.ReasonTemplateFailed, format, args...)
		return Made{}, &p
	}
	text, err := t.fillIn(e.Parameters)
	if err != nil {
		return fail("%s", describeTextError(err))
	}
	if problems := append(validation.IsDNS1123Subdomain(text.name), validation.IsValidLabelValue(text.name)...); len(problems) > 0 {
		return fail("spec.template.metadata.name gives %q, which is no name of a Source: %s", text.name, problems[0])
	}
	if err := checkTexts(text.labels); err != nil {
		return fail("spec.template.metadata.labels: %v", err)
	}
	if err := checkSpec(text.spec); err != nil {
		return fail("spec.template.spec gives no spec of a Source: %v", err)
	}
	text.labels[v1alpha1.LabelSourceSet] = set.Name
	object := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Source", "spec": text.spec,
		"metadata": newMetadata(text, set.Namespace),
	}
	raw := encodeObject(object)
	if len(raw) > MaxSourceBytes {
		return fail("the Source %s has more than %d bytes", text.name, MaxSourceBytes)
	}
	sum := sha256.Sum256(raw)
	return Made{
		Name: text.name, Object: object, Hash: hex.EncodeToString(sum[:8]), Generator: e.Generator, Cluster: e.ClusterName(),
		Path: e.Path, File: e.File, Line: e.Line,
	}, nil
}

// newMetadata returns the metadata of a Source. Texts are any values, as in JSON.
func newMetadata(text filled, namespace string) map[string]any {
	out := map[string]any{"name": text.name, "labels": asValues(text.labels)}
	if namespace != "" {
		out["namespace"] = namespace
	}
	if len(text.annotations) > 0 {
		out["annotations"] = asValues(text.annotations)
	}
	return out
}

func asValues(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for key, text := range texts {
		out[key] = text
	}
	return out
}

// AccountOfSources returns the ServiceAccount that a template states for its Sources, or the default one. isTemplate is true where
// parameters choose it.
func AccountOfSources(t *v1alpha1.SourceTemplate) (name string, isTemplate bool) {
	spec, err := render.UnmarshalMap(t.Spec.Raw)
	if err != nil {
		return v1alpha1.DefaultSourceAccount, false
	}
	name, _ = spec["serviceAccountName"].(string)
	return cmp.Or(name, v1alpha1.DefaultSourceAccount), strings.Contains(name, "{{")
}

// checkTexts returns why values are none of labels.
func checkTexts(values map[string]string) error {
	for key, value := range values {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return fmt.Errorf("%s: %q is no value of a label: %s", key, value, problems[0])
		}
	}
	return nil
}

// checkSpec returns why fields are no spec of a Source. The API server checks the rest.
func checkSpec(fields map[string]any) error {
	var spec v1alpha1.SourceSpec
	if err := yaml.UnmarshalStrict(encodeObject(fields), &spec); err != nil {
		return err
	}
	if spec.Repository == "" {
		return errors.New("repository is missing")
	}
	return nil
}

// DigestSettings returns a digest of what of a SourceSet decides which Sources there are, without the elements of lists: an edit of
// these may remove a Source, and no other edit does.
func DigestSettings(spec *v1alpha1.SourceSetSpec) string {
	of := v1alpha1.SourceSetSpec{Generators: spec.DeepCopy().Generators, Template: spec.Template}
	forget := func(l *v1alpha1.ListGenerator) {
		if l != nil {
			l.Elements = nil
		}
	}
	for i := range of.Generators {
		g := &of.Generators[i]
		forget(g.List)
		if combined, is := findCombined(g); is {
			for _, part := range combined.parts(g) {
				forget(part.List)
			}
		}
	}
	raw, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("generate: a spec cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
