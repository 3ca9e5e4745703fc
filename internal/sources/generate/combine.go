package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Expansion is the entries of all generators.
type Expansion struct {
	Entries []Entry
	// Empty are the indexes of generators that give no entry, or one of whose parts gives none. Their Sources stay as they are.
	Empty []int
}

// Expand returns the entries of all generators. Problems make the whole result incomplete.
func Expand(spec *v1alpha1.SourceSetSpec, facts Facts) (Expansion, []Problem) {
	var out Expansion
	var found problems
	for i := range spec.Generators {
		entries, isEmpty := expandGenerator(&spec.Generators[i], i, facts, &found)
		if isEmpty {
			out.Empty = append(out.Empty, i)
			continue
		}
		if out.Entries = append(out.Entries, entries...); len(out.Entries) > v1alpha1.MaxGeneratedSources {
			found.addProblem(tooManyEntries("generators", len(out.Entries)))
			break
		}
	}
	if len(found) > 0 {
		return Expansion{}, found
	}
	return out, nil
}

func tooManyEntries(path string, n int) Problem {
	return Problem{
		Reason: atoll.ReasonTooManySources, Generator: path,
		Message: "it gives " + formatCount(n) + " entries, and a SourceSet makes at most " + formatCount(v1alpha1.MaxGeneratedSources) + " Sources; divide it into several",
	}
}

// expandGenerator returns the entries of one generator, and whether it is empty.
func expandGenerator(g *v1alpha1.SourceGenerator, index int, facts Facts, found *problems) ([]Entry, bool) {
	leaves := leavesOf(g, index)
	parts := make([][]Entry, 0, len(leaves))
	isEmpty := len(leaves) == 0
	for i := range leaves {
		entries := leaves[i].kind.expand(&leaves[i], facts, found)
		isEmpty = isEmpty || len(entries) == 0
		parts = append(parts, entries)
	}
	if isEmpty || len(*found) > 0 {
		return nil, isEmpty
	}
	combined, isCombined := findCombined(g)
	if !isCombined {
		return parts[0], false
	}
	path := "generators[" + formatCount(index) + "]." + combined.name
	entries := combined.combine(g, parts, path, found)
	return entries, len(entries) == 0 && len(*found) == 0
}

// combineMatrix combines each entry of the first part with each of the second.
func combineMatrix(_ *v1alpha1.SourceGenerator, parts [][]Entry, path string, found *problems) (out []Entry) {
	if len(parts) != 2 {
		found.addProblem(Problem{Reason: atoll.ReasonParametersInvalid, Generator: path, Message: "it needs two generators"})
		return nil
	}
	if n := len(parts[0]) * len(parts[1]); n > v1alpha1.MaxGeneratedSources {
		found.addProblem(tooManyEntries(path, n))
		return nil
	}
	if n := len(parts[1])*countParameters(parts[0]) + len(parts[0])*countParameters(parts[1]); n > MaxParameters {
		found.addProblem(Problem{Reason: atoll.ReasonParametersInvalid, Generator: path, Message: fmt.Sprintf("its combinations have %d parameters together, and at most %d are allowed", n, MaxParameters)})
		return nil
	}
	for _, a := range parts[0] {
		for _, b := range parts[1] {
			both := maps.Clone(a.Parameters)
			for key, value := range b.Parameters {
				if old, taken := both[key]; taken && !reflect.DeepEqual(old, value) {
					found.addProblem(b.newProblem(atoll.ReasonParametersInvalid, "both generators of the matrix give the parameter %s, with other values; rename it in one of them", key))
					return nil
				}
				both[key] = value
			}
			one := a
			if one.File == "" {
				one = b
			}
			one.Parameters, one.Path = both, path
			out = append(out, one)
		}
	}
	return out
}

// countParameters counts the parameters of all entries.
func countParameters(entries []Entry) (n int) {
	for i := range entries {
		n += len(entries[i].Parameters)
	}
	return n
}

// combineMerge adds the parameters of later parts to the entries of the first part with the same keys.
func combineMerge(g *v1alpha1.SourceGenerator, parts [][]Entry, path string, found *problems) []Entry {
	merge := g.Merge
	if len(parts) != len(merge.Generators) {
		found.addProblem(Problem{Reason: atoll.ReasonParametersInvalid, Generator: path, Message: "one of its generators states nothing"})
		return nil
	}
	indexes := make([]map[string]int, len(parts))
	for i, part := range parts {
		indexes[i] = indexByKeys(part, merge.Keys, found)
	}
	if len(*found) > 0 {
		return nil
	}
	out := make([]Entry, 0, len(parts[0]))
	for _, base := range parts[0] {
		key, _ := keyOfEntry(base, merge.Keys)
		one := base
		one.Parameters, one.Path = runtime.DeepCopyJSON(base.Parameters), path
		for i := 1; i < len(parts); i++ {
			if at, has := indexes[i][key]; has {
				overlayMap(one.Parameters, runtime.DeepCopyJSON(parts[i][at].Parameters))
			}
		}
		out = append(out, one)
	}
	return out
}

// indexByKeys returns the entries of a part by the values of their keys.
func indexByKeys(part []Entry, keys []string, found *problems) map[string]int {
	out := make(map[string]int, len(part))
	for i, e := range part {
		key, missing := keyOfEntry(e, keys)
		_, taken := out[key]
		switch {
		case missing != "":
			found.addProblem(e.newProblem(atoll.ReasonParametersInvalid, "an entry has no text, number or boolean in %s, which is a key of the merge", missing))
		case taken:
			found.addProblem(e.newProblem(atoll.ReasonParametersInvalid, "two entries of one generator have the same keys of the merge (%s)", strings.Join(keys, ", ")))
		}
		out[key] = i
	}
	return out
}

// keyOfEntry returns the values of keys in an entry, or the first key without a value.
func keyOfEntry(e Entry, keys []string) (key, missing string) {
	values := make([]any, 0, len(keys))
	for _, name := range slices.Sorted(slices.Values(keys)) {
		value, ok := findParameter(e.Parameters, name)
		if !ok {
			return "", name
		}
		values = append(values, value)
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return "", strings.Join(keys, ", ")
	}
	return string(raw), ""
}

// findParameter returns the scalar of a path such as cluster.name. A parameter with dots in its own name goes before.
func findParameter(parameters map[string]any, name string) (any, bool) {
	if v, ok := parameters[name]; ok {
		_, err := formatScalar(v)
		return v, err == nil
	}
	first, rest, deeper := strings.Cut(name, ".")
	inner, ok := parameters[first].(map[string]any)
	if !deeper || !ok {
		return nil, false
	}
	return findParameter(inner, rest)
}

// overlayMap puts the values of a map over those of another one. Maps are joined, and other values replaced.
func overlayMap(into, from map[string]any) {
	for key, value := range from {
		old, isMap := into[key].(map[string]any)
		inner, ok := value.(map[string]any)
		if isMap && ok {
			overlayMap(old, inner)
			continue
		}
		into[key] = value
	}
}
