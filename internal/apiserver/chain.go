package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"atoll.dev/atoll/internal/apiserver/inprocess"
	"atoll.dev/atoll/internal/apiserver/storesize"
)

// drainTimeout bounds how long requests that have begun may take on shutdown.
const drainTimeout = 10 * time.Second

// serve builds the API server, runs it, and returns when it is ready.
func (s *Server) serve(ctx context.Context) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("read the port of %v: %w", listener.Addr(), err)
	}
	s.address = net.JoinHostPort(reachable(s.options.BindAddress), port)
	s.kubeconfig = s.dir.Path(kubeconfigFile)
	if err := s.writeCertificates(time.Now()); err != nil {
		listener.Close()
		return err
	}

	s.inside = inprocess.New(context.WithoutCancel(ctx))
	s.onStop(func(context.Context) { s.inside.Close() })
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	prepared, err := s.build(run, listener)
	if err != nil {
		stop()
		listener.Close()
		return err
	}
	go func() {
		defer close(s.served)
		defer s.inside.Close()
		if err := prepared(run); err != nil {
			s.serveErr = fmt.Errorf("the API server has failed: %w", err)
		}
	}()
	s.onStop(func(ctx context.Context) {
		s.inside.Stop()
		stop()
		select {
		case <-s.served:
		case <-ctx.Done():
		}
	})
	go s.renewCertificates(run)
	go s.followAuthorities(run)
	return s.awaitReady(ctx)
}

// build composes the API server and returns what runs it.
func (s *Server) build(ctx context.Context, listener net.Listener) (func(context.Context) error, error) {
	s.identities = newIdentities(append([]string{HubUser}, controllerUsers()...)...)
	options, err := s.upstreamOptions(ctx, listener)
	if err != nil {
		return nil, err
	}
	config, err := kubeapiserver.NewConfig(options)
	if err != nil {
		return nil, fmt.Errorf("configure API server: %w", err)
	}
	s.adjust(config)
	storesize.Publish(s.store.client)
	if err := s.openDirect(config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter, config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter); err != nil {
		return nil, err
	}
	s.loopback = config.KubeAPIs.ControlPlane.Generic.LoopbackClientConfig
	completed, err := config.Complete()
	if err != nil {
		return nil, fmt.Errorf("complete API server configuration: %w", err)
	}
	server, err := s.chain(completed)
	if err != nil {
		return nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("prepare API server: %w", err)
	}
	return prepared.Run, nil
}

// adjust makes upstream's configuration the hub's.
func (s *Server) adjust(config *kubeapiserver.Config) {
	kube := config.KubeAPIs.ControlPlane.Generic
	extensions := &config.ApiExtensions.GenericConfig.Config
	front := &config.Aggregator.GenericConfig.Config
	for _, c := range []*genericapiserver.Config{kube, extensions, front} {
		s.identities.authenticate(&c.Authentication)
		if s.options.Authorize != nil {
			c.Authorization.Authorizer = s.options.Authorize(c.Authorization.Authorizer)
		}
	}
	kube.DisabledPostStartHooks.Insert(schedulingrest.PostStartHookName)
	front.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		if s.options.Handlers != nil {
			handler = s.options.Handlers(handler)
		}
		return genericapiserver.DefaultBuildHandlerChain(s.warnFormer(s.rewrite(s.elsewhere(handler))), c)
	}
	config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter = engineStorage{config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter}
}

// chain links the three API servers: the aggregator in front, then the built-in
// kinds, then custom resources. It leaves out what upstream keeps for clusters
// with nodes: the kubernetes Service, address ranges and repair loops.
func (s *Server) chain(config kubeapiserver.CompletedConfig) (*aggregator.APIAggregator, error) {
	notFound := notfoundhandler.New(config.KubeAPIs.ControlPlane.Generic.Serializer, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := config.ApiExtensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("build the server of custom resources: %w", err)
	}
	if err := s.setDefinitions(extensions); err != nil {
		return nil, err
	}
	kube, err := s.kubeAPIs(config.KubeAPIs, extensions)
	if err != nil {
		return nil, err
	}
	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	front, err := controlplaneapiserver.CreateAggregatorServer(config.Aggregator, kube, crds, true, s.priorities(kube))
	if err != nil {
		return nil, fmt.Errorf("build the aggregator: %w", err)
	}
	// Hooks run once the server takes requests.
	err = front.GenericAPIServer.AddPostStartHook("atoll-inside", func(genericapiserver.PostStartHookContext) error {
		s.inside.Open(front.GenericAPIServer.Handler)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("let requests of this process in: %w", err)
	}
	return front, nil
}

func (s *Server) kubeAPIs(config controlplane.CompletedConfig, extensions *apiextensions.CustomResourceDefinitions) (*genericapiserver.GenericAPIServer, error) {
	server, err := config.ControlPlane.New(controlplaneapiserver.KubeAPIServer, extensions.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("build the server of built-in kinds: %w", err)
	}
	client, err := kubernetes.NewForConfig(config.ControlPlane.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("make loopback client: %w", err)
	}
	providers, err := config.StorageProviders(client)
	if err != nil {
		return nil, fmt.Errorf("build storage of built-in kinds: %w", err)
	}
	for i, p := range providers {
		if p.GroupName() == "" {
			p = nodeless{provider: p, proxyTransport: config.ControlPlane.ProxyTransport, nodes: s.clusterNodes()}
		}
		providers[i] = s.options.Storage.with(p)
	}
	if err := server.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("install built-in kinds: %w", err)
	}
	if err := server.GenericAPIServer.InstallAPIGroups(s.options.Groups...); err != nil {
		return nil, fmt.Errorf("install the hub's own groups: %w", err)
	}
	return server.GenericAPIServer, nil
}

// awaitReady returns when /readyz passes, asked by a connection like those of others.
func (s *Server) awaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.identities.config(s.loopback, HubUser))
	if err != nil {
		return fmt.Errorf("make loopback client: %w", err)
	}
	var last string
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.served:
			return false, errors.Join(errors.New("the API server ended while starting"), s.serveErr)
		default:
		}
		var status int
		body, err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Raw()
		last = failedChecks(string(body), err)
		return status == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server is ready (not yet: %s): %w", last, err)
	}
	return nil
}

// failedChecks picks the checks that fail out of a readiness report.
func failedChecks(body string, err error) string {
	var failed []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	if len(failed) == 0 && err != nil {
		return err.Error()
	}
	return strings.Join(failed, ", ")
}
