package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that a cluster serves. They are read at first use, and again where a kind is not among
// them: it may be new. Kinds may be shared between goroutines.
type Kinds struct {
	c *Connection

	mu    sync.Mutex
	known *kinds
}

// ServedKinds returns the kinds of the cluster.
func (c *Connection) ServedKinds() *Kinds { return &Kinds{c: c} }

// MappingFor returns the mapping of a kind.
func (k *Kinds) MappingFor(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return findWithRefresh(ctx, k, func(known *kinds) (*meta.RESTMapping, error) {
		return known.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	})
}

// MappingByName is the mapping of a kind, plural or short name, as people give it: "kind.version.group",
// "kind.group", or the bare name, whatever its case.
func (k *Kinds) MappingByName(ctx context.Context, text string) (*meta.RESTMapping, error) {
	return findWithRefresh(ctx, k, func(known *kinds) (*meta.RESTMapping, error) { return known.mappingByName(strings.ToLower(text)) })
}

// findWithRefresh is what look finds, with what is served now where it finds nothing at first.
func findWithRefresh(ctx context.Context, k *Kinds, look func(*kinds) (*meta.RESTMapping, error)) (*meta.RESTMapping, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known != nil {
		if m, err := look(k.known); !meta.IsNoMatchError(err) {
			return m, err
		}
	}
	known, err := k.c.discoverKinds(ctx)
	if err != nil {
		return nil, err
	}
	k.known = known
	return look(known)
}

// kinds as they were served at one time.
type kinds struct {
	mapper meta.RESTMapper
	served []servedGroupVersion
}

// servedGroupVersion is a version of a group, in the order of the API server, which prefers the first.
type servedGroupVersion struct {
	schema.GroupVersion
	resources []metav1.APIResource
}

func newKinds(all []servedGroupVersion) *kinds {
	var mappers meta.MultiRESTMapper
	var resources []schema.GroupVersionResource
	var ofKind []schema.GroupVersionKind
	for _, s := range all {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{s.GroupVersion})
		for _, r := range s.resources {
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			plural, singular := s.WithResource(r.Name), s.WithResource(r.SingularName)
			if r.SingularName == "" {
				singular = s.WithResource(strings.ToLower(r.Kind))
			}
			mapper.AddSpecific(s.WithKind(r.Kind), plural, singular, scope)
		}
		mappers = append(mappers, mapper)
		resources, ofKind = append(resources, s.WithResource(meta.AnyResource)), append(ofKind, s.WithKind(meta.AnyKind))
	}
	return &kinds{
		served: all,
		mapper: meta.PriorityRESTMapper{Delegate: mappers, ResourcePriority: resources, KindPriority: ofKind},
	}
}

func (k *kinds) mappingByName(text string) (*meta.RESTMapping, error) {
	full, partial := schema.ParseResourceArg(text)
	var resource schema.GroupVersionResource
	err := error(&meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Resource: text}})
	if full != nil {
		resource, err = k.mapper.ResourceFor(*full)
	}
	if err != nil {
		if resource, err = k.mapper.ResourceFor(k.longName(partial).WithVersion("")); err != nil {
			return nil, err
		}
	}
	gvk, err := k.mapper.KindFor(resource)
	if err != nil {
		return nil, err
	}
	return k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// longName returns the long form of a short name; what is none, or is the name of a resource too, stays as it is.
// A group need only be begun, as for other names.
func (k *kinds) longName(short schema.GroupResource) schema.GroupResource {
	var long *schema.GroupResource
	for _, s := range k.served {
		if !strings.HasPrefix(s.Group, short.Group) {
			continue
		}
		for _, r := range s.resources {
			if r.Name == short.Resource {
				return short
			}
			if long == nil && slices.Contains(r.ShortNames, short.Resource) {
				long = &schema.GroupResource{Group: s.Group, Resource: r.Name}
			}
		}
	}
	if long != nil {
		return *long
	}
	return short
}

// all of the kinds in one answer, where the API server can; members may be old.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// discoverKinds discovers what the cluster serves now. A group whose own server does not answer has no kinds.
func (c *Connection) discoverKinds(ctx context.Context) (*kinds, error) {
	var all []servedGroupVersion
	for _, path := range []string{"/api", "/apis"} {
		raw, err := ReadAnswer(c.REST.Get().AbsPath(path).SetHeader("Accept", aggregated).Do(ctx))
		if err != nil {
			return nil, c.ExplainError(err)
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("%s answers on %s with what is no list of kinds: %w", c.Config.Host, path, err)
		}
		if list.Kind == "APIGroupDiscoveryList" {
			all = append(all, servedInAggregatedDiscovery(list)...)
			continue
		}
		more, err := c.discoverEachVersion(ctx, path, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return newKinds(all), nil
}

// servedInAggregatedDiscovery returns the group versions of an aggregated list, with their kinds.
func servedInAggregatedDiscovery(list apidiscovery.APIGroupDiscoveryList) (all []servedGroupVersion) {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			s := servedGroupVersion{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}}
			for _, r := range v.Resources {
				if r.ResponseKind != nil && r.ResponseKind.Kind != "" {
					s.resources = append(s.resources, metav1.APIResource{
						Name: r.Resource, SingularName: r.SingularResource, Kind: r.ResponseKind.Kind, ShortNames: r.ShortNames,
						Namespaced: r.Scope == apidiscovery.ScopeNamespace,
					})
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// discoverEachVersion requests each version of each group, the preferred one of a group first.
func (c *Connection) discoverEachVersion(ctx context.Context, path string, raw []byte) (all []servedGroupVersion, err error) {
	var list struct {
		Versions []string          `json:"versions"` // of the group that has no name
		Groups   []metav1.APIGroup `json:"groups"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s answers on %s with what is no list of kinds: %w", c.Config.Host, path, err)
	}
	var versions []schema.GroupVersion
	for _, v := range list.Versions {
		versions = append(versions, schema.GroupVersion{Version: v})
	}
	for _, g := range list.Groups {
		begin := len(versions)
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if v.Version == g.PreferredVersion.Version {
				versions = slices.Insert(versions, begin, gv)
			} else {
				versions = append(versions, gv)
			}
		}
	}
	for _, gv := range versions {
		s, err := c.servedVersion(ctx, path, gv)
		if err != nil {
			continue
		}
		all = append(all, s)
	}
	return all, ctx.Err()
}

func (c *Connection) servedVersion(ctx context.Context, path string, gv schema.GroupVersion) (servedGroupVersion, error) {
	raw, err := ReadAnswer(c.REST.Get().AbsPath(path, gv.Group, gv.Version).Do(ctx))
	if err != nil {
		return servedGroupVersion{}, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return servedGroupVersion{}, fmt.Errorf("the kinds of %s: %w", gv, err)
	}
	kinds := slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") })
	return servedGroupVersion{gv, kinds}, nil
}
