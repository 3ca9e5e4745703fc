package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	serviceaccounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"atoll.dev/atoll/internal/wakeup"
)

// addRootCAPublisher publishes the CAs that the hub is known by in a ConfigMap of each namespace.
func (c *controllers) addRootCAPublisher(ctx context.Context) error {
	published := c.filteredInformers("metadata.name=" + rootcacertpublisher.RootCACertConfigMapName).Core().V1().ConfigMaps()
	return c.addCAController(ctx, func(_ context.Context, ca []byte, h *recordedHandlers) (func(context.Context), error) {
		controller, err := rootcacertpublisher.NewPublisher(recordedInformer[corelisters.ConfigMapLister]{published, h},
			recordedInformer[corelisters.NamespaceLister]{c.shared.Core().V1().Namespaces(), h}, c.client, ca)
		if err != nil {
			return nil, fmt.Errorf("build the root CA publisher: %w", err)
		}
		return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
	})
}

// addTokenController fills the Secrets of service account tokens, with the CAs too.
func (c *controllers) addTokenController(ctx context.Context) error {
	key, err := keyutil.PrivateKeyFromFile(c.server.keys.ServiceAccountKeyFile)
	if err != nil {
		return fmt.Errorf("load the service account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("use the service account key: %w", err)
	}
	tokens := c.filteredInformers("type=" + string(corev1.SecretTypeServiceAccountToken)).Core().V1().Secrets()
	return c.addCAController(ctx, func(ctx context.Context, ca []byte, h *recordedHandlers) (func(context.Context), error) {
		controller, err := serviceaccounts.NewTokensController(klog.FromContext(ctx), recordedInformer[corelisters.ServiceAccountLister]{c.shared.Core().V1().ServiceAccounts(), h},
			recordedInformer[corelisters.SecretLister]{tokens, h}, c.client, serviceaccounts.TokensControllerOptions{TokenGenerator: generator, RootCA: ca})
		if err != nil {
			return nil, fmt.Errorf("build the token controller: %w", err)
		}
		return func(ctx context.Context) { controller.Run(ctx, controllerWorkers) }, nil
	})
}

// addCAController adds a controller of upstream's that is given the CAs that the hub is known by once
// and for all: whenever they change it ends, and another one takes its place. build is called
// at once, and so before the informers begin.
func (c *controllers) addCAController(ctx context.Context, build func(context.Context, []byte, *recordedHandlers) (func(context.Context), error)) error {
	changed := make(chan struct{}, 1)
	c.server.OnAuthorityChangeOrRenewal(func() { wakeup.WakeReader(changed) })
	ca, its := c.server.CurrentAuthorities().ClusterCABundlePEM(), &recordedHandlers{}
	run, err := build(ctx, ca, its)
	if err != nil {
		return err
	}
	c.add(func(ctx context.Context) {
		for {
			one, end := context.WithCancel(ctx)
			var running sync.WaitGroup
			running.Go(func() { run(one) })
			more := c.awaitCAChange(ctx, changed, &ca)
			end()
			running.Wait()
			its.removeAll()
			if !more {
				return
			}
			its = &recordedHandlers{}
			if run, err = build(ctx, ca, its); err != nil {
				c.server.options.Logger.Error("the hub's new CA is not handed out in namespaces and tokens until this hub is started again", "err", err)
				return
			}
		}
	})
	return nil
}

// awaitCAChange waits for a CA that is another one; false when ctx has ended.
func (c *controllers) awaitCAChange(ctx context.Context, changed <-chan struct{}, ca *[]byte) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
		if now := c.server.CurrentAuthorities().ClusterCABundlePEM(); !bytes.Equal(now, *ca) {
			*ca = now
			return true
		}
	}
}

// recordedHandlers are the handlers that a controller has put into informers which outlive it.
type recordedHandlers struct{ added []func() error }

// removeAll removes them. An informer that has ended has none.
func (h *recordedHandlers) removeAll() {
	for _, remove := range h.added {
		_ = remove()
	}
}

// handlerRecorder is an informer whose handlers are noted.
type handlerRecorder struct {
	cache.SharedIndexInformer
	handlers *recordedHandlers
}

func (n handlerRecorder) recordHandler(r cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		n.handlers.added = append(n.handlers.added, func() error { return n.RemoveEventHandler(r) })
	}
	return r, err
}

// AddEventHandler adds the handler and notes it, as do the next ones.
func (n handlerRecorder) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandler(h))
}

func (n handlerRecorder) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every))
}

func (n handlerRecorder) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

// recordedInformer returns the informer of a kind, which L lists, as one that notes its handlers.
type recordedInformer[L any] struct {
	of interface {
		Informer() cache.SharedIndexInformer
		Lister() L
	}
	h *recordedHandlers
}

// Informer returns the informer that notes its handlers.
func (i recordedInformer[L]) Informer() cache.SharedIndexInformer {
	return handlerRecorder{i.of.Informer(), i.h}
}

// Lister returns the lister of the kind.
func (i recordedInformer[L]) Lister() L { return i.of.Lister() }
