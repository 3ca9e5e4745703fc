package state

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// ObjectConverter converts objects of built-in kinds between their API versions. Methods may run concurrently.
type ObjectConverter interface {
	// ListVersions returns the API versions between which it converts objects of the kind, best first.
	ListVersions(gk schema.GroupKind) []string
	// ConvertObject returns the object in another version, and shares no memory with it. The error names the
	// fields that the version cannot hold.
	ConvertObject(object map[string]any, apiVersion string) (map[string]any, error)
}

// hubVersions are the versions between which the hub converts. It is an atoll.HubVersions.
type hubVersions struct {
	converter ObjectConverter
	// definitions has, by kind, the API versions between which objects change their apiVersion alone.
	definitions map[schema.GroupKind][]string
}

// listVersions returns the API versions between which the hub converts objects of a kind, best first. Not to be
// changed. custom: objects change their apiVersion alone.
func (h *hubVersions) listVersions(gk schema.GroupKind) (versions []string, custom bool) {
	if versions, custom = h.definitions[gk]; !custom && h.converter != nil {
		versions = h.converter.ListVersions(gk)
	}
	return versions, custom
}

// ListOtherVersions implements atoll.HubVersions.
func (h *hubVersions) ListOtherVersions(apiVersion, kind string) []string {
	versions, _ := h.listVersions(schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind())
	i := slices.Index(versions, apiVersion)
	if i < 0 || len(versions) < 2 {
		return nil
	}
	return slices.Concat(versions[:i], versions[i+1:])
}

// ConvertObject implements atoll.HubVersions.
func (h *hubVersions) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	_, custom := h.listVersions(kindOfObject(object))
	return convertObject(h.converter, object, apiVersion, custom)
}

func kindOfObject(object map[string]any) schema.GroupKind {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
}

// convertObject returns the object in another version. The member refuses a custom object with a field that its
// definition does not have.
func convertObject(converter ObjectConverter, object map[string]any, apiVersion string, custom bool) (map[string]any, error) {
	switch {
	case custom:
		out := runtime.DeepCopyJSON(object)
		out["apiVersion"] = apiVersion
		return out, nil
	case converter == nil:
		return nil, errors.New("is not converted to by this hub")
	}
	return converter.ConvertObject(object, apiVersion)
}

// memberVersions are the versions that clusters serve in place of others. It is an atoll.MemberVersions. Clusters with equal
// replacements share one, whatever else they serve: a member that serves a kind more is no other cluster to rendering.
type memberVersions struct {
	converter ObjectConverter
	// replacements has the API versions in place of a kind that is not served, by the name that schedule.ServedAPIs has
	// for it, best first.
	replacements map[string][]string
	custom       map[schema.GroupKind]bool
}

// ListReplacements implements atoll.MemberVersions.
func (m *memberVersions) ListReplacements(apiVersion, kind string) []string {
	if len(m.replacements) == 0 {
		return nil
	}
	return m.replacements[schedule.FormatKindName(apiVersion, kind)]
}

// ConvertObject implements atoll.MemberVersions.
func (m *memberVersions) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	return convertObject(m.converter, object, apiVersion, m.custom[kindOfObject(object)])
}

// addKind adds the replacements of a kind in a cluster that serves these APIs.
func (m *memberVersions) addKind(gk schema.GroupKind, served *schedule.ServedAPIs, hub *hubVersions) {
	versions, custom := hub.listVersions(gk)
	var have []string
	for _, v := range versions {
		if served.ServesKind(v, gk.Kind) {
			have = append(have, v)
		}
	}
	if len(have) == 0 || len(have) == len(versions) {
		return
	}
	for _, v := range versions {
		if !slices.Contains(have, v) {
			m.replacements[schedule.FormatKindName(v, gk.Kind)] = have
		}
	}
	if custom {
		m.custom[gk] = true
	}
}

// copyWithout returns a copy without the replacements of a kind.
func (m *memberVersions) copyWithout(gk schema.GroupKind) *memberVersions {
	out := &memberVersions{converter: m.converter, replacements: maps.Clone(m.replacements), custom: maps.Clone(m.custom)}
	delete(out.custom, gk)
	maps.DeleteFunc(out.replacements, func(name string, _ []string) bool { return kindOfName(name) == gk })
	return out
}

// kindOfName returns the kind of a name as schedule.ServedAPIs has it.
func kindOfName(name string) schema.GroupKind {
	group, rest, _ := strings.Cut(name, "/")
	_, kind, _ := strings.Cut(rest, "/")
	return schema.GroupKind{Group: group, Kind: kind}
}

// memberVersionTable has the memberVersions of each set of APIs. The lock of the ClusterViews guards it.
type memberVersionTable struct {
	hub    *hubVersions // never changed, but replaced
	byHash map[string]*memberVersions
	// shared has each memberVersions once, by what is in it.
	shared map[string]*memberVersions
	// lastHash has, by cluster name, the last hash whose set was known: a Cluster may name a set a moment before
	// the table has it.
	lastHash *sync.Map
	// isCopy: Clusters are only supposed, and lastHash is of those that exist.
	isCopy bool
}

func newMemberVersionTable(converter ObjectConverter) memberVersionTable {
	return memberVersionTable{hub: &hubVersions{converter: converter}, byHash: map[string]*memberVersions{}, shared: map[string]*memberVersions{}, lastHash: &sync.Map{}}
}

// copyTable returns a table of the same sets, for Clusters that are only supposed. It gets no further set. Both share the last
// known hashes, which follow from what agents report.
func (t *memberVersionTable) copyTable() memberVersionTable {
	out := *t
	out.byHash, out.isCopy = maps.Clone(t.byHash), true
	return out
}

// findVersions returns the versions of a cluster; nil: not known.
func (t *memberVersionTable) findVersions(c *v1alpha1.Cluster) atoll.MemberVersions {
	hash := c.Status.APIsHash
	known, ok := t.byHash[hash]
	last, noted := t.lastHash.Load(c.Name)
	switch {
	case ok && !t.isCopy && (!noted || last != hash):
		t.lastHash.Store(c.Name, hash)
	case !ok && noted && hash != "":
		known, ok = t.byHash[last.(string)]
	}
	if !ok {
		return nil
	}
	return known
}

// addSet adds the set of these names, which served has.
func (t *memberVersionTable) addSet(hash string, names []string, served *schedule.ServedAPIs) {
	m, seen := t.hub.newMemberVersions(), map[schema.GroupKind]bool{}
	for _, name := range names {
		if gk := kindOfName(name); !seen[gk] {
			seen[gk] = true
			m.addKind(gk, served, t.hub)
		}
	}
	t.byHash[hash] = t.shareVersions(m)
}

func (h *hubVersions) newMemberVersions() *memberVersions {
	return &memberVersions{converter: h.converter, replacements: map[string][]string{}, custom: map[schema.GroupKind]bool{}}
}

// shareVersions returns the one memberVersions that equals the argument.
func (t *memberVersionTable) shareVersions(m *memberVersions) *memberVersions {
	var custom []string
	for gk := range m.custom {
		custom = append(custom, gk.String())
	}
	slices.Sort(custom)
	key := atoll.HashJSON([]any{m.replacements, custom})
	if known := t.shared[key]; known != nil {
		return known
	}
	t.shared[key] = m
	return m
}

// setDefinition notes the versions of a kind; nil: the hub does not convert between them. served has the sets by their
// hashes. It returns the hashes of those whose clusters may get objects in another version.
func (t *memberVersionTable) setDefinition(gk schema.GroupKind, versions []string, served map[string]*schedule.ServedAPIs) (affected map[string]bool) {
	was := t.hub.definitions[gk]
	if slices.Equal(was, versions) {
		return nil
	}
	definitions := maps.Clone(t.hub.definitions)
	if definitions == nil {
		definitions = map[schema.GroupKind][]string{}
	}
	if definitions[gk] = versions; len(versions) == 0 {
		delete(definitions, gk)
	}
	t.hub = &hubVersions{converter: t.hub.converter, definitions: definitions}
	affected = map[string]bool{}
	all := slices.Concat(was, versions)
	for hash, m := range t.byHash {
		serves := func(v string) bool { return served[hash].ServesKind(v, gk.Kind) }
		if !slices.ContainsFunc(all, serves) || !slices.ContainsFunc(all, func(v string) bool { return !serves(v) }) {
			continue
		}
		now := m.copyWithout(gk)
		now.addKind(gk, served[hash], t.hub)
		if shared := t.shareVersions(now); shared != m {
			t.byHash[hash], affected[hash] = shared, true
		}
	}
	return affected
}

// GetHubVersions returns the versions between which the hub converts.
func (v *ClusterViews) GetHubVersions() atoll.HubVersions {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.versions.hub
}

// forgetRemovedCluster drops what is remembered of a Cluster that is gone.
func (v *ClusterViews) forgetRemovedCluster(name string) {
	if _, exists := v.clusters.Get(name); !exists {
		v.versions.lastHash.Delete(name)
	}
}

// putDefinition notes the versions of a definition of the hub, and notifies of the Clusters that may get objects in
// another version.
func (v *ClusterViews) putDefinition(gk schema.GroupKind, versions []string) {
	var affected map[string]bool
	runLocked(&v.mu, func() { affected = v.versions.setDefinition(gk, versions, v.apisByHash) })
	if len(affected) > 0 {
		v.notifyOf(func(c *v1alpha1.Cluster) bool { return affected[c.Status.APIsHash] })
	}
}

func kindDefinedBy(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupKind {
	return schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
}

// listConvertibleVersions returns the API versions of a definition between which an object changes its apiVersion alone, best
// first. There are none where the definition states a webhook, which the hub does not call.
func listConvertibleVersions(crd *apiextensionsv1.CustomResourceDefinition) (out []string) {
	if c := crd.Spec.Conversion; c != nil && c.Strategy != apiextensionsv1.NoneConverter || crd.Annotations[atoll.AnnotationConversion] != "" {
		return nil
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served {
			out = append(out, crd.Spec.Group+"/"+v.Name)
		}
	}
	if len(out) < 2 {
		return nil
	}
	slices.SortFunc(out, func(a, b string) int {
		return version.CompareKubeAwareVersionStrings(strings.TrimPrefix(b, crd.Spec.Group+"/"), strings.TrimPrefix(a, crd.Spec.Group+"/"))
	})
	return out
}
