package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	// controllerResync is 0: caches hear of every change through their watch.
	controllerResync = 0
	// gcSyncPeriod is how soon at the latest the garbage collector learns of a
	// new custom resource.
	gcSyncPeriod      = 30 * time.Second
	namespaceWorkers  = 5
	gcWorkers         = 10
	controllerWorkers = 2
)

const (
	namespaceController = controllerUserPrefix + "namespace-controller"
	garbageCollector    = controllerUserPrefix + "generic-garbage-collector"
	sharedController    = controllerUserPrefix + "atoll-shared"
)

func controllerUsers() []string {
	return []string{namespaceController, garbageCollector, sharedController, quotaController}
}

// controllers builds and runs upstream's controllers over shared informers.
type controllers struct {
	server   *Server
	client   kubernetes.Interface
	metadata metadata.Interface
	shared   informers.SharedInformerFactory
	objects  metadatainformer.SharedInformerFactory
	started  chan struct{}
	runs     []func(context.Context)
}

// startControllers runs those upstream controllers that an API without nodes
// needs.
func (s *Server) startControllers(ctx context.Context) error {
	c, err := s.newControllers()
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Background()))
	for _, add := range []func(context.Context) error{
		c.addNamespaces, c.addGarbageCollector, c.addServiceAccounts, c.addTokens,
		c.addCleaners, c.addClusterRoles, c.addRootCA, c.addQuotas,
	} {
		if err := add(run); err != nil {
			cancel()
			return err
		}
	}
	c.shared.Start(run.Done())
	c.objects.Start(run.Done())
	close(c.started)
	var group sync.WaitGroup
	for _, f := range c.runs {
		group.Go(func() { f(run) })
	}
	s.onStop(func(context.Context) {
		cancel()
		group.Wait()
		c.shared.Shutdown()
		c.objects.Shutdown()
	})
	return nil
}

func (s *Server) newControllers() (*controllers, error) {
	config := s.identities.config(s.loopback, sharedController)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of the controllers: %w", err)
	}
	plain, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client of the controllers: %w", err)
	}
	return &controllers{
		server:   s,
		client:   client,
		metadata: plain,
		shared:   informers.NewSharedInformerFactoryWithOptions(client, controllerResync, informers.WithTransform(dropManagedFields)),
		objects:  metadatainformer.NewSharedInformerFactoryWithOptions(plain, controllerResync, metadatainformer.WithTransform(dropManagedFields)),
		started:  make(chan struct{}),
	}, nil
}

func dropManagedFields(obj any) (any, error) {
	if o, ok := obj.(interface {
		SetManagedFields([]metav1.ManagedFieldsEntry)
	}); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// clients returns clients with an identity of their own.
func (c *controllers) clients(name string) (*rest.Config, kubernetes.Interface, metadata.Interface, error) {
	config := c.server.identities.config(c.server.loopback, name)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make client of %s: %w", name, err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make metadata client of %s: %w", name, err)
	}
	return config, client, objects, nil
}

func (c *controllers) add(f func(context.Context)) { c.runs = append(c.runs, f) }

func (c *controllers) addNamespaces(ctx context.Context) error {
	_, client, objects, err := c.clients(namespaceController)
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		c.shared.Core().V1().Namespaces(), controllerResync, corev1.FinalizerKubernetes)
	c.add(func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) })
	return nil
}

func (c *controllers) addGarbageCollector(ctx context.Context) error {
	config, client, objects, err := c.clients(garbageCollector)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make discovery client of the garbage collector: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(disco))
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(c.shared, c.objects), c.started)
	if err != nil {
		return fmt.Errorf("build the garbage collector: %w", err)
	}
	c.add(func(ctx context.Context) { gc.Run(ctx, gcWorkers, gcSyncPeriod) })
	c.add(func(ctx context.Context) { gc.Sync(ctx, disco, gcSyncPeriod) })
	return nil
}

func (c *controllers) addServiceAccounts(ctx context.Context) error {
	core := c.shared.Core().V1()
	controller, err := serviceaccounts.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		c.client, serviceaccounts.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("build the service account controller: %w", err)
	}
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}

func (c *controllers) addTokens(ctx context.Context) error {
	key, err := keyutil.PrivateKeyFromFile(c.server.keys.ServiceAccountKeyFile)
	if err != nil {
		return fmt.Errorf("load the service account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("use the service account key: %w", err)
	}
	core := c.shared.Core().V1()
	controller, err := serviceaccounts.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), c.client,
		serviceaccounts.TokensControllerOptions{TokenGenerator: generator, RootCA: c.server.keys.ClusterCA.CertPEM})
	if err != nil {
		return fmt.Errorf("build the token controller: %w", err)
	}
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}

func (c *controllers) addCleaners(context.Context) error {
	csrs := cleaner.NewCSRCleanerController(c.client.CertificatesV1().CertificateSigningRequests(), c.shared.Certificates().V1().CertificateSigningRequests())
	c.add(func(ctx context.Context) { csrs.Run(ctx, 1) })
	tokens, err := bootstrap.NewTokenCleaner(c.client, c.shared.Core().V1().Secrets(), bootstrap.DefaultTokenCleanerOptions())
	if err != nil {
		return fmt.Errorf("build the token cleaner: %w", err)
	}
	c.add(tokens.Run)
	return nil
}

func (c *controllers) addClusterRoles(context.Context) error {
	controller := clusterroleaggregation.NewClusterRoleAggregation(c.shared.Rbac().V1().ClusterRoles(), c.client.RbacV1())
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}

func (c *controllers) addRootCA(context.Context) error {
	core := c.shared.Core().V1()
	controller, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), c.client, c.server.keys.ClusterCA.CertPEM)
	if err != nil {
		return fmt.Errorf("build the root CA publisher: %w", err)
	}
	c.add(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}
