package corpus

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/lab/corpus/compare"
)

const hubName = "hub"

// cluster is a hub, a member or the control.
type cluster struct {
	name, kubeconfig string
	discovery        discovery.DiscoveryInterface
	metadata         metadata.Interface

	mu     sync.Mutex // guards mapper
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(name, kubeconfig string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	c := &cluster{name: name, kubeconfig: kubeconfig}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.discovery))
	return c, nil
}

// objectID names an object of a manifest in one cluster.
type objectID struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

func idOf(object *unstructured.Unstructured) objectID {
	return objectID{kind: object.GroupVersionKind(), namespace: object.GetNamespace(), name: object.GetName()}
}

// findMapping returns the resource of a kind; nil where the cluster does not serve it.
func (c *cluster) findMapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // the kind may be new
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the resource of %s: %w", c.name, kind.Kind, err)
	}
	return mapping, nil
}

// observation is an object with the columns that kubectl get prints of it. Both are nil where there
// is no object.
type observation struct {
	object *unstructured.Unstructured
	row    map[string]string
}

// tableForm is the form in which kubectl get asks for objects.
const tableForm = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// readObject reads an object.
func (c *cluster) readObject(ctx context.Context, id objectID) (observation, error) {
	mapping, err := c.findMapping(id.kind)
	if err != nil || mapping == nil || id.name == "" {
		return observation{}, err
	}
	data, err := c.discovery.RESTClient().Get().AbsPath(resourcePath(mapping, id)).Param("includeObject", "Object").
		SetHeader("Accept", tableForm).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return observation{}, nil
	}
	var table metav1.Table
	if err == nil {
		err = json.Unmarshal(data, &table)
	}
	if err == nil && len(table.Rows) == 0 {
		err = fmt.Errorf("the answer has no row")
	}
	object := &unstructured.Unstructured{}
	if err == nil {
		err = object.UnmarshalJSON(table.Rows[0].Object.Raw)
	}
	if err != nil {
		return observation{}, fmt.Errorf("%s: read %s %s: %w", c.name, id.kind.Kind, id.name, err)
	}
	return observation{object: object, row: compare.ReadRow(&table)}, nil
}

func resourcePath(mapping *meta.RESTMapping, id objectID) string {
	r := mapping.Resource
	parts := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"/api", r.Version}
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		parts = append(parts, "namespaces", namespaceOrDefault(id.namespace))
	}
	return path.Join(append(parts, r.Resource, id.name)...)
}

func namespaceOrDefault(namespace string) string {
	if namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}
