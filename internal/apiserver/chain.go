package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"atoll.dev/atoll/internal/apiserver/allocators"
	"atoll.dev/atoll/internal/apiserver/inprocess"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/apiserver/storesize"
	"atoll.dev/atoll/internal/atoll"
)

// drainTimeout bounds how long requests that have begun may take on shutdown.
const drainTimeout = 10 * time.Second

// startServing builds the API server, runs it, and returns when it is ready.
func (s *Server) startServing(ctx context.Context) error {
	listener, err := s.openListener()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("read the port of %v: %w", listener.Addr(), err)
	}
	s.address = net.JoinHostPort(reachableHost(s.options.BindAddress), port)
	s.kubeconfig = s.dir.FilePath(kubeconfigFile)
	if err := s.writeCertificates(time.Now()); err != nil {
		listener.Close()
		return err
	}

	s.inside = inprocess.New(context.WithoutCancel(ctx))
	s.onStop(func(context.Context) { s.inside.Close() })
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	prepared, err := s.buildServer(run, listener)
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
	go s.runCertificateRenewal(run)
	go s.followAuthorities(run)
	return s.awaitReady(ctx)
}

// buildServer composes the API server and returns what runs it.
func (s *Server) buildServer(ctx context.Context, listener net.Listener) (func(context.Context) error, error) {
	s.identities = newInternalUsers(append([]string{HubUser}, controllerUsers()...)...)
	options, err := s.upstreamOptions(ctx, listener)
	if err != nil {
		return nil, err
	}
	config, err := kubeapiserver.NewConfig(options)
	if err != nil {
		return nil, fmt.Errorf("configure API server: %w", err)
	}
	guard, err := newSpaceGuard(s.store.space, s.options.Metrics)
	if err != nil {
		return nil, err
	}
	wrapChain := func(api http.Handler) http.Handler { return api }
	if s.options.Front != nil {
		if wrapChain, err = s.options.Front(s.keys.HubKey); err != nil {
			return nil, err
		}
	}
	s.adjustConfig(ctx, config, guard, wrapChain)
	storesize.PublishStoreSize(s.store.client)
	kube := config.KubeAPIs.ControlPlane.Generic
	if err := s.openDirectStores(config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter, kube.RESTOptionsGetter, s.newDirectWriteAuditor(kube.AuditBackend, kube.AuditPolicyRuleEvaluator)); err != nil {
		return nil, err
	}
	s.loopback = kube.LoopbackClientConfig
	completed, err := config.Complete()
	if err != nil {
		return nil, fmt.Errorf("complete API server configuration: %w", err)
	}
	server, err := s.chainServers(completed)
	if err != nil {
		return nil, err
	}
	server.GenericAPIServer.Handler.NonGoRestfulMux.HandleFunc(storePath, guard.serveStoreSpace)
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("prepare API server: %w", err)
	}
	return prepared.Run, nil
}

// adjustConfig makes upstream's configuration the hub's.
func (s *Server) adjustConfig(ctx context.Context, config *kubeapiserver.Config, guard *spaceGuard, wrapChain func(http.Handler) http.Handler) {
	kube := config.KubeAPIs.ControlPlane.Generic
	extensions := &config.ApiExtensions.GenericConfig.Config
	front := &config.Aggregator.GenericConfig.Config
	rightsRead := followRights(ctx, config.KubeAPIs.ControlPlane.VersionedInformers.Rbac().V1())
	for _, c := range []*genericapiserver.Config{kube, extensions, front} {
		s.identities.addIdentities(&c.Authentication)
		c.Authorization.Authorizer = patientAuthorizer{c.Authorization.Authorizer, rightsRead}
		c.RESTOptionsGetter = guardedOptions{c.RESTOptionsGetter, guard}
		if s.options.Authorize != nil {
			c.Authorization.Authorizer = s.options.Authorize(c.Authorization.Authorizer)
		}
	}
	kube.DisabledPostStartHooks.Insert(schedulingrest.PostStartHookName)
	front.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		if s.options.Handlers != nil {
			handler = s.options.Handlers(handler)
		}
		handler = s.warnFormerUsers(s.rewriteQueries(s.refuseContainerRequests(handler)))
		return wrapChain(genericapiserver.DefaultBuildHandlerChain(endStreams(ctx, c.LongRunningFunc, handler), c))
	}
	isLong := front.LongRunningFunc
	front.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return isLong(r, info) || slices.Contains(atoll.StreamPaths, r.URL.Path) && respond.WantsStream(r)
	}
	config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter = guardedOptions{atollStorageOptions{config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter}, guard}
}

// chainServers links the three API servers: the aggregator in front, then the built-in
// kinds, then custom resources. It leaves out what upstream keeps for clusters
// with nodes: the kubernetes Service, address ranges and repair loops.
func (s *Server) chainServers(config kubeapiserver.CompletedConfig) (*aggregator.APIAggregator, error) {
	notFound := notfoundhandler.New(config.KubeAPIs.ControlPlane.Generic.Serializer, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := config.ApiExtensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("build the server of custom resources: %w", err)
	}
	if err := s.setDefinitions(extensions); err != nil {
		return nil, err
	}
	kube, err := s.newKubeAPIServer(config.KubeAPIs, extensions)
	if err != nil {
		return nil, err
	}
	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	front, err := controlplaneapiserver.CreateAggregatorServer(config.Aggregator, kube, crds, true, s.groupPriorities(kube))
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

func (s *Server) newKubeAPIServer(config controlplane.CompletedConfig, extensions *apiextensions.CustomResourceDefinitions) (*genericapiserver.GenericAPIServer, error) {
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
	addresses := allocators.NewServiceAddresses()
	if err := addresses.FollowServices(config.ControlPlane.VersionedInformers.Core().V1().Services().Informer()); err != nil {
		return nil, fmt.Errorf("follow the addresses of Services: %w", err)
	}
	for i, p := range providers {
		switch p.GroupName() {
		case "":
			p = nodelessCoreProvider{provider: p, proxyTransport: config.ControlPlane.ProxyTransport, nodes: s.clusterNodeOptions(), addresses: addresses}
		case rbacv1.GroupName:
			p = hubRBACProvider{p, s.options.Logger}
		}
		providers[i] = s.options.Storage.wrapProvider(p)
	}
	if err := server.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("install built-in kinds: %w", err)
	}
	if err := server.GenericAPIServer.InstallAPIGroups(s.options.Groups...); err != nil {
		return nil, fmt.Errorf("install the hub's own groups: %w", err)
	}
	return server.GenericAPIServer, nil
}

// awaitReady returns when /readyz passes, over a connection like those of others.
func (s *Server) awaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.identities.configFor(s.loopback, HubUser))
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
