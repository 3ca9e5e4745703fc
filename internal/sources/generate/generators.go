package generate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// The keys of parameters that generators give.
const (
	pathKey    = "path"
	clusterKey = "cluster"
)

// Leaf is a generator that finds entries without other ones.
type Leaf struct {
	v1alpha1.SourceEntryGenerator
	// Path in the spec, such as generators[0].matrix.generators[1].files.
	Path string
	// Generator is the index of the generator in the spec that it is, or is a part of.
	Generator int
	kind      leafKind
}

// leafKind is one kind of generators that find entries without other ones.
type leafKind struct {
	// name of its field.
	name string
	// isStated reports whether a generator is of the kind.
	isStated func(g *v1alpha1.SourceEntryGenerator) bool
	// check returns what could not be honoured.
	check func(g *v1alpha1.SourceEntryGenerator, at *field.Path) field.ErrorList
	// reading returns what it lists of a Repository; nil: the kind reads none.
	reading func(g *v1alpha1.SourceEntryGenerator) *Reading
	// expand returns the parameters of its entries.
	expand func(l *Leaf, facts Facts, found *problems) []Entry
}

// Reading is what a generator lists of a Repository.
type Reading struct {
	Repository string
	Ref        v1alpha1.SourceRef
	Want       render.ListingWant
}

// leafKinds are all kinds of generators that find entries without other ones.
var leafKinds = []leafKind{
	{
		name: "list", check: checkList, expand: expandList,
		isStated: func(g *v1alpha1.SourceEntryGenerator) bool { return g.List != nil },
	},
	{
		name: "clusters", check: checkClusters, expand: expandClusters,
		isStated: func(g *v1alpha1.SourceEntryGenerator) bool { return g.Clusters != nil },
	},
	{
		name: "directories", expand: expandListing,
		isStated: func(g *v1alpha1.SourceEntryGenerator) bool { return g.Directories != nil },
		check: func(g *v1alpha1.SourceEntryGenerator, at *field.Path) field.ErrorList {
			return checkTree(g.Directories, at)
		},
		reading: func(g *v1alpha1.SourceEntryGenerator) *Reading { return newReading(g.Directories, false) },
	},
	{
		name: "files", expand: expandListing,
		isStated: func(g *v1alpha1.SourceEntryGenerator) bool { return g.Files != nil },
		check:    func(g *v1alpha1.SourceEntryGenerator, at *field.Path) field.ErrorList { return checkTree(g.Files, at) },
		reading:  func(g *v1alpha1.SourceEntryGenerator) *Reading { return newReading(g.Files, true) },
	},
}

// combinedKind is one kind of generators that combine entries of others.
type combinedKind struct {
	// name of its field.
	name string
	// parts returns the generators that it combines; nil where a generator is of another kind.
	parts func(g *v1alpha1.SourceGenerator) []v1alpha1.SourceEntryGenerator
	// combine returns the entries of the parts together.
	combine func(g *v1alpha1.SourceGenerator, parts [][]Entry, path string, found *problems) []Entry
}

// combinedKinds are all kinds of generators that combine entries of others.
var combinedKinds = []combinedKind{
	{
		name: "matrix", combine: combineMatrix,
		parts: func(g *v1alpha1.SourceGenerator) []v1alpha1.SourceEntryGenerator {
			if g.Matrix == nil {
				return nil
			}
			return g.Matrix.Generators
		},
	},
	{
		name: "merge", combine: combineMerge,
		parts: func(g *v1alpha1.SourceGenerator) []v1alpha1.SourceEntryGenerator {
			if g.Merge == nil {
				return nil
			}
			return g.Merge.Generators
		},
	},
}

// findCombined returns the kind of a generator that combines others; false for another one.
func findCombined(g *v1alpha1.SourceGenerator) (combinedKind, bool) {
	for _, k := range combinedKinds {
		if k.parts(g) != nil {
			return k, true
		}
	}
	return combinedKind{}, false
}

// ListLeaves lists the generators of a spec that find entries without other ones, in its order. One that states nothing is left out.
func ListLeaves(spec *v1alpha1.SourceSetSpec) (out []Leaf) {
	for i := range spec.Generators {
		out = append(out, leavesOf(&spec.Generators[i], i)...)
	}
	return out
}

// leavesOf lists the leaves of one generator.
func leavesOf(g *v1alpha1.SourceGenerator, index int) (out []Leaf) {
	at := fmt.Sprintf("generators[%d].", index)
	parts := []v1alpha1.SourceEntryGenerator{{List: g.List, Clusters: g.Clusters, Directories: g.Directories, Files: g.Files}}
	combined, isCombined := findCombined(g)
	if isCombined {
		parts = combined.parts(g)
	}
	for n, part := range parts {
		in := at
		if isCombined {
			in = fmt.Sprintf("%s%s.generators[%d].", at, combined.name, n)
		}
		if i := slices.IndexFunc(leafKinds, func(k leafKind) bool { return k.isStated(&part) }); i >= 0 {
			out = append(out, Leaf{SourceEntryGenerator: part, Path: in + leafKinds[i].name, Generator: index, kind: leafKinds[i]})
		}
	}
	return out
}

// Reading returns what the generator lists of a Repository; nil for none.
func (l *Leaf) Reading() *Reading {
	if l.kind.reading == nil {
		return nil
	}
	return l.kind.reading(&l.SourceEntryGenerator)
}

// UsesClusters reports whether the entries follow the Clusters of the namespace.
func (l *Leaf) UsesClusters() bool { return l.Clusters != nil }

func newReading(t *v1alpha1.TreeGenerator, files bool) *Reading {
	return &Reading{Repository: t.Repository, Ref: t.Ref, Want: render.ListingWant{Files: files, Paths: t.Paths, Exclude: t.Exclude}}
}

// expandList returns the elements of a list.
func expandList(l *Leaf, _ Facts, found *problems) (out []Entry) {
	for i, e := range l.List.Elements {
		parameters, err := readElement(e)
		if err != nil {
			found.addProblem(Problem{Reason: atoll.ReasonParametersInvalid, Generator: fmt.Sprintf("%s.elements[%d]", l.Path, i), Message: err.Error()})
			continue
		}
		out = append(out, l.newEntry(parameters))
	}
	return out
}

// readElement returns the parameters of an element of a list.
func readElement(e apiextensionsv1.JSON) (map[string]any, error) {
	if len(e.Raw) > MaxElementBytes {
		return nil, fmt.Errorf("the element has more than %d bytes", MaxElementBytes)
	}
	parameters, err := render.UnmarshalMap(e.Raw)
	if err != nil || parameters == nil {
		return nil, fmt.Errorf("the element is no map of parameters")
	}
	return parameters, nil
}

// expandClusters returns the Clusters that the selector matches, by name.
func expandClusters(l *Leaf, facts Facts, found *problems) (out []Entry) {
	selector := labels.Everything()
	if l.Clusters.LabelSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(l.Clusters.LabelSelector); err != nil {
			found.addProblem(Problem{Reason: atoll.ReasonParametersInvalid, Generator: l.Path + ".labelSelector", Message: err.Error()})
			return nil
		}
	}
	for _, c := range facts.Clusters {
		if !selector.Matches(labels.Set(c.Labels)) {
			continue
		}
		values := make(map[string]any, len(c.Labels))
		for key, value := range c.Labels {
			values[key] = value
		}
		if len(out) == v1alpha1.MaxGeneratedSources {
			found.addProblem(Problem{Reason: atoll.ReasonTooManySources, Generator: l.Path, Message: fmt.Sprintf("it matches more than %d Clusters, which is the most entries of a generator; narrow its labelSelector", v1alpha1.MaxGeneratedSources)})
			return nil
		}
		out = append(out, l.newEntry(map[string]any{clusterKey: map[string]any{"name": c.Name, "labels": values}}))
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.ClusterName(), b.ClusterName()) })
	return out
}

// expandListing returns the directories or the documents that were listed of a Repository.
func expandListing(l *Leaf, facts Facts, found *problems) (out []Entry) {
	listing := facts.Listings[l.Path]
	if listing == nil {
		return nil
	}
	for _, listed := range listing.Entries {
		e := l.newEntry(map[string]any{})
		e.File, e.Line = listed.Path, listed.Line
		if listed.Values != nil {
			parameters, err := render.UnmarshalMap(listed.Values)
			if err != nil {
				found.addProblem(e.newProblem(atoll.ReasonParametersInvalid, "it is no map of parameters"))
				continue
			}
			e.Parameters = parameters
		}
		if _, taken := e.Parameters[pathKey]; taken {
			found.addProblem(e.newProblem(atoll.ReasonParametersInvalid, "the key path is the one of the file itself; rename it"))
			continue
		}
		e.Parameters[pathKey] = newPathParameters(listed.Path, listed.Values != nil)
		out = append(out, e)
	}
	return out
}

// newPathParameters returns the parameters of the path of a directory, or of a file.
func newPathParameters(name string, isFile bool) map[string]any {
	out := map[string]any{}
	if isFile {
		file := path.Base(name)
		out["filename"], out["filenameNormalized"] = file, normalizeName(file)
		if name = path.Dir(name); name == "." {
			name = ""
		}
	}
	base := path.Base("/" + name)
	segments := []any{}
	if name != "" {
		for part := range strings.SplitSeq(name, "/") {
			segments = append(segments, part)
		}
	} else {
		base = ""
	}
	out["path"], out["basename"], out["basenameNormalized"], out["segments"] = name, base, normalizeName(base), segments
	return out
}

func (l *Leaf) newEntry(parameters map[string]any) Entry {
	return Entry{Parameters: parameters, Generator: l.Generator, Path: l.Path}
}
