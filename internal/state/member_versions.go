package state

import (
	"fmt"
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

// memberVersions are the versions that a set of clusters serves. It is an atoll.MemberVersions.
type memberVersions struct {
	served    *schedule.ServedAPIs
	converter ObjectConverter
	// definitions has, by kind, the API versions between which objects change their apiVersion alone.
	definitions map[schema.GroupKind][]string
}

// ListReplacements implements atoll.MemberVersions.
func (m *memberVersions) ListReplacements(apiVersion, kind string) (out []string) {
	if m.served.ServesKind(apiVersion, kind) {
		return nil
	}
	gk := schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
	versions, custom := m.definitions[gk]
	if !custom && m.converter != nil {
		versions = m.converter.ListVersions(gk)
	}
	if !slices.Contains(versions, apiVersion) {
		return nil
	}
	for _, v := range versions {
		if m.served.ServesKind(v, kind) {
			out = append(out, v)
		}
	}
	return out
}

// ConvertObject implements atoll.MemberVersions. The member refuses a custom object with a field that its definition
// does not have.
func (m *memberVersions) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	stated, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if _, custom := m.definitions[schema.FromAPIVersionAndKind(stated, kind).GroupKind()]; custom {
		out := runtime.DeepCopyJSON(object)
		out["apiVersion"] = apiVersion
		return out, nil
	}
	if m.converter == nil {
		return nil, fmt.Errorf("is not converted to by this hub")
	}
	return m.converter.ConvertObject(object, apiVersion)
}

// memberVersionTable has the memberVersions of each set of APIs. The lock of the ClusterViews guards it.
type memberVersionTable struct {
	byHash      map[string]*memberVersions
	definitions map[schema.GroupKind][]string // never changed, but replaced
	// epoch counts the changes of what clusters serve and the hub converts.
	epoch int64
	// lastHash has, by cluster name, the last hash whose set was known: a Cluster may name a set a moment before
	// the table has it.
	lastHash *sync.Map
}

func newMemberVersionTable() memberVersionTable {
	return memberVersionTable{byHash: map[string]*memberVersions{}, lastHash: &sync.Map{}}
}

// copyTable returns a table of the same sets. Both share the last known hashes, which follow from what agents report.
func (t *memberVersionTable) copyTable() memberVersionTable {
	out := *t
	out.byHash = maps.Clone(t.byHash)
	return out
}

// findVersions returns the versions of a cluster; nil: not known.
func (t *memberVersionTable) findVersions(c *v1alpha1.Cluster) atoll.MemberVersions {
	hash := c.Status.APIsHash
	known, ok := t.byHash[hash]
	last, noted := t.lastHash.Load(c.Name)
	switch {
	case ok && (!noted || last != hash):
		t.lastHash.Store(c.Name, hash)
	case !ok && noted && hash != "":
		known, ok = t.byHash[last.(string)]
	}
	if !ok {
		return nil
	}
	return known
}

func (t *memberVersionTable) addSet(hash string, served *schedule.ServedAPIs, converter ObjectConverter) {
	t.byHash[hash] = &memberVersions{served: served, converter: converter, definitions: t.definitions}
	t.epoch++
}

// setDefinition notes the versions of a kind; nil: the hub does not convert between them. It returns the hashes of the
// sets that serve only some of the versions. Their clusters may get objects in another version.
func (t *memberVersionTable) setDefinition(gk schema.GroupKind, versions []string) (affected map[string]bool) {
	was := t.definitions[gk]
	if slices.Equal(was, versions) {
		return nil
	}
	definitions := maps.Clone(t.definitions)
	if definitions == nil {
		definitions = map[schema.GroupKind][]string{}
	}
	if definitions[gk] = versions; len(versions) == 0 {
		delete(definitions, gk)
	}
	t.definitions = definitions
	t.epoch++
	all := slices.Concat(was, versions)
	for hash, m := range t.byHash {
		serves := func(v string) bool { return m.served.ServesKind(v, gk.Kind) }
		if !slices.ContainsFunc(all, serves) || !slices.ContainsFunc(all, func(v string) bool { return !serves(v) }) {
			continue
		}
		t.byHash[hash] = &memberVersions{served: m.served, converter: m.converter, definitions: definitions}
		if affected == nil {
			affected = map[string]bool{}
		}
		affected[hash] = true
	}
	return affected
}

// ListMemberVersions returns the versions of all sets of APIs, in the order of their hashes, and an epoch that grows
// with every change of them.
func (v *ClusterViews) ListMemberVersions() (all []atoll.MemberVersions, epoch int64) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, hash := range slices.Sorted(maps.Keys(v.versions.byHash)) {
		all = append(all, v.versions.byHash[hash])
	}
	return all, v.versions.epoch
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
