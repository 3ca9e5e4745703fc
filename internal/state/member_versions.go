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

// ListOtherVersions implements atoll.HubVersions.
func (h *hubVersions) ListOtherVersions(apiVersion, kind string) []string {
	gk := schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
	versions, custom := h.definitions[gk]
	if !custom && h.converter != nil {
		versions = h.converter.ListVersions(gk)
	}
	i := slices.Index(versions, apiVersion)
	if i < 0 || len(versions) < 2 {
		return nil
	}
	return slices.Concat(versions[:i], versions[i+1:])
}

// ConvertObject implements atoll.HubVersions. The member refuses a custom object with a field that its definition
// does not have.
func (h *hubVersions) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	stated, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if _, custom := h.definitions[schema.FromAPIVersionAndKind(stated, kind).GroupKind()]; custom {
		out := runtime.DeepCopyJSON(object)
		out["apiVersion"] = apiVersion
		return out, nil
	}
	if h.converter == nil {
		return nil, errors.New("is not converted to by this hub")
	}
	return h.converter.ConvertObject(object, apiVersion)
}

// memberVersions are the versions that a set of clusters serves. It is an atoll.MemberVersions.
type memberVersions struct {
	*hubVersions
	served *schedule.ServedAPIs
}

// ListReplacements implements atoll.MemberVersions.
func (m *memberVersions) ListReplacements(apiVersion, kind string) []string {
	if m.served.ServesKind(apiVersion, kind) {
		return nil
	}
	return slices.DeleteFunc(m.ListOtherVersions(apiVersion, kind), func(v string) bool { return !m.served.ServesKind(v, kind) })
}

// memberVersionTable has the memberVersions of each set of APIs. The lock of the ClusterViews guards it.
type memberVersionTable struct {
	hub    *hubVersions // never changed, but replaced
	byHash map[string]*memberVersions
	// lastHash has, by cluster name, the last hash whose set was known: a Cluster may name a set a moment before
	// the table has it.
	lastHash *sync.Map
	// isCopy: Clusters are only supposed, and lastHash is of those that exist.
	isCopy bool
}

func newMemberVersionTable(converter ObjectConverter) memberVersionTable {
	return memberVersionTable{hub: &hubVersions{converter: converter}, byHash: map[string]*memberVersions{}, lastHash: &sync.Map{}}
}

// copyTable returns a table of the same sets, for Clusters that are only supposed. Both share the last known hashes,
// which follow from what agents report.
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

func (t *memberVersionTable) addSet(hash string, served *schedule.ServedAPIs) {
	t.byHash[hash] = &memberVersions{hubVersions: t.hub, served: served}
}

// setDefinition notes the versions of a kind; nil: the hub does not convert between them. It returns the hashes of the
// sets that serve only some of the versions. Their clusters may get objects in another version.
func (t *memberVersionTable) setDefinition(gk schema.GroupKind, versions []string) (affected map[string]bool) {
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
	all := slices.Concat(was, versions)
	for hash, m := range t.byHash {
		serves := func(v string) bool { return m.served.ServesKind(v, gk.Kind) }
		if !slices.ContainsFunc(all, serves) || !slices.ContainsFunc(all, func(v string) bool { return !serves(v) }) {
			continue
		}
		t.byHash[hash] = &memberVersions{hubVersions: t.hub, served: m.served}
		if affected == nil {
			affected = map[string]bool{}
		}
		affected[hash] = true
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
	runLocked(&v.mu, func() { affected = v.versions.setDefinition(gk, versions) })
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
