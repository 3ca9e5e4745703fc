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

// addRootCA publishes the CAs that the hub is known by in a ConfigMap of each namespace.
func (c *controllers) addRootCA(ctx context.Context) error {
	published := c.filteredInformers("metadata.name=" + rootcacertpublisher.RootCACertConfigMapName).Core().V1().ConfigMaps()
	return c.handOut(ctx, func(_ context.Context, ca []byte, h *handlers) (func(context.Context), error) {
		controller, err := rootcacertpublisher.NewPublisher(noted[corelisters.ConfigMapLister]{published, h},
			noted[corelisters.NamespaceLister]{c.shared.Core().V1().Namespaces(), h}, c.client, ca)
		if err != nil {
			return nil, fmt.Errorf("build the root CA publisher: %w", err)
		}
		return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
	})
}

// addTokens fills the Secrets of service account tokens, with the CAs too.
func (c *controllers) addTokens(ctx context.Context) error {
	key, err := keyutil.PrivateKeyFromFile(c.server.keys.ServiceAccountKeyFile)
	if err != nil {
		return fmt.Errorf("load the service account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("use the service account key: %w", err)
	}
	tokens := c.filteredInformers("type=" + string(corev1.SecretTypeServiceAccountToken)).Core().V1().Secrets()
	return c.handOut(ctx, func(ctx context.Context, ca []byte, h *handlers) (func(context.Context), error) {
		controller, err := serviceaccounts.NewTokensController(klog.FromContext(ctx), noted[corelisters.ServiceAccountLister]{c.shared.Core().V1().ServiceAccounts(), h},
			noted[corelisters.SecretLister]{tokens, h}, c.client, serviceaccounts.TokensControllerOptions{TokenGenerator: generator, RootCA: ca})
		if err != nil {
			return nil, fmt.Errorf("build the token controller: %w", err)
		}
		return func(ctx context.Context) { controller.Run(ctx, controllerWorkers) }, nil
	})
}

// handOut adds a controller of upstream's that is given the CAs that the hub is known by once
// and for all: whenever they change it ends, and another one takes its place. build is called
// at once, and so before the informers begin.
func (c *controllers) handOut(ctx context.Context, build func(context.Context, []byte, *handlers) (func(context.Context), error)) error {
	changed := make(chan struct{}, 1)
	c.server.OnCertificates(func() { wakeup.Send(changed) })
	ca, its := c.server.CurrentAuthorities().ClusterPEM(), &handlers{}
	run, err := build(ctx, ca, its)
	if err != nil {
		return err
	}
	c.add(func(ctx context.Context) {
		for {
			one, end := context.WithCancel(ctx)
			var running sync.WaitGroup
			running.Go(func() { run(one) })
			more := c.awaitCA(ctx, changed, &ca)
			end()
			running.Wait()
			its.remove()
			if !more {
				return
			}
			its = &handlers{}
			if run, err = build(ctx, ca, its); err != nil {
				c.server.options.Logger.Error("the hub's new CA is not handed out in namespaces and tokens until this hub is started again", "err", err)
				return
			}
		}
	})
	return nil
}

// awaitCA waits for a CA that is another one; false when ctx has ended.
func (c *controllers) awaitCA(ctx context.Context, changed <-chan struct{}, ca *[]byte) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
		if now := c.server.CurrentAuthorities().ClusterPEM(); !bytes.Equal(now, *ca) {
			*ca = now
			return true
		}
	}
}

// handlers that a controller has put into informers which outlive it.
type handlers struct{ added []func() error }

// remove removes them. An informer that has ended has none.
func (h *handlers) remove() {
	for _, remove := range h.added {
		_ = remove()
	}
}

// noting is an informer whose handlers are noted.
type noting struct {
	cache.SharedIndexInformer
	handlers *handlers
}

func (n noting) recordHandler(r cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		n.handlers.added = append(n.handlers.added, func() error { return n.RemoveEventHandler(r) })
	}
	return r, err
}

// AddEventHandler adds the handler and notes it, as do the next ones.
func (n noting) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandler(h))
}

func (n noting) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every))
}

func (n noting) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return n.recordHandler(n.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

// noted returns the informer of a kind, which L lists, as one that notes its handlers.
type noted[L any] struct {
	of interface {
		Informer() cache.SharedIndexInformer
		Lister() L
	}
	h *handlers
}

// Informer returns the informer that notes its handlers.
func (i noted[L]) Informer() cache.SharedIndexInformer { return noting{i.of.Informer(), i.h} }

// Lister returns the lister of the kind.
func (i noted[L]) Lister() L { return i.of.Lister() }
