package hub

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/push"
	"atoll.dev/atoll/internal/trust"
)

// pushUser reads the credentials of members whose agents the hub runs. Only the shipped Role
// atoll:push has that right.
const pushUser = "system:atoll:push"

// newPushSupervisor runs agents, of several hubs this one's share of them. They dial its own gateway.
func (h *hub) newPushSupervisor(p *components) (*push.AgentSupervisor, error) {
	cfg := rest.CopyConfig(p.presence.FencedConfig(h.server.LoopbackConfig()))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: pushUser}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of members' credentials: %w", err)
	}
	key := h.server.KeySet().HubKey
	allowed, err := addressguard.ParseNetworks(h.options.PushAllowedCIDRs)
	if err != nil {
		return nil, fmt.Errorf("--push-allowed-cidrs: %w", err)
	}
	self := ""
	if h.sharesEtcd() {
		self = h.gateway.SelfAddress()
	}
	return push.New(push.Options{
		Self: self, Runner: push.FleetName(key) + "@" + h.gateway.SelfAddress(),
		Clusters: p.state.Clusters, Secrets: kube.CoreV1().Secrets(atoll.SystemNamespace),
		Hub: h.gateway.LocalAddress(), Credentials: pushCredentials{h.server}, AllowedNetworks: allowed, Inventory: p.inventory, NotifyAdmin: p.recordClusterEvent, Metrics: legacyregistry.Registerer(), Log: h.log.With("component", "push"),
	}), nil
}

// pushCredentials are of the hub's server.
type pushCredentials struct{ *apiserver.Server }

func (c pushCredentials) CAPins() []string { return c.CurrentAuthorities().CAPins() }

func (c pushCredentials) NewVoucher(cluster, uid string) string {
	return trust.NewVoucher(c.KeySet().HubKey, cluster, uid).RevealSecret()
}
