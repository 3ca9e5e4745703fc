package member

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
)

// RequestTimeout ends every single request.
const RequestTimeout = 15 * time.Second

// Client of one member.
type Client struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface
	raw      rest.Interface
	apis     atomic.Pointer[APIs]
}

// New returns a Client. config is not changed; its HTTP transport is shared by all
// parts of the Client.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return impersonatingTransport{rt} })
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the member at %s: %w", config.Host, err)
	}
	c := &Client{}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, transport); err != nil {
		return nil, fmt.Errorf("client of the member: %w", err)
	}
	if c.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), transport); err != nil {
		return nil, fmt.Errorf("metadata client of the member: %w", err)
	}
	if c.raw, err = rawClient(config, transport); err != nil {
		return nil, fmt.Errorf("discovery client of the member: %w", err)
	}
	return c, nil
}

func rawClient(config *rest.Config, transport *http.Client) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion = &schema.GroupVersion{}
	c.NegotiatedSerializer = plain
	return rest.UnversionedRESTClientForConfigAndClient(c, transport)
}

// DynamicClient returns the client for watches of whole objects.
func (c *Client) DynamicClient() dynamic.Interface { return c.dynamic }

// MetadataClient returns the client for watches of metadata.
func (c *Client) MetadataClient() metadata.Interface { return c.metadata }

// APIs is the last snapshot of what the member serves; nil before Discover.
func (c *Client) APIs() *APIs { return c.apis.Load() }

// DiscoverAPIs discovers the APIs that the member serves, and reports whether they changed.
func (c *Client) DiscoverAPIs(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	old := c.apis.Load()
	now, err := discoverAPIs(ctx, c.raw, old)
	if err != nil {
		return false, err
	}
	c.apis.Store(now)
	return old == nil || old.hash != now.hash, nil
}

// AddKnownResources adds kinds that are known to be served before discovery lists them.
func (c *Client) AddKnownResources(resources ...Resource) {
	for {
		old := c.apis.Load()
		if c.apis.CompareAndSwap(old, old.withResources(resources...)) {
			return
		}
	}
}

// ServerVersion returns the version of the member's Kubernetes, such as "v1.36.3".
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return getVersion(ctx, c.raw)
}

// Patch is a server-side apply.
type Patch struct {
	Resource  Resource
	Namespace string
	Name      string
	// Manager of the fields; Force takes them from other managers.
	Manager string
	Force   bool
	DryRun  bool
	Body    []byte
}

// Apply applies the patch and returns the object after it.
func (c *Client) Apply(ctx context.Context, p Patch) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: p.Manager, Force: &p.Force}
	if p.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return c.resourceClient(p.Resource, p.Namespace).Patch(ctx, p.Name, types.ApplyPatchType, p.Body, options)
}

// MergePatch sends a JSON merge patch.
func (c *Client) MergePatch(ctx context.Context, r Resource, namespace, name string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	_, err := c.resourceClient(r, namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: atoll.FieldManager})
	return err
}

// Get reads the object.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return c.resourceClient(r, namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetMetadata gets the object's metadata.
func (c *Client) GetMetadata(ctx context.Context, r Resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return c.metadata.Resource(r.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// List lists the metadata of objects in a namespace (all, when empty), at most limit of
// them.
func (c *Client) List(ctx context.Context, r Resource, namespace string, limit int64) ([]metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	list, err := c.metadata.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: limit})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// ListLabelled lists the metadata of all objects of a kind that carry a label, in all
// namespaces.
func (c *Client) ListLabelled(ctx context.Context, r Resource, label string) (out []metav1.PartialObjectMetadata, err error) {
	options := metav1.ListOptions{LabelSelector: label, Limit: 200}
	for {
		list, err := c.listLabelledPage(ctx, r, options)
		if err != nil {
			return nil, err
		}
		out = append(out, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

func (c *Client) listLabelledPage(ctx context.Context, r Resource, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return c.metadata.Resource(r.GroupVersionResource).List(ctx, options)
}

// Delete deletes exactly the object with the UID, in the background. A NotFound error, or
// a Conflict (another object has the name), means that it is gone already.
func (c *Client) Delete(ctx context.Context, r Resource, namespace, name, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	id, policy := types.UID(uid), metav1.DeletePropagationBackground
	return c.resourceClient(r, namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &id},
		PropagationPolicy: &policy,
	})
}

func (c *Client) resourceClient(r Resource, namespace string) dynamic.ResourceInterface {
	if !r.Namespaced {
		return c.dynamic.Resource(r.GroupVersionResource)
	}
	return c.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}
