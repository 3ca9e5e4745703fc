package hub

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registerMetrics of the hub as a whole, once in a process. They are read from the
// parts that are published at the time.
func (h *hub) registerMetrics(r prometheus.Registerer) error {
	for _, g := range []struct {
		name, help string
		value      func(p *parts) int
	}{
		{"leading", "Whether this hub decides: 1 or 0. Of several hubs on one etcd, one does.", func(p *parts) int { return number(p.tenure.Leads()) }},
		{"holding", "Whether the hub orders nothing of any member, since it was restored and nobody has decided: 1 or 0.", func(p *parts) int {
			_, holding := p.state.Hub.Holding()
			return number(holding)
		}},
		{"unread_kinds", "Kinds of objects that the hub serves and has not read in full; Bundles with objects of such a kind wait.", func(p *parts) int { return len(p.state.Templates.UnreadKinds()) }},
	} {
		err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "atoll", Subsystem: "hub", Name: g.name, Help: g.help}, func() float64 {
			p, ok := h.late.parts.Get()
			if !ok {
				return 0
			}
			return float64(g.value(p))
		}))
		if err != nil {
			return err
		}
	}
	if err := r.Register(certificateMetrics{h}); err != nil {
		return err
	}
	return nil
}

var (
	certificateEnds = prometheus.NewDesc("atoll_hub_certificate_expiry_timestamp_seconds", "When the hub's CAs and its own certificates end, in Unix seconds.", []string{"certificate"}, nil)
	formerAgents    = prometheus.NewDesc("atoll_hub_agents_of_former_ca", "Agents that are in touch and not known to have certificates of the present CA, while a rotation is under way; 0 else.", nil, nil)
)

// certificateMetrics are of what has to be renewed or rotated. Agents are looked at only
// while a rotation is under way.
type certificateMetrics struct{ *hub }

// Describe is the Collector's.
func (certificateMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- certificateEnds
	out <- formerAgents
}

// Collect is the Collector's.
func (m certificateMetrics) Collect(out chan<- prometheus.Metric) {
	p, ok := m.late.parts.Get()
	if !ok {
		return
	}
	s := p.standing(time.Now(), m.server.Authorities().Rotating())
	for _, c := range s.Certificates {
		out <- prometheus.MustNewConstMetric(certificateEnds, prometheus.GaugeValue, float64(c.Ends.Unix()), c.Name)
	}
	out <- prometheus.MustNewConstMetric(formerAgents, prometheus.GaugeValue, float64(s.Agents.Former))
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}
