package attack

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/lab"
)

var pushAttacks = []Attack{
	{Name: "push-loopback", Caller: Person, Summary: "as a fleet administrator, let the hub dial its own machine for a member in push mode", run: makeHubDialLoopback},
}

// makeHubDialLoopback names the unspecified address, because a lab allows its hub 127.0.0.0/8. Linux takes that address to
// its own machine.
func makeHubDialLoopback(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen on the loopback address: %w", err)
	}
	defer listener.Close()
	var dialled atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return "", fmt.Errorf("the address that the attacker listens at: %w", err)
	}
	member, remove, err := t.createPushCluster(ctx, "https://0.0.0.0:"+port)
	if err != nil {
		return "", err
	}
	defer remove()
	if err := t.waitForCondition(ctx, member, v1alpha1.ClusterPushed, func(c *metav1.Condition) bool { return c.Reason == string(atoll.ReasonAddressRefused) }); err != nil {
		return "", err
	}
	_ = lab.PauseFor(ctx, lasts)
	if n := dialled.Load(); n > 0 {
		return "", fmt.Errorf("the hub dialled its own machine %d times", n)
	}
	return "refused: " + string(atoll.ReasonAddressRefused), nil
}

// createPushCluster creates a Cluster in push mode, as a fleet administrator, with the address of its member. The function
// deletes the Cluster.
func (t *Target) createPushCluster(ctx context.Context, server string) (name string, remove func(), err error) {
	as := rest.CopyConfig(t.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: attacker, Groups: []string{"system:authenticated", "atoll:fleet-admins"}}
	kube, err := kubernetes.NewForConfig(as)
	if err != nil {
		return "", nil, err
	}
	clusters := t.dynamic.Resource(clusterResource)
	name = t.name + "-push"
	created, err := clusters.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"accepted": true, "mode": "Push"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("create the Cluster %s: %w", name, err)
	}
	remove = func() { _ = clusters.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) } // it is the attacker's
	secret, err := handshake.NewPushSecret(name, created.GetUID(), handshake.Credentials{Server: server, Token: "stolen"})
	if err == nil {
		_, err = kube.CoreV1().Secrets(atoll.SystemNamespace).Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("create credentials of the Cluster %s: %w", name, err)
	}
	return name, remove, nil
}
