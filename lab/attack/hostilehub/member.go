package hostilehub

import (
	"context"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab"
)

// agentLease is the name of the Lease that the agent renews.
const agentLease = "atoll-agent"

// Member is the member cluster of the attacked agent, with an administrator's access to it.
type Member struct {
	dir, kubeconfig string
	kube            kubernetes.Interface
}

// OpenMember returns the member of a lab without a hub.
func OpenMember(l *lab.Lab) (*Member, error) {
	m := &Member{dir: l.Dir(), kubeconfig: filepath.Join(l.Dir(), "member1.kubeconfig")}
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err == nil {
		m.kube, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("client of the member: %w", err)
	}
	return m, nil
}

// resetState removes what an earlier agent stored and applied.
func (m *Member) resetState(ctx context.Context) error {
	core, all := m.kube.CoreV1(), metav1.ListOptions{}
	if err := core.Secrets(atoll.SystemNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return fmt.Errorf("delete the state of an earlier agent: %w", err)
	}
	if err := core.ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return fmt.Errorf("delete what an earlier agent applied: %w", err)
	}
	err := m.kube.CoordinationV1().Leases(atoll.SystemNamespace).Delete(ctx, agentLease, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Lease of an earlier agent: %w", err)
	}
	return nil
}

// readConfigMapUID returns the UID of a ConfigMap that the hub ordered.
func (m *Member) readConfigMapUID(ctx context.Context, name string) (types.UID, error) {
	c, err := m.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("the ConfigMap %s in the member: %w", name, err)
	}
	return c.GetUID(), nil
}
