package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/filteredwatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// signApproved signs approved requests of agents until ctx ends. Several hubs may do so:
// of two signatures the second write fails.
func (g *Gateway) signApproved(ctx context.Context) {
	ours := fields.OneTermEqualSelector("spec.signerName", handshake.SignerName).String()
	note := func(obj any) {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		if !ok || csr.Spec.SignerName != handshake.SignerName {
			return
		}
		g.waiters.wakeAll(csr.Labels[handshake.LabelCluster])
		g.approvedRequests.loop.EnqueueAfter(csr.Name, g.signingDelay())
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: filteredwatch.FieldSelectedSource(g.options.Requests, ours),
		ObjectType:    &certificatesv1.CertificateSigningRequest{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    note,
			UpdateFunc: func(_, obj any) { note(obj) },
		},
	})
	g.approvedRequests.loop.Run(ctx, func() { go controller.RunWithContext(ctx) })
}

// approvedRequests are the requests to be checked, and those of them that wait for their
// Cluster. It is safe for concurrent use.
type approvedRequests struct {
	loop *reconcile.Loop[string]

	mu      sync.Mutex
	waiting map[string]map[string]struct{} // by cluster name, names of requests
}

func (g *Gateway) newApprovedRequests() *approvedRequests {
	return &approvedRequests{
		loop: reconcile.New(reconcile.Options[string]{
			Name: "certificates",
			Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
				return 0, g.signRequest(ctx, name)
			},
			Failed: func(name string, err error) {
				g.log.Error("cannot sign an agent's certificate; the hub tries again", "request", name, "err", err)
			},
		}),
		waiting: map[string]map[string]struct{}{},
	}
}

// recordWaitingForCluster notes that the request waits for the next change of the Cluster.
func (a *approvedRequests) recordWaitingForCluster(cluster, request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[cluster] == nil {
		a.waiting[cluster] = map[string]struct{}{}
	}
	a.waiting[cluster][request] = struct{}{}
}

// requeueWaiting queues the requests that wait for the Cluster.
func (a *approvedRequests) requeueWaiting(name string) {
	a.mu.Lock()
	requests := a.waiting[name]
	delete(a.waiting, name)
	a.mu.Unlock()
	for r := range requests {
		a.loop.EnqueueNow(r)
	}
}

// signRequest signs a request if it is approved and its Cluster is accepted.
func (g *Gateway) signRequest(ctx context.Context, name string) error {
	csr, err := g.options.Requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if csr.Spec.SignerName != handshake.SignerName || len(csr.Status.Certificate) > 0 || handshake.DecisionOn(csr) != handshake.Approved {
		return nil
	}
	request, err := trust.ParseCertificateRequestPEM(csr.Spec.Request)
	if err != nil {
		return g.failRequest(ctx, csr, err.Error())
	}
	cluster := csr.Labels[handshake.LabelCluster]
	g.approvedRequests.recordWaitingForCluster(cluster, name) // before reading, so that no change is missed
	var c v1alpha1.Cluster
	err = g.options.Client.Get(ctx, client.ObjectKey{Name: cluster}, &c)
	if apierrors.IsNotFound(err) || err == nil && string(c.UID) != csr.Annotations[handshake.AnnotationUID] {
		return g.failRequest(ctx, csr, "its Cluster is gone")
	}
	if err != nil {
		return fmt.Errorf("read its cluster: %w", err)
	}
	if !c.Spec.Accepted {
		return nil
	}
	return g.issueCertificate(ctx, csr, request, &c)
}

// issueCertificate writes the certificate of a Cluster into the request, if the Cluster has its key.
func (g *Gateway) issueCertificate(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request trust.CertificateRequest, c *v1alpha1.Cluster) error {
	known, err := g.adoptKey(ctx, c, request.KeyHash)
	if err != nil {
		return err
	}
	if !known {
		return g.failRequest(ctx, csr, "its key is not one by which an agent requested to join as "+c.Name)
	}
	if csr.Status.Certificate, _, err = g.signCertificate(g.options.Trust(), request.Public, string(c.UID)); err != nil {
		return err
	}
	if _, err := g.options.Requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	g.log.Info("signed an agent's request", "request", csr.Name, "cluster", c.Name, "key", request.KeyHash)
	return nil
}

// adoptKey makes the key the Cluster's own if the Cluster has it as the next key. known is
// false when it is neither the next nor the present key.
func (g *Gateway) adoptKey(ctx context.Context, c *v1alpha1.Cluster, keyHash string) (known bool, err error) {
	if key, ok := g.unsealAgentKeyHash(c); ok && key == keyHash {
		return true, nil
	}
	if key, ok := g.unsealTakeoverKeyHash(c); !ok || key != keyHash {
		return false, nil
	}
	c.Annotations[handshake.AnnotationAgentKey] = c.Annotations[handshake.AnnotationNextKey]
	delete(c.Annotations, handshake.AnnotationNextKey)
	if err := g.options.Client.Update(ctx, c); err != nil {
		return false, fmt.Errorf("note the new key of cluster %s: %w", c.Name, err)
	}
	return true, nil
}

// failRequest marks a request as failed.
func (g *Gateway) failRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why string) error {
	g.log.Warn("refused to sign an agent's request", "request", csr.Name, "reason", why)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: string(atoll.ReasonAtollRefused), Message: why,
	})
	if _, err := g.options.Requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark request as failed: %w", err)
	}
	return nil
}
