package script

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// SourceTree is a directory with interpreters: Argo CD's library of health scripts, Karmada's tree of
// customizations, or any directory with such files.
type SourceTree struct {
	// Name of the directory in errors, which precedes paths; "." is left out.
	Name string
	// Location is the absolute path of the directory, with slashes; empty where it has none. Only
	// the directory resource_customizations in it has a meaning.
	Location string
	// Files in any order.
	Files []SourceFile
}

// SourceFile is a file of a tree.
type SourceFile struct {
	// Path below the directory, with slashes.
	Path string
	Text []byte
}

// IsInterpreterFile reports whether a file of a tree can hold interpreters: a health.lua, YAML or
// JSON. The path has slashes. Hidden files, and directories of tests and actions, hold none.
func IsInterpreterFile(name string) bool {
	dir, base := path.Split(name)
	if strings.HasPrefix(base, ".") || slices.ContainsFunc(strings.Split(strings.Trim(dir, "/"), "/"), IsSkippedDirectory) {
		return false
	}
	return base == healthScriptFile || slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(base))
}

// IsSkippedDirectory reports whether a directory of this name holds no interpreters: it is hidden, or
// has the tests or the actions of Argo CD and Karmada.
func IsSkippedDirectory(base string) bool {
	return strings.HasPrefix(base, ".") || base == "testdata" || base == "actions"
}

// ConvertedTree is the result of ConvertTree.
type ConvertedTree struct {
	// Interpreters in the order of the paths, and within a file in that of the file. Their names are
	// unique and valid.
	Interpreters []*v1alpha1.ResourceInterpreter
	// Invalid has an error for each interpreter that is not valid, by path.
	Invalid []error
	// Skipped has a sentence for each health script without a kind in its path.
	Skipped []string

	origins  []string // of Interpreters: paths
	compiled []*Customization
	byName   map[string]int
	core     *runtime.Scheme // kinds of the core group
}

// ConvertTree converts all interpreters of a tree. Files without an interpreter are ignored.
func ConvertTree(t SourceTree) *ConvertedTree {
	c := &ConvertedTree{byName: map[string]int{}, core: newCoreScheme()}
	prefix := strings.TrimSuffix(t.Name, "/") + "/"
	if t.Name == "." {
		prefix = ""
	}
	files := slices.SortedFunc(slices.Values(t.Files), func(a, b SourceFile) int { return strings.Compare(a.Path, b.Path) })
	for i := range files {
		f := &files[i]
		place := prefix + f.Path
		switch {
		case !IsInterpreterFile(f.Path):
		case path.Base(f.Path) == healthScriptFile:
			c.addHealthScript(place, t.Location, f)
		case slices.ContainsFunc(interpreterMarks, func(mark []byte) bool { return bytes.Contains(f.Text, mark) }):
			c.addDocuments(place, f.Text)
		}
	}
	return c
}

// CompiledInterpreters returns the interpreters, which answer as on a hub that has all of them.
func (c *ConvertedTree) CompiledInterpreters() Interpreters { return MergeByNameLastWins(c.compiled) }

// interpreterMarks are texts of which every YAML file with an interpreter has one.
var interpreterMarks = [][]byte{[]byte(Kind), []byte(argoAllKey)}

func (c *ConvertedTree) addHealthScript(place, location string, f *SourceFile) {
	target, why := c.healthTargetFromPath(location, f.Path)
	if why != "" {
		c.Skipped = append(c.Skipped, fmt.Sprintf("%s is skipped: %s", place, why))
		return
	}
	r, err := newLuaRule(place, qHealth, string(f.Text))
	if err != nil {
		c.Invalid = append(c.Invalid, err)
		return
	}
	c.addInterpreter(place, newHealthInterpreter(target, string(f.Text)), &Customization{target: target, rules: map[question]*rule{qHealth: r}})
}

// addDocuments adds the interpreters of a YAML file. It ignores other objects in it.
func (c *ConvertedTree) addDocuments(place string, text []byte) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 1; ; i++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		at := place
		if i > 1 {
			at = fmt.Sprintf("%s, document %d", place, i)
		}
		if err == nil {
			err = c.addDocument(at, doc)
		}
		if err != nil {
			c.Invalid = append(c.Invalid, err)
		}
	}
}

func (c *ConvertedTree) addDocument(place string, doc []byte) error {
	if !slices.ContainsFunc(interpreterMarks, func(mark []byte) bool { return bytes.Contains(doc, mark) }) {
		return nil
	}
	d := parseDocument(doc)
	if fields, ok := d.value.(map[string]any); d.broken == nil && (!ok || !isInterpreterObject(fields)) {
		return nil
	}
	compiled, converted, err := readDocument(place, d)
	if err != nil {
		return err
	}
	for i, r := range converted {
		c.addInterpreter(place, r, compiled[i])
	}
	return nil
}

// isInterpreterObject reports whether the object is an interpreter, or a ConfigMap that has some.
func isInterpreterObject(fields map[string]any) bool {
	u := unstructured.Unstructured{Object: fields}
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: Kind}, customizationGVK.GroupKind():
		return true
	case schema.GroupKind{Kind: "ConfigMap"}:
		data, _, err := unstructured.NestedStringMap(fields, "data")
		found := false
		if err == nil {
			err = forEachArgoScript(data, func(_, _, _, _ string) { found = true })
		}
		return found || err != nil // readDocument returns the error
	}
	return false
}

// addInterpreter adds an interpreter under a valid name of its own. An equal one is added once.
func (c *ConvertedTree) addInterpreter(place string, r *v1alpha1.ResourceInterpreter, compiled *Customization) {
	target := r.Spec.Target
	invalid := func(why string) { c.Invalid = append(c.Invalid, &Error{Script: place, Why: why}) }
	if err := checkTarget(func(field string) string { return place + ": " + field }, target); err != nil {
		c.Invalid = append(c.Invalid, err)
		return
	}
	if bad := validation.IsDNS1123Subdomain(r.Name); len(bad) > 0 {
		invalid(fmt.Sprintf("metadata.name is %q: %s", r.Name, bad[0]))
		return
	}
	if i, taken := c.byName[r.Name]; taken && !reflect.DeepEqual(c.Interpreters[i].Spec.Target, target) {
		r.Name = nameWithHash(r.Name, target)
	}
	if i, taken := c.byName[r.Name]; taken {
		if !reflect.DeepEqual(c.Interpreters[i].Spec, r.Spec) {
			invalid(fmt.Sprintf("it has the name %s and answers for %s, as %s does: keep one of them", r.Name, describeTarget(target), c.origins[i]))
		}
		return
	}
	compiled.name = r.Name
	c.byName[r.Name] = len(c.Interpreters)
	c.Interpreters = append(c.Interpreters, r)
	c.origins = append(c.origins, place)
	c.compiled = append(c.compiled, compiled)
}

// nameWithHash returns a valid name that differs for each target.
func nameWithHash(name string, t v1alpha1.InterpreterTarget) string {
	hash := atoll.HashJSON(t)[:8]
	name = name[:min(len(name), validation.DNS1123SubdomainMaxLength-len(hash)-1)]
	return strings.TrimRight(name, ".-") + "-" + hash
}

func describeTarget(t v1alpha1.InterpreterTarget) string {
	kinds := strings.Join(t.Kinds, ", ")
	switch {
	case t.APIVersion != "":
		return kinds + " of " + t.APIVersion
	case t.Group != "":
		return kinds + " of " + t.Group
	}
	return kinds + " of the core group"
}

// Argo CD's names of files and directories.
const (
	healthScriptFile = "health.lua"
	argoDirectory    = "resource_customizations"
)

// plainGroups are the groups of Kubernetes without a dot. Groups of custom kinds have a dot.
var plainGroups = []string{"apps", "autoscaling", "batch", "extensions", "policy"}

// healthTargetFromPath returns the target of a health script in Argo CD's layout: GROUP/KIND/health.lua,
// or KIND/health.lua for the core group. In both, "_" stands for any characters. The path has no
// version: the target covers all versions. Without a target, why is the reason.
func (c *ConvertedTree) healthTargetFromPath(location, file string) (t v1alpha1.InterpreterTarget, why string) {
	const layout = "Argo CD's layout is GROUP/KIND/health.lua, or KIND/health.lua for the core group"
	names := pathInLibrary(location, file)
	switch n := len(names); {
	case n == 0:
		return t, "its path names no kind: " + layout
	case n > 2:
		return t, "it lies too deep: " + layout
	case n == 1 && !c.core.Recognizes(corev1.SchemeGroupVersion.WithKind(names[0])):
		return t, fmt.Sprintf("%s is no kind of the core group, and its group would be the directory above: %s", names[0], layout)
	case n == 1:
		return v1alpha1.InterpreterTarget{Kinds: names}, ""
	}
	group, kind := strings.ReplaceAll(names[0], "_", "*"), strings.ReplaceAll(names[1], "_", "*")
	switch {
	case !isGroupPattern(group):
		return t, fmt.Sprintf("%q is no group: %s", names[0], layout)
	case !isKindPattern(kind):
		return t, fmt.Sprintf("%q is no kind: %s", names[1], layout)
	}
	return v1alpha1.InterpreterTarget{Group: group, Kinds: []string{kind}}, ""
}

// pathInLibrary returns the directories of a file below the directory resource_customizations, or
// else below the tree itself.
func pathInLibrary(location, file string) []string {
	dirs := splitPath(path.Dir(file))
	all := slices.Concat(splitPath(location), dirs)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == argoDirectory {
			return all[i+1:]
		}
	}
	return dirs
}

// isGroupPattern reports whether the text is a group in which "*" stands for any characters.
func isGroupPattern(group string) bool {
	plain := strings.ReplaceAll(group, "*", "x")
	return len(validation.IsDNS1123Subdomain(plain)) == 0 && (strings.ContainsAny(group, ".*") || slices.Contains(plainGroups, group))
}

// isKindPattern reports whether the text is a kind in which "*" stands for any characters.
func isKindPattern(kind string) bool {
	return len(validation.IsDNS1035Label(strings.ToLower(strings.ReplaceAll(kind, "*", "x")))) == 0
}

func splitPath(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(name string) bool { return name == "" || name == "." })
}

// newCoreScheme returns the kinds of the core group.
func newCoreScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	return s
}
