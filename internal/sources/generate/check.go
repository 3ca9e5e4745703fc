package generate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// Bounds of the generators of a spec.
const (
	maxGenerators   = 8
	maxElements     = v1alpha1.MaxGeneratedSources
	maxElementBytes = 512 << 10
)

// Check returns the fields of a SourceSet that could not be honoured.
func Check(set *v1alpha1.SourceSet) (errs field.ErrorList) {
	at := field.NewPath("spec")
	for _, why := range validation.IsValidLabelValue(set.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), set.Name, "is the value of a label: "+why))
	}
	if n := len(set.Spec.Generators); n == 0 {
		errs = append(errs, field.Required(at.Child("generators"), "give one generator at least"))
	} else if n > maxGenerators {
		errs = append(errs, field.TooMany(at.Child("generators"), n, maxGenerators))
	}
	if countElementBytes(&set.Spec) > maxElementBytes {
		errs = append(errs, field.TooLong(at.Child("generators"), field.OmitValueType{}, maxElementBytes))
	}
	for i := range set.Spec.Generators {
		errs = append(errs, checkGenerator(&set.Spec.Generators[i], at.Child("generators").Index(i))...)
	}
	if set.Spec.ServiceAccountName != "" {
		for _, why := range validation.IsDNS1123Subdomain(set.Spec.ServiceAccountName) {
			errs = append(errs, field.Invalid(at.Child("serviceAccountName"), set.Spec.ServiceAccountName, why))
		}
	}
	return append(errs, checkTemplate(&set.Spec.Template, at.Child("template"))...)
}

// checkGenerator returns the fields of a generator that could not be honoured.
func checkGenerator(g *v1alpha1.SourceGenerator, at *field.Path) (errs field.ErrorList) {
	leaf := v1alpha1.SourceEntryGenerator{List: g.List, Clusters: g.Clusters, Directories: g.Directories, Files: g.Files}
	combined, isCombined := findCombined(g)
	if n := countStated(&leaf) + countCombined(g); n != 1 {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("states %d generators: give one of %s", n, strings.Join(GeneratorNames(), ", ")))}
	}
	if !isCombined {
		return checkLeaf(&leaf, at)
	}
	at = at.Child(combined.name)
	parts := combined.parts(g)
	for i := range parts {
		errs = append(errs, checkLeaf(&parts[i], at.Child("generators").Index(i))...)
	}
	if n := len(parts); n < 2 || g.Matrix != nil && n > 2 || n > 4 {
		errs = append(errs, field.Invalid(at.Child("generators"), field.OmitValueType{}, fmt.Sprintf("has %d generators: a matrix has two, and a merge up to 4", n)))
	}
	if g.Merge != nil && (len(g.Merge.Keys) == 0 || slices.Contains(g.Merge.Keys, "")) {
		errs = append(errs, field.Required(at.Child("keys"), "name the parameters that identify an entry"))
	}
	return errs
}

// GeneratorNames lists the names of all kinds of generators.
func GeneratorNames() (out []string) {
	for _, k := range leafKinds {
		out = append(out, k.name)
	}
	for _, k := range combinedKinds {
		out = append(out, k.name)
	}
	return out
}

func countStated(g *v1alpha1.SourceEntryGenerator) (n int) {
	for _, k := range leafKinds {
		if k.isStated(g) {
			n++
		}
	}
	return n
}

func countCombined(g *v1alpha1.SourceGenerator) (n int) {
	for _, k := range combinedKinds {
		if k.parts(g) != nil {
			n++
		}
	}
	return n
}

// checkLeaf returns the fields of a generator without others that could not be honoured.
func checkLeaf(g *v1alpha1.SourceEntryGenerator, at *field.Path) field.ErrorList {
	if n := countStated(g); n != 1 {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("states %d generators: give one that finds entries by itself", n))}
	}
	i := slices.IndexFunc(leafKinds, func(k leafKind) bool { return k.isStated(g) })
	return leafKinds[i].check(g, at.Child(leafKinds[i].name))
}

// countElementBytes returns the bytes of the elements of all lists. The SourceSet and its status share the space of one object.
func countElementBytes(spec *v1alpha1.SourceSetSpec) (n int) {
	for _, l := range ListLeaves(spec) {
		if l.List != nil {
			for _, e := range l.List.Elements {
				n += len(e.Raw)
			}
		}
	}
	return n
}

// checkList returns the elements that could not be honoured.
func checkList(g *v1alpha1.SourceEntryGenerator, at *field.Path) (errs field.ErrorList) {
	at = at.Child("elements")
	if n := len(g.List.Elements); n > maxElements {
		return field.ErrorList{field.TooMany(at, n, maxElements)}
	}
	for i, e := range g.List.Elements {
		if _, err := readElement(e); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// checkClusters returns why a selector could not be honoured.
func checkClusters(g *v1alpha1.SourceEntryGenerator, at *field.Path) field.ErrorList {
	if g.Clusters.LabelSelector == nil {
		return nil
	}
	if _, err := metav1.LabelSelectorAsSelector(g.Clusters.LabelSelector); err != nil {
		return field.ErrorList{field.Invalid(at.Child("labelSelector"), field.OmitValueType{}, err.Error())}
	}
	return nil
}

// checkTree returns the patterns that could not be honoured.
func checkTree(t *v1alpha1.TreeGenerator, at *field.Path) (errs field.ErrorList) {
	for _, why := range validation.IsDNS1123Subdomain(t.Repository) {
		errs = append(errs, field.Invalid(at.Child("repository"), t.Repository, why))
	}
	if len(t.Paths) == 0 {
		errs = append(errs, field.Required(at.Child("paths"), "give a pattern such as apps/*"))
	}
	for name, patterns := range map[string][]string{"paths": t.Paths, "exclude": t.Exclude} {
		for i, pattern := range patterns {
			if err := checkPattern(pattern); err != nil {
				errs = append(errs, field.Invalid(at.Child(name).Index(i), pattern, err.Error()))
			}
		}
	}
	return errs
}

// checkPattern returns why a pattern could match nothing of a repository.
func checkPattern(pattern string) error {
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	isMalformed := func(part string) bool { _, err := path.Match(part, ""); return err != nil } // a class may not span two parts
	switch {
	case slices.ContainsFunc(parts, isMalformed) || strings.Trim(pattern, "/") == "":
		return errors.New("is no pattern")
	case strings.HasPrefix(pattern, "/"):
		return errors.New("must be relative to the root of the repository")
	case slices.ContainsFunc(parts, func(part string) bool { return part == ".." || part == "." || part == "" }):
		return errors.New("may not contain .., a dot alone or an empty part")
	case strings.ContainsFunc(pattern, func(r rune) bool { return phrase.IsControl(r) || r == '\\' }):
		return errors.New(`may not contain control characters or \`)
	}
	return nil
}

// checkTemplate returns the texts and fields of a template that could not be honoured.
func checkTemplate(t *v1alpha1.SourceTemplate, at *field.Path) (errs field.ErrorList) {
	for _, labels := range []struct {
		name   string
		values map[string]string
	}{{"labels", t.Metadata.Labels}, {"annotations", t.Metadata.Annotations}} {
		for key := range labels.values {
			in := at.Child("metadata", labels.name).Key(key)
			for _, why := range validation.IsQualifiedName(strings.ToLower(key)) {
				errs = append(errs, field.Invalid(in, key, why))
			}
			if key == v1alpha1.LabelSourceSet || key == v1alpha1.AnnotationSourceSetUID {
				errs = append(errs, field.Forbidden(in, "the hub sets it"))
			}
		}
	}
	parsed, err := NewTemplate(t)
	if err != nil {
		return append(errs, invalidText(err, at))
	}
	if err := checkSpec(parsed.spec); err != nil { // its texts are not filled in yet
		errs = append(errs, field.Invalid(at.Child("spec"), field.OmitValueType{}, err.Error()))
	}
	return errs
}

// invalidText returns the error of a text in a template.
func invalidText(err error, at *field.Path) *field.Error {
	var text *TextError
	if errors.As(err, &text) {
		return field.Invalid(field.NewPath(at.String()+"."+text.Path), field.OmitValueType{}, text.Err.Error())
	}
	return field.Invalid(at, field.OmitValueType{}, err.Error())
}
