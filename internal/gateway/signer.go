package gateway

import (
	"context"
	"fmt"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/watched"
)

// signApproved signs approved requests of agents until ctx ends. Every hub may do
// so: signing twice is harmless, the second write loses.
func (g *Gateway) signApproved(ctx context.Context) {
	queue := g.approved.queue
	ours := fields.OneTermEqualSelector("spec.signerName", handshake.SignerName).String()
	note := func(obj any) {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		if !ok || csr.Spec.SignerName != handshake.SignerName {
			return
		}
		g.waiters.wake(csr.Labels[handshake.LabelCluster])
		queue.AddAfter(csr.Name, g.signAfter())
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watched.Fields(g.o.Requests, ours),
		ObjectType:    &certificatesv1.CertificateSigningRequest{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    note,
			UpdateFunc: func(_, obj any) { note(obj) },
		},
	})
	go controller.RunWithContext(ctx)
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		name, down := queue.Get()
		if down {
			return
		}
		if err := g.signOne(ctx, name); err != nil {
			g.log.Error("cannot sign an agent's certificate; the hub tries again", "request", name, "err", err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// approved requests that are to be looked at, and which of them wait for their
// Cluster. It is safe for concurrent use.
type approved struct {
	queue workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	waiting map[string]map[string]struct{} // by cluster name, names of requests
}

func newApproved() *approved {
	return &approved{
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		waiting: map[string]map[string]struct{}{},
	}
}

// await the next change of the Cluster.
func (a *approved) await(cluster, request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[cluster] == nil {
		a.waiting[cluster] = map[string]struct{}{}
	}
	a.waiting[cluster][request] = struct{}{}
}

// clusterChanged looks again at what waits for the Cluster.
func (a *approved) clusterChanged(name string) {
	a.mu.Lock()
	requests := a.waiting[name]
	delete(a.waiting, name)
	a.mu.Unlock()
	for r := range requests {
		a.queue.Add(r)
	}
}

// signOne signs a request if it is approved and its Cluster accepted.
func (g *Gateway) signOne(ctx context.Context, name string) error {
	csr, err := g.o.Requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if csr.Spec.SignerName != handshake.SignerName || len(csr.Status.Certificate) > 0 || handshake.DecisionOn(csr) != handshake.Approved {
		return nil
	}
	request, err := trust.ParseRequestPEM(csr.Spec.Request)
	if err != nil {
		return g.fail(ctx, csr, err.Error())
	}
	cluster := csr.Labels[handshake.LabelCluster]
	g.approved.await(cluster, name) // before reading, so that no change is missed
	var c v1alpha1.Cluster
	err = g.o.Client.Get(ctx, client.ObjectKey{Name: cluster}, &c)
	if apierrors.IsNotFound(err) || err == nil && string(c.UID) != csr.Annotations[handshake.AnnotationUID] {
		return g.fail(ctx, csr, "the Cluster that it belongs to is gone")
	}
	if err != nil {
		return fmt.Errorf("read its cluster: %w", err)
	}
	if !c.Spec.Accepted {
		return nil
	}
	if known, err := g.adopt(ctx, &c, request.KeyHash); err != nil {
		return err
	} else if !known {
		return g.fail(ctx, csr, "its key is not one by which an agent asked to join as "+c.Name)
	}
	if csr.Status.Certificate, _, err = g.sign(g.o.Trust(), request.Public, string(c.UID)); err != nil {
		return err
	}
	if _, err := g.o.Requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	g.log.Info("signed an agent's request", "request", name, "cluster", c.Name, "key", request.KeyHash)
	return nil
}

// adopt makes the key the Cluster's own if it asked to be; known is false when it
// is neither that nor the present one.
func (g *Gateway) adopt(ctx context.Context, c *v1alpha1.Cluster, keyHash string) (known bool, err error) {
	if key, ok := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey]); ok && key == keyHash {
		return true, nil
	}
	if key, ok := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationNextKey]); !ok || key != keyHash {
		return false, nil
	}
	c.Annotations[handshake.AnnotationAgentKey] = c.Annotations[handshake.AnnotationNextKey]
	delete(c.Annotations, handshake.AnnotationNextKey)
	if err := g.o.Client.Update(ctx, c); err != nil {
		return false, fmt.Errorf("note the new key of cluster %s: %w", c.Name, err)
	}
	return true, nil
}

// fail a request for good.
func (g *Gateway) fail(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why string) error {
	g.log.Warn("refused to sign an agent's request", "request", csr.Name, "reason", why)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "AtollRefused", Message: why,
	})
	if _, err := g.o.Requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark request as failed: %w", err)
	}
	return nil
}
