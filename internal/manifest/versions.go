package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/panicorigin"
	"atoll.dev/atoll/internal/schedule"
)

// versionChoice has the items whose API version a cluster does not serve. The cluster gets each in the first of
// the listed versions that holds the whole object.
type versionChoice struct {
	byItem map[atoll.ItemKey][]string
	// id names the choice in variants.
	id string
}

// noVersions is the choice of a cluster that gets every item in its own version.
var noVersions = &versionChoice{}

// maxVersionChoices bounds the choices that a Renderer keeps.
const maxVersionChoices = 64

// chooseVersions returns the choice of a content for clusters that serve these versions; nil: not known.
func chooseVersions(content *atoll.Content, v atoll.MemberVersions) *versionChoice {
	if v == nil {
		return noVersions
	}
	var out *versionChoice
	var names []string
	var defined map[string]bool // read once it counts: definitions are large
	for i := range content.Items {
		item := &content.Items[i]
		if item.VersionChoice == 0 {
			continue
		}
		replacements := v.ListReplacements(item.APIVersion, item.Key.Kind)
		if len(replacements) == 0 {
			continue
		}
		if out == nil {
			out, defined = &versionChoice{byItem: map[atoll.ItemKey][]string{}}, ListDefinedKinds(content)
		}
		if defined[schedule.FormatKindName(item.APIVersion, item.Key.Kind)] { // the member waits for the definition
			continue
		}
		out.byItem[item.Key] = replacements
		names = append(names, item.Key.String()+" "+strings.Join(replacements, ","))
	}
	if len(names) == 0 {
		return noVersions
	}
	out.id = atoll.HashJSON(names)
	return out
}

// versionsOf returns what chooseVersions returns, once for clusters that share their versions.
func (r *Renderer) versionsOf(v atoll.MemberVersions) *versionChoice {
	if v == nil {
		return noVersions
	}
	known, ok := r.versions[v]
	if !ok {
		if r.versions == nil || len(r.versions) >= maxVersionChoices {
			r.versions = map[atoll.MemberVersions]*versionChoice{}
		}
		known = chooseVersions(r.content, v)
		r.versions[v] = known
	}
	return known
}

// versionsFor returns the choice of a cluster; nil: there is no cluster.
func (r *Renderer) versionsFor(c *atoll.ClusterView) *versionChoice {
	if c == nil {
		return noVersions
	}
	return r.versionsOf(c.Versions)
}

// renderItem returns what renderForCluster returns, in the API version of the choice.
func (r *Renderer) renderItem(it *sharedItem, in RenderInput, versions *versionChoice) (rendered atoll.RenderedItem, notes []overrides.Provenance, failed *atoll.Rule) {
	rendered, notes, failed = it.renderForCluster(in)
	if it.hooked {
		rendered.SharedHash = cmp.Or(rendered.SharedHash, rendered.Hash)
	}
	if to := versions.byItem[it.item.Key]; len(to) > 0 && !rendered.Failed() {
		rendered, notes = r.replaceVersion(it, rendered, notes, in.Cluster.Versions, to)
	}
	return rendered, notes, failed
}

// nameVariant returns the variant of clusters with the choice, by the variant that follows from rules.
func (c *versionChoice) nameVariant(variant string) string {
	if c.id == "" {
		return variant
	}
	return atoll.HashJSON([]string{variant, "versions", c.id})[:16]
}

// replaceVersion returns the item in another API version, with the note of it. Clusters with equal items share
// one conversion. An item that no version holds has an Error.
func (r *Renderer) replaceVersion(it *sharedItem, item atoll.RenderedItem, notes []overrides.Provenance, v atoll.MemberVersions, to []string) (atoll.RenderedItem, []overrides.Provenance) {
	key := strings.Join(append([]string{item.Key.String(), item.Hash}, to...), " ")
	out, known := r.replaced[key]
	if !known {
		out = convertItem(it.item.Treatment, item, v, to)
		if size := sharedItemBytes + len(out.Object); size <= r.freeBytes {
			if r.replaced == nil {
				r.replaced = map[string]atoll.RenderedItem{}
			}
			r.replaced[key] = out
			r.freeBytes -= size
		}
	}
	if out.Failed() {
		return out, nil
	}
	return out, append(slices.Clip(notes), overrides.Provenance{Item: item.Key, Path: "/apiVersion", Policy: overrides.PolicyServedVersions, Value: out.APIVersion})
}

// convertItem returns the item in the first of the versions that holds it.
func convertItem(t *atoll.Treatment, item atoll.RenderedItem, v atoll.MemberVersions, to []string) (out atoll.RenderedItem) {
	var object map[string]any
	if err := utiljson.Unmarshal(item.Object, &object); err != nil {
		return failVersion(item, atoll.ReasonContentMalformed, fmt.Sprintf("content is not an object: %v", err))
	}
	var refused []string
	for _, version := range to {
		converted, err := convertSafely(v.ConvertObject, object, version)
		if err == nil {
			out, err = withVersion(t, item, object, converted, version)
		}
		if err == nil {
			return out
		}
		refused = append(refused, fmt.Sprintf("%s %v", version, err))
	}
	return failVersion(item, atoll.ReasonVersionLosesFields, fmt.Sprintf("the cluster does not serve %s, and what it serves cannot replace it: %s: "+
		"change these fields for the cluster by an override, or serve %s there", item.APIVersion, strings.Join(refused, "; "), item.APIVersion))
}

// withVersion returns the item with its object in another version.
func withVersion(t *atoll.Treatment, item atoll.RenderedItem, before, after map[string]any, version string) (out atoll.RenderedItem, err error) {
	if t.IsCreateOnly() {
		item.MemberOwned = listContentPaths(after)
	} else if moved := findMovedPath(item.MemberOwned, before, after); moved != "" {
		return out, fmt.Errorf("has another field at %s, which the member owns", moved)
	}
	if item.Object, err = encodeObject(after, len(item.Object)+len(item.Object)/4+64); err != nil {
		return out, err
	}
	item.APIVersion = version
	return updateHash(item), nil
}

// findMovedPath returns the first path at which the objects differ; empty: none.
func findMovedPath(pointers []string, before, after map[string]any) string {
	for _, pointer := range pointers {
		parts, err := jsonpointer.ParsePointer(pointer)
		if err != nil {
			return pointer
		}
		was, had := jsonpointer.Get(before, parts)
		is, has := jsonpointer.Get(after, parts)
		if had != has || !reflect.DeepEqual(was, is) {
			return pointer
		}
	}
	return ""
}

// updateHash returns the item with the hash of its present content. The error of an item with an Assessment is no part
// of the hash.
func updateHash(item atoll.RenderedItem) atoll.RenderedItem {
	stated := item.Error
	if item.Observe == "" && item.ServiceAccount == "" {
		item.Error = ""
	}
	item = withHash(item)
	item.Error = stated
	return item
}

// failVersion returns the item with an error in place of its content.
func failVersion(item atoll.RenderedItem, reason atoll.Reason, text string) atoll.RenderedItem {
	item.Object, item.MemberOwned, item.Observe, item.ServiceAccount, item.Assessment = nil, nil, "", "", nil
	item.Error, item.ErrorReason = text, reason
	return withHash(item)
}

// ListDefinedKinds returns the kinds that a content makes a cluster serve, as schedule.FormatKindName names them.
func ListDefinedKinds(content *atoll.Content) map[string]bool {
	out := map[string]bool{}
	for i := range content.Items {
		for _, kind := range listKindsOfDefinition(&content.Items[i]) {
			out[kind] = true
		}
	}
	return out
}

// listKindsOfDefinition lists the kinds that an item makes a cluster serve.
func listKindsOfDefinition(item *atoll.Item) (kinds []string) {
	if item.Key.Group != "apiextensions.k8s.io" || item.Key.Kind != "CustomResourceDefinition" {
		return nil
	}
	var def struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if utiljson.Unmarshal(item.Object, &def) != nil {
		return nil // the member's API reports what is wrong
	}
	for _, v := range def.Spec.Versions {
		kinds = append(kinds, schedule.FormatKindName(def.Spec.Group+"/"+v.Name, def.Spec.Names.Kind))
	}
	return kinds
}

// FindVersionLosses returns the losses of a content's templates, without rules, for each version to which the hub
// converts them; nil: it converts nothing. The result does not follow the versions that clusters serve, so that a change of
// the fleet costs nothing here.
func FindVersionLosses(content *atoll.Content, v atoll.HubVersions) schedule.VersionLosses {
	if v == nil {
		return nil
	}
	out := schedule.VersionLosses{}
	for i := range content.Items {
		item := &content.Items[i]
		if item.VersionChoice == 0 {
			continue
		}
		for _, version := range v.ListOtherVersions(item.APIVersion, item.Key.Kind) {
			out.AddLoss(schedule.FormatKindName(item.APIVersion, item.Key.Kind), version, findLoss(item, v, version))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ListFixedKinds returns the kinds of items that have their own version everywhere, though the hub converts the kind.
// An older hub read their templates last. Sorted.
func ListFixedKinds(content *atoll.Content, v atoll.HubVersions) []string {
	if v == nil {
		return nil
	}
	fixed := map[string]bool{}
	for i := range content.Items {
		item := &content.Items[i]
		if item.VersionChoice == 0 && len(v.ListOtherVersions(item.APIVersion, item.Key.Kind)) > 0 {
			fixed[schedule.FormatKindName(item.APIVersion, item.Key.Kind)] = true
		}
	}
	return slices.Sorted(maps.Keys(fixed))
}

// findLoss returns why a version cannot hold the item; empty: it can. It names fields, and no object.
func findLoss(item *atoll.Item, v atoll.HubVersions, version string) string {
	var object map[string]any
	if err := utiljson.Unmarshal(item.Object, &object); err != nil {
		return "" // rendering reports it
	}
	if _, err := convertSafely(v.ConvertObject, object, version); err != nil {
		return err.Error()
	}
	return ""
}

// convertSafely returns an error where a conversion panics: one object must not end the hub.
func convertSafely(convert func(map[string]any, string) (map[string]any, error), object map[string]any, version string) (out map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("cannot be computed by a defect of Atoll, which deserves a report: " + panicorigin.DescribePanic(p))
		}
	}()
	return convert(object, version)
}
