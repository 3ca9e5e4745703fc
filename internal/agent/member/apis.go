package member

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
)

// Resource is one kind that the member serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Listable: list and delete work on it.
	Listable bool
}

// GVK returns the kind of the resource.
func (r Resource) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// APIs is a snapshot of what the member serves. Read-only.
type APIs struct {
	byKind map[schema.GroupVersionKind]Resource
	// first is the version of each group kind that the member prefers.
	first map[schema.GroupKind]Resource
	// byVersion are the kinds of each version of a group.
	byVersion map[schema.GroupVersion][]Resource
	list      []string
	hash      string
	// silent versions of groups did not answer, and nothing was known of them.
	silent []schema.GroupVersion
}

// LookupKind returns the resource of a kind.
func (a *APIs) LookupKind(gvk schema.GroupVersionKind) (Resource, bool) {
	if a == nil {
		return Resource{}, false
	}
	r, ok := a.byKind[gvk]
	return r, ok
}

// PreferredResource returns the preferred resource of a kind in whatever version.
func (a *APIs) PreferredResource(gk schema.GroupKind) (Resource, bool) {
	if a == nil {
		return Resource{}, false
	}
	r, ok := a.first[gk]
	return r, ok
}

// IsGroupSilent reports whether the member serves the group but did not list its kinds, for
// example while an aggregated API server is down. A missing kind of such a group proves nothing.
func (a *APIs) IsGroupSilent(group string) bool {
	return a != nil && slices.ContainsFunc(a.silent, func(gv schema.GroupVersion) bool { return gv.Group == group })
}

// SilentGroups lists all groups that are Silent, each once.
func (a *APIs) SilentGroups() (out []string) {
	seen := map[string]bool{}
	for _, gv := range a.silent {
		if !seen[gv.Group] {
			seen[gv.Group] = true
			out = append(out, gv.Group)
		}
	}
	return out
}

// ListKinds gives "group/version/Kind" of all kinds, sorted. Read-only.
func (a *APIs) ListKinds() []string { return a.list }

// KindListHash returns a hash over List.
func (a *APIs) KindListHash() string { return a.hash }

// NamespacedResources lists the kinds whose objects live in namespaces and can be listed,
// each in one version.
func (a *APIs) NamespacedResources() []Resource {
	var out []Resource
	for _, r := range a.first {
		if r.Namespaced && r.Listable {
			out = append(out, r)
		}
	}
	return out
}

// ListableResources lists all kinds whose objects can be listed and deleted, each in one
// version.
func (a *APIs) ListableResources() []Resource {
	var out []Resource
	for _, r := range a.first {
		if r.Listable {
			out = append(out, r)
		}
	}
	return out
}

func newAPIs(resources []Resource, silent []schema.GroupVersion) *APIs {
	a := &APIs{byKind: map[schema.GroupVersionKind]Resource{}, first: map[schema.GroupKind]Resource{}, byVersion: map[schema.GroupVersion][]Resource{}, silent: silent}
	for _, r := range resources {
		gvk := r.GVK()
		if _, known := a.byKind[gvk]; known {
			continue
		}
		a.byKind[gvk] = r
		a.byVersion[gvk.GroupVersion()] = append(a.byVersion[gvk.GroupVersion()], r)
		if _, known := a.first[gvk.GroupKind()]; !known {
			a.first[gvk.GroupKind()] = r
		}
		a.list = append(a.list, r.Group+"/"+r.Version+"/"+r.Kind)
	}
	slices.Sort(a.list)
	a.hash = atoll.HashParts([]byte(strings.Join(a.list, "\n")))
	return a
}

// withResources returns a snapshot that also has the resources.
func (a *APIs) withResources(more ...Resource) *APIs {
	var silent []schema.GroupVersion
	if a != nil {
		silent = a.silent
	}
	return newAPIs(append(a.allResources(), more...), silent)
}

func (a *APIs) allResources() []Resource {
	if a == nil {
		return nil
	}
	out := make([]Resource, 0, len(a.byKind))
	// The preferred ones go first, so that they stay preferred.
	out = append(out, slices.Collect(maps.Values(a.first))...)
	return append(out, slices.Collect(maps.Values(a.byKind))...)
}

// resourcesOfVersion lists what is known of a group and version. Read-only.
func (a *APIs) resourcesOfVersion(group, version string) []Resource {
	if a == nil {
		return nil
	}
	return a.byVersion[schema.GroupVersion{Group: group, Version: version}]
}

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// maxServed bounds the kinds that a member may serve, each counted in each version, and the versions
// that do not answer. The hub takes 10,000 kinds of a member.
const maxServed = 20_000

// discoverAPIs requests what it serves. old fills in for groups that do
// not answer.
func discoverAPIs(ctx context.Context, client rest.Interface, old *APIs) (*APIs, error) {
	var resources []Resource
	var silent []schema.GroupVersion
	for _, path := range []string{"/api", "/apis"} {
		body, err := client.Get().AbsPath(path).SetHeader("Accept", acceptDiscovery).Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("list what the member's %s serves: %w", path, err)
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("the member's answer on %s: %w", path, err)
		}
		if list.Kind == "APIGroupDiscoveryList" {
			found, mute := fromAggregatedDiscovery(list, old)
			resources, silent = append(resources, found...), append(silent, mute...)
			continue
		}
		found, mute, err := discoverByGroup(ctx, client, path, body, old)
		if err != nil {
			return nil, err
		}
		resources, silent = append(resources, found...), append(silent, mute...)
	}
	if len(resources)+len(silent) > maxServed {
		return nil, fmt.Errorf("the member serves more than %d kinds, which is more than an agent keeps", maxServed)
	}
	return newAPIs(resources, silent), nil
}

func fromAggregatedDiscovery(list apidiscovery.APIGroupDiscoveryList, old *APIs) (out []Resource, silent []schema.GroupVersion) {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale && len(v.Resources) == 0 {
				known := old.resourcesOfVersion(g.Name, v.Version)
				if len(known) == 0 {
					silent = append(silent, schema.GroupVersion{Group: g.Name, Version: v.Version})
				}
				out = append(out, known...)
			}
			for _, r := range v.Resources {
				if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
					continue
				}
				out = append(out, Resource{
					GroupVersionResource: schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: r.Resource},
					Kind:                 r.ResponseKind.Kind,
					Namespaced:           r.Scope == apidiscovery.ScopeNamespace,
					Listable:             slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete"),
				})
			}
		}
	}
	return out, silent
}

// discoverByGroup reads the APIs of a member without aggregated discovery, group by group.
func discoverByGroup(ctx context.Context, client rest.Interface, path string, body []byte, old *APIs) (out []Resource, silent []schema.GroupVersion, err error) {
	var versions []schema.GroupVersion
	if path == "/api" {
		versions = []schema.GroupVersion{{Version: "v1"}}
	} else {
		var groups metav1.APIGroupList
		if err := json.Unmarshal(body, &groups); err != nil {
			return nil, nil, fmt.Errorf("the member's answer on %s: %w", path, err)
		}
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
		}
	}
	if len(versions) > maxServed {
		return nil, nil, fmt.Errorf("the member's %s names more than %d versions of groups, which is more than an agent keeps", path, maxServed)
	}
	for _, gv := range versions {
		list, err := readGroupVersion(ctx, client, gv)
		if err != nil {
			known := old.resourcesOfVersion(gv.Group, gv.Version)
			if len(known) == 0 {
				silent = append(silent, gv)
			}
			out = append(out, known...)
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			out = append(out, Resource{
				GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced,
				Listable: slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete"),
			})
		}
	}
	return out, silent, nil
}

// readGroupVersion reads the resources of one version of a group.
func readGroupVersion(ctx context.Context, client rest.Interface, gv schema.GroupVersion) (list metav1.APIResourceList, err error) {
	at := "/apis/" + gv.String()
	if gv.Group == "" {
		at = "/api/" + gv.Version
	}
	body, err := client.Get().AbsPath(at).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	return list, err
}
