package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// The hub sends requests of gates by http and https alone, to a host, and takes no credentials out of a URL.
func TestURLsOfGates(t *testing.T) {
	for text, want := range map[string]string{
		"https://h:9090/prefix": "<nil>", "http://h": "<nil>", "ftp://h": "must begin with https:// or http://", "h": "must begin with",
		"https://ann:hush@h": "may not have credentials", "https:///x": "names no host", "https://[fe80::1%25eth0]/": "zone", "https://h/#x": "may not have a query or a fragment",
		"https://h/\n": "is no URL", "https://" + strings.Repeat("x", 1024): "Too long", "https://h/?x=1": "server: Invalid value: may not have a query",
	} {
		r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "a", GatesAfter: []v1alpha1.RolloutGate{
			{Name: "errors", Prometheus: &v1alpha1.PrometheusGate{Server: text}}, {Name: "tests", Webhook: &v1alpha1.WebhookGate{URL: text}},
		}}}}
		got := fmt.Sprint(checkGateURLs(r, field.NewPath("at")).ToAggregate())
		if !strings.Contains(got, want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if isQuery := strings.Contains(text, "?"); want != "<nil>" && strings.Contains(got, "at.stages[0].gatesAfter[1].webhook.url") == isQuery {
			t.Errorf("%s as a webhook: %s", text, got)
		}
	}
}
