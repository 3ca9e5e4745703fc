// Package metricpage renders docs/metrics.md from the table of metrics.
//
// Contract: pure, and may be called concurrently. The same table gives the same page.
package metricpage

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/metrictable"
)

//go:generate go run ./generate ../../docs/metrics.md

// inKubernetes describes the charts' objects.
const inKubernetes = `
## In Kubernetes

The charts can create the objects of the Prometheus Operator, and a ConfigMap for the dashboard sidecar of
Grafana. None is created by default.

| Value | Object |
|---|---|
| ` + "`monitoring.serviceMonitor.create`" + ` of atoll-hub | a ServiceMonitor for each hub's API |
| ` + "`monitoring.rules.create`" + ` of atoll-hub | a PrometheusRule with the rules and alerts |
| ` + "`monitoring.dashboards.create`" + ` of atoll-hub | a ConfigMap with both dashboards |
| ` + "`metrics.podMonitor.create`" + ` of atoll-agent, with ` + "`metrics.enabled`" + ` | a PodMonitor for the agent |

A hub answers ` + "`/metrics`" + ` only to users with the right. The ServiceMonitor needs a Secret with a token, and one
with the CA of the hub's API:

` + "```" + `
$ kubectl --kubeconfig hub.kubeconfig -n atoll-system create serviceaccount prometheus
$ kubectl --kubeconfig hub.kubeconfig create clusterrolebinding prometheus --clusterrole system:monitoring --serviceaccount atoll-system:prometheus
$ kubectl -n atoll create secret generic prometheus --from-literal token="$(kubectl --kubeconfig hub.kubeconfig -n atoll-system create token prometheus --duration 8760h)"
$ kubectl --kubeconfig hub.kubeconfig config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > ca.crt
$ kubectl -n atoll create secret generic hub-ca --from-file ca.crt
$ helm upgrade hub deploy/charts/atoll-hub -n atoll --reset-then-reuse-values --set monitoring.serviceMonitor.create=true \
    --set monitoring.serviceMonitor.authorization.existingSecret=prometheus --set monitoring.serviceMonitor.ca.existingSecret=hub-ca
` + "```" + `
`

// RenderMetricPage returns the page in Markdown.
func RenderMetricPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n`internal/metrictable` declares every metric of Atoll; `make generate` writes this page. " +
		"No label holds the name of a cluster, of an object or of a user. " +
		"Prometheus rules and Grafana dashboards are in `deploy/charts/atoll-hub/files/monitoring`.\n")
	for _, program := range []struct {
		title, text string
		metrics     []metrictable.Definition
	}{
		{"Hub", "The API's port serves them at `/metrics`, beside those of Kubernetes' API server and of Go.", metrictable.HubMetrics()},
		{"Agent", "`atoll agent --metrics-address HOST:PORT` serves them at `/metrics`, beside those of Go.", metrictable.AgentMetrics()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n", program.title, program.text)
		for _, m := range program.metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
		}
	}
	b.WriteString(inKubernetes)
	return b.String()
}
