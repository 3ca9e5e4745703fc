package client

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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
func (c *Connection) ParseObject(ctx context.Context, argument string) (Object, error) {
	kind, name, ok := strings.Cut(argument, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return Object{}, fmt.Errorf("%q is not of the form KIND/NAME, such as deployment/web", argument)
	}
	mapping, err := c.MappingFor(ctx, kind)
	if err != nil {
		return Object{}, err
	}
	o := Object{Resource: mapping.Resource, Kind: mapping.GroupVersionKind, Name: name}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		o.Namespace = c.Namespace
	}
	return o, nil
}

// RequestAbout returns a request for what a hub answers about the object under a path.
func (c *Connection) RequestAbout(path string, o Object) *rest.Request {
	request := c.REST.Get().AbsPath(path).Param("group", o.Kind.Group).Param("kind", o.Kind.Kind).Param("name", o.Name)
	if o.Namespace != "" {
		request.Param("namespace", o.Namespace)
	}
	return request
}

// MappingFor returns the mapping of a kind, plural or short name, with ".group" where one name stands for several.
func (c *Connection) MappingFor(ctx context.Context, kind string) (*meta.RESTMapping, error) {
	mapping, err := c.ServedKinds().MappingByName(ctx, kind)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%s does not serve the kind %q; kubectl api-resources lists those that it serves", c.Config.Host, kind)
	}
	if err != nil {
		return nil, c.ExplainError(err)
	}
	return mapping, nil
}
