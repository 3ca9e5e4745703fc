package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	// controllerResync is 0: caches get every change through their watch.
	controllerResync = 0
	// gcSyncPeriod is how soon at the latest the garbage collector reads a new custom resource.
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
	return []string{namespaceController, garbageCollector, sharedController, quotaController, finishedJobsController}
}

// controllers builds and runs upstream's controllers over shared informers. A
// hub holds many manifests and large Secrets, so nothing here caches them whole:
// a controller that needs only the existence of an object gets bare metadata, and what
// needs a few objects of a common kind gets only those.
type controllers struct {
	server  *Server
	client  kubernetes.Interface
	shared  informers.SharedInformerFactory        // small kinds
	objects metadatainformer.SharedInformerFactory // every kind, metadata only
	narrow  []informers.SharedInformerFactory      // a few objects of one kind each
	started chan struct{}
	runs    []func(context.Context)
}

// RunControllers runs those upstream controllers that an API without nodes
// needs, until ctx ends or the server stops. Call it only with
// Options.NoControllers, and while no other hub of the same etcd runs them.
func (s *Server) RunControllers(ctx context.Context) error {
	c, err := s.newControllers()
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(klog.NewContext(ctx, klog.Background()))
	defer cancel()
	for _, add := range []func(context.Context) error{
		c.addNamespaceController, c.addGarbageCollector, c.addServiceAccountController, c.addTokenController,
		c.addCleanerControllers, c.addClusterRoleAggregation, c.addRootCAPublisher, c.addQuotaController, c.addFinishedJobController,
	} {
		if err := add(run); err != nil {
			return err
		}
	}
	for _, factory := range append(c.narrow, c.shared) {
		factory.Start(run.Done())
		defer factory.Shutdown()
	}
	c.objects.Start(run.Done())
	defer c.objects.Shutdown()
	close(c.started)
	var group sync.WaitGroup
	for _, f := range c.runs {
		group.Go(func() { f(run) })
	}
	select {
	case <-ctx.Done():
	case <-s.stopping:
	}
	cancel()
	group.Wait()
	return nil
}

// startControllers runs the controllers until the server stops.
func (s *Server) startControllers(ctx context.Context) {
	if s.options.NoControllers {
		return
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if err := s.RunControllers(context.WithoutCancel(ctx)); err != nil {
			s.controllerErr <- err
		}
	}()
	s.onStop(func(context.Context) { <-finished })
}

func (s *Server) newControllers() (*controllers, error) {
	config := s.inProcessClientConfig(sharedController)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of the controllers: %w", err)
	}
	plain, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client of the controllers: %w", err)
	}
	return &controllers{
		server:  s,
		client:  client,
		shared:  informers.NewSharedInformerFactoryWithOptions(client, controllerResync, informers.WithTransform(dropManagedFields)),
		objects: metadatainformer.NewSharedInformerFactoryWithOptions(plain, controllerResync, metadatainformer.WithTransform(dropLabelsAndAnnotations)),
		started: make(chan struct{}),
	}, nil
}

// filteredInformers returns informers that cache nothing but the objects that a field
// selector picks.
func (c *controllers) filteredInformers(selector string) informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(c.client, controllerResync, informers.WithTransform(dropManagedFields),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
	c.narrow = append(c.narrow, f)
	return f
}

func dropManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// clientsFor returns clients with an identity of their own.
func (c *controllers) clientsFor(name string) (*rest.Config, kubernetes.Interface, metadata.Interface, error) {
	config := c.server.inProcessClientConfig(name)
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

func (c *controllers) addNamespaceController(ctx context.Context) error {
	_, client, objects, err := c.clientsFor(namespaceController)
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		c.shared.Core().V1().Namespaces(), controllerResync, corev1.FinalizerKubernetes)
	c.add(func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) })
	return nil
}

func (c *controllers) addGarbageCollector(ctx context.Context) error {
	config, client, objects, err := c.clientsFor(garbageCollector)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make discovery client of the garbage collector: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(disco))
	stored, err := c.server.storedInformers(objects)
	if err != nil {
		return err
	}
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(),
		objectInformers{SharedInformerFactory: c.objects, typed: c.shared, stored: stored}, c.started)
	if err != nil {
		return fmt.Errorf("build the garbage collector: %w", err)
	}
	c.add(func(ctx context.Context) { gc.Run(ctx, gcWorkers, gcSyncPeriod) })
	c.add(func(ctx context.Context) { gc.Sync(ctx, discoveryWithoutEngine{disco}, gcSyncPeriod) })
	return nil
}

// discoveryWithoutEngine is discovery for the garbage collector. It leaves the engine's kinds
// out: they are the most numerous, they have no owners, and Atoll collects them
// itself.
type discoveryWithoutEngine struct {
	discovery.ServerResourcesInterface
}

func (o discoveryWithoutEngine) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	lists, err := o.ServerResourcesInterface.ServerPreferredResources()
	return slices.DeleteFunc(lists, func(list *metav1.APIResourceList) bool {
		return strings.HasPrefix(list.GroupVersion, engineGroup+"/")
	}), err
}

func (c *controllers) addServiceAccountController(ctx context.Context) error {
	core := c.shared.Core().V1()
	controller, err := serviceaccounts.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		c.client, serviceaccounts.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("build the service account controller: %w", err)
	}
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}

func (c *controllers) addCleanerControllers(context.Context) error {
	csrs := cleaner.NewCSRCleanerController(c.client.CertificatesV1().CertificateSigningRequests(), c.shared.Certificates().V1().CertificateSigningRequests())
	c.add(func(ctx context.Context) { csrs.Run(ctx, 1) })
	expiring := c.filteredInformers("type=" + string(corev1.SecretTypeBootstrapToken)).Core().V1().Secrets()
	tokens, err := bootstrap.NewTokenCleaner(c.client, expiring, bootstrap.DefaultTokenCleanerOptions())
	if err != nil {
		return fmt.Errorf("build the token cleaner: %w", err)
	}
	c.add(tokens.Run)
	return nil
}

func (c *controllers) addClusterRoleAggregation(context.Context) error {
	controller := clusterroleaggregation.NewClusterRoleAggregation(c.shared.Rbac().V1().ClusterRoles(), c.client.RbacV1())
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}
