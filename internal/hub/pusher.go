package hub

import (
	"fmt"
	"net"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/hub/leader"
	"atoll.dev/atoll/internal/hub/push"
	"atoll.dev/atoll/internal/trust"
)

// pushUser reads the credentials of members whose agents the hub runs. Of what Atoll
// ships, the Role atoll:push alone lets anybody read them.
const pushUser = "system:atoll:push"

// pusher runs agents where this hub decides. They dial its own gateway.
func (h *hub) pusher(p *parts) (*push.Supervisor, error) {
	cfg := leader.Fenced(h.server.LoopbackConfig(), p.tenure, p.presence)
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: pushUser}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of members' credentials: %w", err)
	}
	key := h.server.Keys().HubKey
	return push.New(push.Options{
		Clusters: p.state.Clusters, Secrets: kube.CoreV1().Secrets(atoll.SystemNamespace),
		Hub: h.door.here(bindAddress(h.o)), Pins: func() []string { return h.server.Authorities().Pins() },
		Voucher: func(cluster, uid string) string { return trust.NewVoucher(key, cluster, uid).Reveal() },
		Pushed:  p.inventory.Pushed, Metrics: legacyregistry.Registerer(), Log: h.log.With("component", "push"),
	}), nil
}

// here is the address of the gateway for who is in its own process.
func (d *door) here(bound string) string {
	if ip := net.ParseIP(bound); ip != nil && ip.IsUnspecified() {
		bound = "127.0.0.1"
		if ip.To4() == nil {
			bound = "::1"
		}
	}
	return net.JoinHostPort(bound, strconv.Itoa(portOf(d.listener)))
}
