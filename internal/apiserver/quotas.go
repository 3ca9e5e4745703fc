package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotas "k8s.io/kubernetes/pkg/quota/v1/install"

	"atoll.dev/atoll/internal/atoll"
)

const (
	quotaController = controllerUserPrefix + "resourcequota-controller"
	quotaWorkers    = 2
	// quotaRecount is how often usage is counted from scratch, in case an
	// event was missed.
	quotaRecount = 5 * time.Minute
	// quotaDiscovery is how soon at the latest a new kind is counted.
	quotaDiscovery = 30 * time.Second
)

// measured are the kinds of which quotas count more than the number.
var measured = map[schema.GroupResource]bool{
	{Resource: "pods"}:                                     true,
	{Resource: "services"}:                                 true,
	{Resource: "persistentvolumeclaims"}:                   true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}: true,
}

// addQuotaController counts the usage of those quotas that act on the hub: without a count, admission would
// refuse everything that they limit. The counting starts with the first such quota, because few
// hubs have one.
func (c *controllers) addQuotaController(context.Context) error {
	_, client, _, err := c.clientsFor(quotaController)
	if err != nil {
		return err
	}
	acting := informers.NewSharedInformerFactoryWithOptions(client, controllerResync, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = atoll.LabelHub + "=true"
	}))
	informer := acting.Core().V1().ResourceQuotas()
	needed := make(chan struct{})
	var once sync.Once
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { once.Do(func() { close(needed) }) },
	})
	if err != nil {
		return fmt.Errorf("watch quotas: %w", err)
	}
	c.add(func(ctx context.Context) {
		acting.Start(ctx.Done())
		defer acting.Shutdown()
		select {
		case <-needed:
		case <-ctx.Done():
			return
		}
		if err := c.runQuotaController(ctx, client, informer); err != nil {
			c.server.options.Logger.Error("quotas that act on the hub are not counted, so they refuse what they limit; restart the hub", "error", err)
		}
	})
	return nil
}

func (c *controllers) runQuotaController(ctx context.Context, client kubernetes.Interface, informer coreinformers.ResourceQuotaInformer) error {
	objects := objectInformers{SharedInformerFactory: c.objects, typed: c.shared, whole: measured}
	config, err := quotas.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(objects.ForResource), c.shared)
	if err != nil {
		return fmt.Errorf("configure the quota controller: %w", err)
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	counter, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     informer,
		ResyncPeriod:              controller.StaticResyncPeriodFunc(quotaRecount),
		InformerFactory:           objects,
		ReplenishmentResyncPeriod: controller.StaticResyncPeriodFunc(controllerResync),
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      config.IgnoredResources,
		InformersStarted:          c.started,
		Registry:                  generic.NewRegistry(config.Evaluators()),
		UpdateFilter:              quotas.DefaultUpdateFilter(),
	})
	if err != nil {
		return fmt.Errorf("build the quota controller: %w", err)
	}
	c.shared.Start(ctx.Done())
	c.objects.Start(ctx.Done())
	var group sync.WaitGroup
	group.Go(func() { counter.Run(ctx, quotaWorkers) })
	group.Go(func() { counter.Sync(ctx, discover, quotaDiscovery) })
	group.Wait()
	return nil
}
