package hub

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/hub/push"
	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/trust"
)

// pushUser reads the credentials of members whose agents the hub runs. Of what Atoll
// ships, the Role atoll:push alone lets anybody read them.
const pushUser = "system:atoll:push"

// shareEvery is how often it is looked which hubs serve agents, as hubs tell each other.
const shareEvery = time.Second

// pusher runs agents, of several hubs this one's share of them. They dial its own gateway.
func (h *hub) pusher(p *parts) (*push.Supervisor, error) {
	cfg := rest.CopyConfig(p.presence.Fenced(h.server.LoopbackConfig()))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: pushUser}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of members' credentials: %w", err)
	}
	key := h.server.Keys().HubKey
	self := ""
	if h.several() {
		self = h.door.self
	}
	return push.New(push.Options{
		Self: self, Runner: fleetName(key) + "@" + h.door.self,
		Clusters: p.state.Clusters, Secrets: kube.CoreV1().Secrets(atoll.SystemNamespace),
		Hub: h.door.here(bindAddress(h.o)), Pins: func() []string { return h.server.Authorities().Pins() },
		Voucher: func(cluster, uid string) string { return trust.NewVoucher(key, cluster, uid).Reveal() },
		Pushed:  p.inventory.Pushed, Tell: p.tell, Metrics: legacyregistry.Registerer(), Log: h.log.With("component", "push"),
	}), nil
}

// fleetName is a word that only hubs with the key have in common. The key is not to be had
// from it.
func fleetName(key []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("the hubs whose agents hold members' Leases")) // never fails
	return "atoll-hub-" + hex.EncodeToString(mac.Sum(nil)[:4])
}

// pushShare runs this hub's share of the agents until ctx ends. A hub that is out of touch
// with the store serves none, and runs none: others do.
func (p *parts) pushShare(ctx context.Context) error {
	return together(ctx, p.push.Run, func(ctx context.Context) error {
		tick := time.NewTicker(shareEvery)
		defer tick.Stop()
		for known := time.Now().Add(2 * peer.Grace); ; {
			// One that just started may not have heard of the others as yet.
			if p.peers.Complete() || time.Now().After(known) {
				known = time.Time{}
				p.push.Share(p.peers.Serving())
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
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
