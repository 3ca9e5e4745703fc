package payloads

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/quarantine"
)

// NewAccounts returns the accounts of what Bundles cost, and registers their metrics. Each quarantine
// is one line of the log.
func NewAccounts(r prometheus.Registerer, log *slog.Logger) *quarantine.RenderAccounts {
	warnOfWallTime(readThreadTime, log)
	accounts, begun := quarantine.NewAccounts(), metrictable.GatewayQuarantines.NewCounter()
	r.MustRegister(begun, metrictable.GatewayQuarantined.NewGaugeFunc(func() float64 { return float64(accounts.CountSetAside()) }))
	accounts.Subscribe(func(b enginev1.BundleRef, q quarantine.Quarantine) {
		begun.Inc()
		log.Error("a bundle costs too much and is quarantined; members keep what they have, and the hub tries again",
			"namespace", b.Namespace, "bundle", b.Name, "revision", q.Revision, "cost", q.Cost, "until", q.Until)
	})
	return accounts
}
