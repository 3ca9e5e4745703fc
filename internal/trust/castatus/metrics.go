package castatus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
)

var (
	certificateExpiryDesc = metrictable.HubCertificate.NewDesc()
	formerAgentsDesc      = metrictable.HubFormerCAAgent.NewDesc()
)

// CertificateCollector collects the metrics of certificates. Reporter returns false before the hub's tables
// are read; no metric exists until then.
type CertificateCollector struct {
	Reporter func() (*CAReporter, bool)
}

// Describe implements prometheus.Collector.
func (CertificateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- certificateExpiryDesc
	out <- formerAgentsDesc
}

// Collect implements prometheus.Collector.
func (m CertificateCollector) Collect(out chan<- prometheus.Metric) {
	r, ok := m.Reporter()
	if !ok {
		return
	}
	s := r.currentStatus(time.Now())
	for _, c := range s.Certificates {
		out <- prometheus.MustNewConstMetric(certificateExpiryDesc, prometheus.GaugeValue, float64(c.Ends.Unix()), c.Name)
	}
	out <- prometheus.MustNewConstMetric(formerAgentsDesc, prometheus.GaugeValue, float64(s.Agents.Former))
}
