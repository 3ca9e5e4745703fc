package client

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an argument KIND/NAME that the cluster's discovery made sense of.
type Object struct {
	Resource  schema.GroupVersionResource
	Kind      schema.GroupVersionKind
	Namespace string // empty for cluster-scoped kinds
	Name      string
}

// ParseObject reads KIND/NAME as kubectl does: kinds, plurals and short names, with
// ".group" where one name stands for several.
func (c *Cluster) ParseObject(argument string) (Object, error) {
	kind, name, ok := strings.Cut(argument, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return Object{}, fmt.Errorf("%q is not of the form KIND/NAME, such as deployment/web", argument)
	}
	mapping, err := c.Mapping(kind)
	if err != nil {
		return Object{}, err
	}
	o := Object{Resource: mapping.Resource, Kind: mapping.GroupVersionKind, Name: name}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		o.Namespace = c.Namespace
	}
	return o, nil
}

// Mapping of a kind, plural or short name, with ".group" where one name stands for several.
func (c *Cluster) Mapping(kind string) (*meta.RESTMapping, error) {
	mapper := c.Mapper()
	resource, err := resourceFor(mapper, kind)
	if err != nil {
		if meta.IsNoMatchError(err) {
			// Discovery that failed knows no kinds either.
			if _, down := c.Kube.Discovery().ServerVersion(); down != nil {
				return nil, c.Explain(down)
			}
			return nil, fmt.Errorf("%s does not know the kind %q; kubectl api-resources lists those that it knows", c.Config.Host, kind)
		}
		return nil, c.Explain(err)
	}
	gvk, err := mapper.KindFor(resource)
	if err != nil {
		return nil, c.Explain(err)
	}
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, c.Explain(err)
	}
	return mapping, nil
}

// resourceFor tries "kind.version.group", then "kind.group", then the bare name,
// and each as a Kind too.
func resourceFor(mapper meta.RESTMapper, text string) (schema.GroupVersionResource, error) {
	text = strings.ToLower(text)
	full, partial := schema.ParseResourceArg(text)
	if full != nil {
		if gvr, err := mapper.ResourceFor(*full); err == nil {
			return gvr, nil
		}
	}
	return mapper.ResourceFor(partial.WithVersion(""))
}
