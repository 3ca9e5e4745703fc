// Package client is how every command reaches a cluster: kubectl's flags and
// files, typed reads over the dynamic client, and errors that state what to do.
//
// Contract: nothing is read or dialled before Connect. A Cluster may be shared
// between goroutines. Errors name the cluster that got the request and are ready to be
// shown to a person.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The kinds of Atoll that commands read and write.
var (
	Clusters           = v1alpha1.GroupVersion.WithResource("clusters")
	Bundles            = v1alpha1.GroupVersion.WithResource("bundles")
	ClusterBundles     = v1alpha1.GroupVersion.WithResource("clusterbundles")
	ClusterSets        = v1alpha1.GroupVersion.WithResource("clustersets")
	TargetSlices       = enginev1.GroupVersion.WithResource("targetslices")
	Revisions          = enginev1.GroupVersion.WithResource("revisions")
	RevisionParts      = enginev1.GroupVersion.WithResource("revisionparts")
	ClusterSetBindings = v1alpha1.GroupVersion.WithResource("clustersetbindings")
	HubSettings        = v1alpha1.GroupVersion.WithResource("hubsettings")
	HubStates          = enginev1.GroupVersion.WithResource("hubstates")
)

// The kinds of Kubernetes that they do.
var (
	Namespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	Secrets         = corev1.SchemeGroupVersion.WithResource("secrets")
	ConfigMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
	Pods            = corev1.SchemeGroupVersion.WithResource("pods")
	ServiceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	RoleBindings    = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	Deployments     = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// ConnectionFlags are the flags by which kubectl chooses a cluster, with kubectl's defaults.
type ConnectionFlags struct {
	Kubeconfig string
	Context    string
	Namespace  string
}

// AddTo adds --kubeconfig and --context.
func (f *ConnectionFlags) AddTo(flags *pflag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&f.Context, "context", f.Context, "context of the kubeconfig (default: its current one)")
}

// AddNamespace adds -n, for commands about namespaced objects.
func (f *ConnectionFlags) AddNamespace(flags *pflag.FlagSet) {
	flags.StringVarP(&f.Namespace, "namespace", "n", f.Namespace, "namespace (default: that of the context)")
}

// Connection is a connection to an API server.
type Connection struct {
	// Config may be copied, not changed.
	Config *rest.Config
	// REST sends requests by whole paths, AbsPath, and understands the API's errors. There are no
	// clients by type: all of Kubernetes' types would come along into members.
	REST    rest.Interface
	Dynamic dynamic.Interface
	// Namespace that -n or the context names.
	Namespace string
}

// NewSilentClient returns a client that prints no warnings, for dry runs of which the command shows one plan: what the hub
// warns of one write is no part of the plan of all.
func (c *Connection) NewSilentClient() (dynamic.Interface, error) {
	silent := rest.CopyConfig(c.Config)
	silent.WarningHandler = rest.NoWarnings{}
	out, err := dynamic.NewForConfig(silent)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return out, nil
}

// requestTimeout bounds a single request. Watches set their own.
const requestTimeout = 30 * time.Second

// NamesCluster reports whether the flags, or $KUBECONFIG, name a cluster.
func (f *ConnectionFlags) NamesCluster() bool {
	return f.Kubeconfig != "" || f.Context != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != ""
}

// ErrNoKubeconfig is the error of LoadClusterConnection where no file names a cluster.
var ErrNoKubeconfig = errors.New("no kubeconfig: name one with --kubeconfig or $KUBECONFIG; the hub writes its administrator's to hub.kubeconfig in its data directory")

// LoadClusterConnection reads the kubeconfig. It dials nothing. Without a kubeconfig it fails with
// ErrNoKubeconfig.
func (f *ConnectionFlags) LoadClusterConnection() (*Connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoKubeconfig
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.Timeout = requestTimeout
	config.QPS = -1 // the API server has its own idea of fairness
	config.UserAgent = "atoll/" + atoll.Version
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	c := &Connection{Config: config, Namespace: f.Namespace}
	if c.Namespace == "" {
		if c.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	return c, c.createClients()
}

// errorsOnly decodes the kinds that an API server answers with where it refuses.
var errorsOnly = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(s)
}()

// createClients makes the clients, which share their connections.
func (c *Connection) createClients() error {
	transport, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	raw := rest.CopyConfig(c.Config)
	raw.GroupVersion, raw.NegotiatedSerializer = &schema.GroupVersion{}, errorsOnly.WithoutConversion()
	if c.REST, err = rest.UnversionedRESTClientForConfigAndClient(raw, transport); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfigAndClient(c.Config, transport); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// Get reads one object as a T.
func Get[T any](ctx context.Context, c *Connection, resource schema.GroupVersionResource, namespace, name string) (*T, error) {
	u, err := c.Dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, c.ExplainError(err)
	}
	return ConvertTo[T](u)
}

// Create creates an object of a kind, which the object need not state itself; what comes back is as it was stored.
func Create[T any](ctx context.Context, c *Connection, resource schema.GroupVersionResource, kind string, o *T) (*T, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode a %s: %w", kind, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	made, err := c.Dynamic.Resource(resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return nil, c.ExplainError(err)
	}
	return ConvertTo[T](made)
}

// List reads all objects of a resource as Ts, in pages.
func List[T any](ctx context.Context, c *Connection, resource schema.GroupVersionResource, namespace string, o metav1.ListOptions) ([]T, error) {
	var all []T
	o.Limit = 500
	for {
		page, err := c.Dynamic.Resource(resource).Namespace(namespace).List(ctx, o)
		if err != nil {
			return nil, c.ExplainError(err)
		}
		for i := range page.Items {
			one, err := ConvertTo[T](&page.Items[i])
			if err != nil {
				return nil, err
			}
			all = append(all, *one)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return all, nil
		}
	}
}

// ConvertTo is what the dynamic client read, as a T.
func ConvertTo[T any](u *unstructured.Unstructured) (*T, error) {
	var v T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &v); err != nil {
		return nil, fmt.Errorf("%s %s is not what this version of atoll supports: %w", u.GetKind(), u.GetName(), err)
	}
	return &v, nil
}

// IsGone reports whether a hub has answered that it has no such object. An API server that does not serve Atoll's kinds, as
// that of a hub that starts, has not answered that.
func IsGone(err error) bool { return apierrors.IsNotFound(err) && !IsNoHubError(err) }

// HasLeft reports whether the cluster of a UID is gone from the hub, or another has its name. now and err are the hub's
// answer.
func HasLeft(uid types.UID, now *v1alpha1.Cluster, err error) bool {
	return IsGone(err) || err == nil && now.UID != uid
}

// IsNoHubError reports whether the error means that the API server has none of Atoll's
// kinds: the path was not found, not the object.
func IsNoHubError(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// ExplainError adds to an error of the API what a person can do about it. Errors that
// speak for themselves, and nil, come back as they are; apierrors still distinguishes them.
func (c *Connection) ExplainError(err error) error {
	var dial *url.Error
	var shown *tls.CertificateVerificationError
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &dial) && errors.As(err, &shown):
		return fmt.Errorf("the server at %s is not known by the certificate authority in the kubeconfig: %w; is the kubeconfig of another cluster, or older than its certificates?", c.Config.Host, shown.Err)
	case errors.As(err, &dial) && strings.HasPrefix(dial.Err.Error(), "getting credentials"):
		what, _, _ := strings.Cut(dial.Err.Error(), "\n") // the rest is for authors of plugins
		return fmt.Errorf("%s got no request: the kubeconfig logs in by a plugin, and that failed: %s; install it, or log in first, and try again", c.Config.Host, strings.TrimPrefix(what, "getting credentials: "))
	case errors.As(err, &dial):
		return fmt.Errorf("%s does not answer: %w; is it running, and is this the right kubeconfig?", c.Config.Host, dial.Err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w at %s; is this the kubeconfig of a hub?", err, c.Config.Host)
	case IsNoHubError(err):
		return fmt.Errorf("%s is no hub: it does not serve Atoll's kinds; choose the hub's kubeconfig with --kubeconfig or --context: %w", c.Config.Host, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not accept these credentials: %w", c.Config.Host, err)
	}
	return err
}

// DecodeAnswer reads the JSON answer of one of the hub's own endpoints. malformed names an answer that is none, such as "what is no plan".
func (c *Connection) DecodeAnswer(result rest.Result, malformed string, into any) error {
	answer, err := ReadAnswer(result)
	if IsNoHubError(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("%s does not answer: it is no hub, or one older than this command (%w)", c.Config.Host, err)
	}
	if err != nil {
		return c.ExplainError(err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s answered with %s; is this the kubeconfig of a hub? %w", c.Config.Host, malformed, err)
	}
	return nil
}

// ReadAnswer returns the answer of one of the hub's own endpoints. An error has the words of the hub, which Raw alone
// leaves out.
func ReadAnswer(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}
