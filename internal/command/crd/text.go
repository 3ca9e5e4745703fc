package crd

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/phrase"
)

// maxPathsShown of a difference are named.
const maxPathsShown = 5

// isChange reports whether the hub would have another definition.
func (p *pulled) isChange() bool {
	return p.err == nil && (p.live == nil || len(changedPaths(p.live, p.after)) > 0)
}

// formatChange returns the line about a definition that the hub accepts.
func (p *pulled) formatChange() string {
	versions := formatVersions(versionsOf(p.after))
	switch {
	case p.live == nil:
		return fmt.Sprintf("%s created: %s", p.definition.fullName(), versions)
	case !p.isChange():
		return fmt.Sprintf("%s unchanged: %s", p.definition.fullName(), versions)
	}
	added, removed := compareVersions(versionsOf(p.live), versionsOf(p.after))
	var changes []string
	if len(added) > 0 {
		changes = append(changes, phrase.EscapeLine(strings.Join(added, ", "))+" added")
	}
	if len(removed) > 0 {
		changes = append(changes, phrase.EscapeLine(strings.Join(removed, ", "))+" removed")
	}
	if len(changes) == 0 {
		changes = []string{"its versions stay " + versions + ", and it differs at " + joinPaths(changedPaths(p.live, p.after))}
	}
	return fmt.Sprintf("%s changed: %s", p.definition.fullName(), strings.Join(changes, ", "))
}

// versionsOf returns the versions of a definition. Those of a malformed one are none.
func versionsOf(o *unstructured.Unstructured) []definitionVersion {
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	var out []definitionVersion
	for _, item := range list {
		if v, ok := item.(map[string]any); ok {
			name, _ := v["name"].(string)
			served, _ := v["served"].(bool)
			storage, _ := v["storage"].(bool)
			out = append(out, definitionVersion{name, served, storage})
		}
	}
	return out
}

// formatVersions returns text such as "v1 (stored), v1beta1, v1alpha1 (not served)".
func formatVersions(versions []definitionVersion) string {
	var out []string
	for _, v := range versions {
		text := phrase.EscapeLine(v.Name)
		if v.Storage && len(versions) > 1 {
			text += " (stored)"
		}
		if !v.Served {
			text += " (not served)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// compareVersions returns the names that only one of the lists has.
func compareVersions(before, after []definitionVersion) (added, removed []string) {
	return versionsOnlyIn(after, before), versionsOnlyIn(before, after)
}

func versionsOnlyIn(list, other []definitionVersion) (out []string) {
	for _, v := range list {
		if !slices.ContainsFunc(other, func(o definitionVersion) bool { return o.Name == v.Name }) {
			out = append(out, v.Name)
		}
	}
	return out
}

// changedPaths returns where two definitions differ besides status and server fields, as JSON Pointers. A
// field of spec counts as a whole: people know spec.versions, not the 40 fields of a schema.
func changedPaths(before, after *unstructured.Unstructured) (out []string) {
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, d := range objectdiff.Compare(objectdiff.WithoutServerFields(a), objectdiff.WithoutServerFields(b)) {
		parts := strings.SplitN(strings.TrimPrefix(d.Path, "/"), "/", 4)
		depth := 2
		if parts[0] == "metadata" {
			depth = 3
		}
		out = append(out, "/"+strings.Join(parts[:min(depth, len(parts))], "/"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// joinPaths lists the first paths, and how many more there are.
func joinPaths(paths []string) string {
	return phrase.EscapeLine(phrase.JoinFirst(paths, maxPathsShown, len(paths)))
}

// namePathManagers lists paths with the managers of the fields in the object.
func namePathManagers(paths []string, of *unstructured.Unstructured) string {
	managers := objectdiff.ManagersOf(of)
	named := make([]string, len(paths))
	for i, path := range paths {
		named[i] = path
		if by := managers.OfField(path); len(by) > 0 {
			named[i] += " (" + strings.Join(by, ", ") + ")"
		}
	}
	return joinPaths(named)
}
