package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/lab"
)

var pushAttacks = []Attack{
	{Name: "push-loopback", Caller: Person, Summary: "as a fleet administrator, let the hub dial its own machine for a member in push mode", run: makeHubDialLoopback},
}

// refusalTimeout is how long the hub may take to report that it does not dial an address.
const refusalTimeout = 30 * time.Second

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
	members, remove, err := t.createPushCluster(ctx, "https://0.0.0.0:"+port)
	if err != nil {
		return "", err
	}
	defer remove()
	reason := ""
	for end := time.Now().Add(refusalTimeout); reason != string(atoll.ReasonAddressRefused); {
		if time.Now().After(end) {
			return "", fmt.Errorf("the hub does not refuse the address: the condition Pushed has the reason %q", reason)
		}
		_ = lab.PauseFor(ctx, 100*time.Millisecond)
		if reason, err = members.readPushedConditionReason(ctx); err != nil {
			return "", err
		}
	}
	_ = lab.PauseFor(ctx, lasts)
	if n := dialled.Load(); n > 0 {
		return "", fmt.Errorf("the hub dialled its own machine %d times", n)
	}
	return "refused: " + reason, nil
}

// pushedMember is a Cluster of the attacker whose agent the hub is to run.
type pushedMember struct {
	clusters dynamic.ResourceInterface
	name     string
}

// createPushCluster creates a Cluster in push mode, as a fleet administrator, with the address of its member. The function
// deletes the Cluster.
func (t *Target) createPushCluster(ctx context.Context, server string) (m pushedMember, remove func(), err error) {
	as := rest.CopyConfig(t.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: attacker, Groups: []string{"system:authenticated", "atoll:fleet-admins"}}
	kube, err := kubernetes.NewForConfig(as)
	if err != nil {
		return m, nil, err
	}
	m = pushedMember{t.dynamic.Resource(clusterResource), t.name + "-push"}
	created, err := m.clusters.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": m.name},
		"spec": map[string]any{"accepted": true, "mode": "Push"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return m, nil, fmt.Errorf("create the Cluster %s: %w", m.name, err)
	}
	remove = func() { _ = m.clusters.Delete(context.WithoutCancel(ctx), m.name, metav1.DeleteOptions{}) } // it is the attacker's
	secret, err := handshake.NewPushSecret(m.name, created.GetUID(), handshake.Credentials{Server: server, Token: "stolen"})
	if err == nil {
		_, err = kube.CoreV1().Secrets(atoll.SystemNamespace).Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		remove()
		return m, nil, fmt.Errorf("create credentials of the Cluster %s: %w", m.name, err)
	}
	return m, remove, nil
}

// readPushedConditionReason returns the reason of the condition Pushed; empty without one.
func (m pushedMember) readPushedConditionReason(ctx context.Context) (string, error) {
	c, err := m.clusters.Get(ctx, m.name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the Cluster %s: %w", m.name, err)
	}
	conditions, _, err := unstructured.NestedSlice(c.Object, "status", "conditions")
	if err != nil {
		return "", errors.New("the Cluster has malformed conditions")
	}
	for _, one := range conditions {
		if condition, ok := one.(map[string]any); ok && condition["type"] == "Pushed" {
			reason, _ := condition["reason"].(string)
			return reason, nil
		}
	}
	return "", nil
}
