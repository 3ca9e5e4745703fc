package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// monitoringDir holds the rules and dashboards that test/monitoring tests.
var monitoringDir = filepath.Join(chartsDir, "atoll-hub", "files", "monitoring")

// renderMonitoring returns the objects that the values add to those of the hub's chart, by kind.
func renderMonitoring(t *testing.T, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := renderChart(t, "atoll-hub", "atoll", "{gatewayAddress: 'hub.example:6444', monitoring: "+values+"}")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ParseObjects(text)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" || strings.HasSuffix(o.GetName(), "-dashboards") {
			out[o.GetKind()] = o
		}
	}
	return out
}

// TestMonitoringHasTheTestedFiles: the chart's objects hold the rules and dashboards as they are in
// the files, with the template marks of alerts.
func TestMonitoringHasTheTestedFiles(t *testing.T) {
	objects := renderMonitoring(t, "{rules: {create: true, labels: {release: prometheus}}, dashboards: {create: true}}")
	raw, err := os.ReadFile(filepath.Join(monitoringDir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	rule := objects["PrometheusRule"]
	if rule == nil || rule.GetLabels()["release"] != "prometheus" || !reflect.DeepEqual(rule.Object["spec"], want) {
		t.Errorf("the rules of the chart are not those of rules.yaml: %v", rule)
	}
	dashboards, err := filepath.Glob(filepath.Join(monitoringDir, "dashboards", "*.json"))
	if err != nil || len(dashboards) < 2 {
		t.Fatalf("%d dashboards: %v", len(dashboards), err)
	}
	config := objects["ConfigMap"]
	if config == nil || config.GetLabels()["grafana_dashboard"] != "1" {
		t.Fatalf("no dashboards for Grafana's sidecar: %v", config)
	}
	for _, file := range dashboards {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := unstructured.NestedString(config.Object, "data", filepath.Base(file))
		if err != nil || strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			t.Errorf("the chart has another dashboard %s: %v", filepath.Base(file), err)
		}
	}
}

// TestServiceMonitor: the ServiceMonitor selects exactly the Service with the address of each hub,
// and sends a token only to a server whose certificate is verified.
func TestServiceMonitor(t *testing.T) {
	objects := renderMonitoring(t, "{serviceMonitor: {create: true, authorization: {existingSecret: prometheus}, ca: {existingSecret: hub-ca}}}")
	monitor := objects["ServiceMonitor"]
	if monitor == nil {
		t.Fatal("no ServiceMonitor")
	}
	labels, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if err != nil || len(labels) == 0 {
		t.Fatalf("it selects by %v: %v", labels, err)
	}
	text, err := renderChart(t, "atoll-hub", "atoll", "{gatewayAddress: 'hub.example:6444'}")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseObjects(text)
	if err != nil {
		t.Fatal(err)
	}
	var selected []string
	for _, o := range all {
		if o.GetKind() == "Service" && hasLabels(o.GetLabels(), labels) {
			selected = append(selected, o.GetName())
		}
	}
	if !reflect.DeepEqual(selected, []string{"atoll-hub-pods"}) {
		t.Errorf("the ServiceMonitor selects %v", selected)
	}
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("endpoints %v: %v", endpoints, err)
	}
	tls, _, err := unstructured.NestedMap(endpoints[0].(map[string]any), "tlsConfig")
	want := map[string]any{"serverName": "atoll-hub", "ca": map[string]any{"secret": map[string]any{"name": "hub-ca", "key": "ca.crt"}}}
	if err != nil || !reflect.DeepEqual(tls, want) {
		t.Errorf("TLS is %v, want %v (%v)", tls, want, err)
	}
	for name, values := range map[string]string{
		"no token":      "{serviceMonitor: {create: true}}",
		"an interval":   "{serviceMonitor: {create: true, interval: often, authorization: {existingSecret: prometheus}}}",
		"another field": "{serviceMonitor: {create: true, insecure: true, authorization: {existingSecret: prometheus}}}",
	} {
		if _, err := renderChart(t, "atoll-hub", "atoll", "{gatewayAddress: 'hub.example:6444', monitoring: "+values+"}"); err == nil {
			t.Errorf("%s: rendered", name)
		}
	}
	if objects := renderMonitoring(t, "{}"); objects["ServiceMonitor"] != nil || objects["PrometheusRule"] != nil || objects["ConfigMap"] != nil {
		t.Error("objects of the Prometheus Operator are rendered by default")
	}
}

// TestPodMonitor: it selects the agent's pod and its port, which must be open.
func TestPodMonitor(t *testing.T) {
	const joining = "join: {existingSecret: joining}"
	text, err := renderChart(t, "atoll-agent", "atoll-system", "{"+joining+", metrics: {enabled: true, podMonitor: {create: true, interval: 1m, labels: {release: prometheus}}}}")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ParseObjects(text)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		kinds[o.GetKind()] = o
	}
	monitor, deployment := kinds["PodMonitor"], kinds["Deployment"]
	if monitor == nil || monitor.GetLabels()["release"] != "prometheus" {
		t.Fatalf("the PodMonitor is %v", monitor)
	}
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if err != nil {
		t.Fatal(err)
	}
	pod, _, err := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
	if err != nil || len(selector) == 0 || !hasLabels(pod, selector) {
		t.Errorf("it selects %v, and the pod has %v (%v)", selector, pod, err)
	}
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
	if err != nil || !reflect.DeepEqual(endpoints, []any{map[string]any{"port": "metrics", "path": "/metrics", "interval": "1m"}}) {
		t.Errorf("it reads %v (%v)", endpoints, err)
	}
	if _, err := renderChart(t, "atoll-agent", "atoll-system", "{"+joining+", metrics: {podMonitor: {create: true}}}"); err == nil {
		t.Error("a PodMonitor of a closed port is rendered")
	}
}

func hasLabels(labels, want map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return true
}
