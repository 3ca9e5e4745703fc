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

// GVK of the resource.
func (r Resource) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// APIs is a snapshot of what the member serves. Read-only.
type APIs struct {
	byKind map[schema.GroupVersionKind]Resource
	// first is the version of each group kind that the member prefers.
	first map[schema.GroupKind]Resource
	list  []string
	hash  string
	// silent versions of groups did not answer, and nothing was known of them.
	silent []schema.GroupVersion
}

// Lookup the resource of a kind.
func (a *APIs) Lookup(gvk schema.GroupVersionKind) (Resource, bool) {
	if a == nil {
		return Resource{}, false
	}
	r, ok := a.byKind[gvk]
	return r, ok
}

// Preferred resource of a kind in whatever version.
func (a *APIs) Preferred(gk schema.GroupKind) (Resource, bool) {
	if a == nil {
		return Resource{}, false
	}
	r, ok := a.first[gk]
	return r, ok
}

// Silent tells whether the member serves something in the group and has not said
// what, as while an aggregated API server is down: that a kind of it is not here then
// means nothing.
func (a *APIs) Silent(group string) bool {
	return a != nil && slices.ContainsFunc(a.silent, func(gv schema.GroupVersion) bool { return gv.Group == group })
}

// SilentGroups lists all groups that are Silent, each once.
func (a *APIs) SilentGroups() (out []string) {
	for _, gv := range a.silent {
		if !slices.Contains(out, gv.Group) {
			out = append(out, gv.Group)
		}
	}
	return out
}

// List gives "group/version/Kind" of all kinds, sorted. Read-only.
func (a *APIs) List() []string { return a.list }

// Hash over List.
func (a *APIs) Hash() string { return a.hash }

// Namespaced lists the kinds whose objects live in namespaces and can be listed,
// each in one version.
func (a *APIs) Namespaced() []Resource {
	var out []Resource
	for _, r := range a.first {
		if r.Namespaced && r.Listable {
			out = append(out, r)
		}
	}
	return out
}

// Listable lists all kinds whose objects can be listed and deleted, each in one
// version.
func (a *APIs) Listable() []Resource {
	var out []Resource
	for _, r := range a.first {
		if r.Listable {
			out = append(out, r)
		}
	}
	return out
}

func newAPIs(resources []Resource, silent []schema.GroupVersion) *APIs {
	a := &APIs{byKind: map[schema.GroupVersionKind]Resource{}, first: map[schema.GroupKind]Resource{}, silent: silent}
	for _, r := range resources {
		gvk := r.GVK()
		if _, known := a.byKind[gvk]; known {
			continue
		}
		a.byKind[gvk] = r
		if _, known := a.first[gvk.GroupKind()]; !known {
			a.first[gvk.GroupKind()] = r
		}
		a.list = append(a.list, r.Group+"/"+r.Version+"/"+r.Kind)
	}
	slices.Sort(a.list)
	a.hash = atoll.Hash([]byte(strings.Join(a.list, "\n")))
	return a
}

// with gives a snapshot that also has the resources.
func (a *APIs) with(more ...Resource) *APIs {
	var silent []schema.GroupVersion
	if a != nil {
		silent = a.silent
	}
	return newAPIs(append(a.all(), more...), silent)
}

func (a *APIs) all() []Resource {
	if a == nil {
		return nil
	}
	out := make([]Resource, 0, len(a.byKind))
	// The preferred ones go first, so that they stay preferred.
	out = append(out, slices.Collect(maps.Values(a.first))...)
	return append(out, slices.Collect(maps.Values(a.byKind))...)
}

// ofGroup lists what is known of a group and version.
func (a *APIs) ofGroup(group, version string) (out []Resource) {
	if a == nil {
		return nil
	}
	for gvk, r := range a.byKind {
		if gvk.Group == group && gvk.Version == version {
			out = append(out, r)
		}
	}
	return out
}

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// discover asks the member for what it serves. old fills in for groups that do
// not answer.
func discover(ctx context.Context, client rest.Interface, old *APIs) (*APIs, error) {
	var resources []Resource
	var silent []schema.GroupVersion
	for _, path := range []string{"/api", "/apis"} {
		body, err := client.Get().AbsPath(path).SetHeader("Accept", acceptDiscovery).Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("ask the member's %s for what it serves: %w", path, err)
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("the member's answer on %s: %w", path, err)
		}
		if list.Kind == "APIGroupDiscoveryList" {
			found, mute := aggregated(list, old)
			resources, silent = append(resources, found...), append(silent, mute...)
			continue
		}
		found, mute, err := unaggregated(ctx, client, path, body, old)
		if err != nil {
			return nil, err
		}
		resources, silent = append(resources, found...), append(silent, mute...)
	}
	return newAPIs(resources, silent), nil
}

func aggregated(list apidiscovery.APIGroupDiscoveryList, old *APIs) (out []Resource, silent []schema.GroupVersion) {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale && len(v.Resources) == 0 {
				known := old.ofGroup(g.Name, v.Version)
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

// unaggregated asks a member that does not know the aggregated form, group by
// group.
func unaggregated(ctx context.Context, client rest.Interface, path string, body []byte, old *APIs) (out []Resource, silent []schema.GroupVersion, err error) {
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
	for _, gv := range versions {
		at := "/apis/" + gv.String()
		if gv.Group == "" {
			at = "/api/" + gv.Version
		}
		var list metav1.APIResourceList
		body, err := client.Get().AbsPath(at).SetHeader("Accept", "application/json").Do(ctx).Raw()
		if err == nil {
			err = json.Unmarshal(body, &list)
		}
		if err != nil {
			known := old.ofGroup(gv.Group, gv.Version)
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
