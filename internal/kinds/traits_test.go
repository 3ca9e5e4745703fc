package kinds_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/kinds"
)

// Kubernetes serves these groups itself, so their unknown kinds are no custom kinds.
func TestGroupsOfKubernetesAreNotCustom(t *testing.T) {
	for _, group := range []string{"", "apps", "batch", "autoscaling", "policy", "events.k8s.io", "networking.k8s.io", "rbac.authorization.k8s.io",
		"storage.k8s.io", "scheduling.k8s.io", "node.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "admissionregistration.k8s.io",
		"apiextensions.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io", "flowcontrol.apiserver.k8s.io", "resource.k8s.io",
		"storagemigration.k8s.io", "internal.apiserver.k8s.io"} {
		if kinds.IsCustomKind(schema.GroupKind{Group: group, Kind: "Later"}) {
			t.Errorf("group %q is custom", group)
		}
	}
	if !kinds.IsCustomKind(schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "Gateway"}) {
		t.Error("the Gateway API is not custom")
	}
}

// Agents read the metadata alone of objects that are healthy by existence.
func TestKindsThatAreHealthyByExistence(t *testing.T) {
	for gk, want := range map[schema.GroupKind]bool{
		{Kind: "Namespace"}: true, {Kind: "ServiceAccount"}: true, {Kind: "ConfigMap"}: true, {Kind: "Secret"}: true,
		{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                              true,
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: true,
		{Kind: "Pod"}: false, {Kind: "Service"}: false, {Group: "apps", Kind: "Deployment"}: false,
		{Group: "example.com", Kind: "Toy"}: false,
	} {
		if got := kinds.IsHealthyByExistence(gk); got != want {
			t.Errorf("%v: %v, want %v", gk, got, want)
		}
	}
}

func TestTargetsOfAutoscalers(t *testing.T) {
	const hpa = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web, namespace: shop}\n"
	for text, want := range map[string]string{
		hpa + "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}":                                                         "Deployment.apps web true",
		hpa + "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment}}":                                                                    "Deployment.apps  false",
		hpa + "spec: {scaleTargetRef: {apiVersion: apps/v1, name: web}}":                                                                           ".apps web false",
		hpa + "spec: {scaleTargetRef: {apiVersion: a/b/c, kind: Deployment, name: web}}":                                                           "Deployment web false",
		strings.Replace(hpa, "HorizontalPodAutoscaler", "Other", 1) + "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}": "  false",
	} {
		gk, name, ok := kinds.AutoscalerTarget(parseObject(t, text))
		if got := fmt.Sprint(gk, " ", name, " ", ok); got != want {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
}

// A row has space for eight gateways of an object.
func TestRowsReportEightGateways(t *testing.T) {
	entries := make([]string, 9)
	for i := range entries {
		entries[i] = fmt.Sprintf("{parentRef: {name: g%d}, controllerName: example.com/c, conditions: [{type: Accepted, status: 'True', reason: Accepted, observedGeneration: 2}]}", i)
	}
	route := parseObject(t, routeHead+"status: {parents: ["+strings.Join(entries, ", ")+"]}")
	var reflected struct {
		A []any `json:"a"`
	}
	if err := json.Unmarshal(kinds.ReflectStatus(route), &reflected); err != nil || len(reflected.A) != 8 {
		t.Errorf("%d gateways, %v", len(reflected.A), err)
	}
}

// The status of an unknown kind is that of the cluster with the fewest positive conditions.
func TestFewerPositiveConditionsAreLessFinished(t *testing.T) {
	first := toyHead + "status: {conditions: [{type: Ready, status: 'True'}, {type: Synced, status: 'True'}]}"
	second := toyHead + "status: {conditions: [{type: Ready, status: 'True'}, {type: Custom, status: 'True'}, {type: Stalled, status: 'False'}]}"
	rows := []kinds.RowItem{reportRow("ca", parseObject(t, first)), reportRow("cb", parseObject(t, second))}
	status, ok := kinds.AggregateStatus(parseObject(t, toyHead), false, rows, 1, 0)
	if text := asJSON(status); !ok || !strings.Contains(text, "Custom") || strings.Contains(text, "Synced") {
		t.Errorf("%s, %v", text, ok)
	}
}

// The API server requires an update time in each condition of a Deployment.
func TestConditionsOfDeploymentsHaveAnUpdateTime(t *testing.T) {
	status, ok := kinds.AggregateStatus(parseObject(t, web2), false, []kinds.RowItem{reportRow("ca", parseObject(t, web2Half))}, 2, 0)
	conditions := kinds.StatusAndParentConditions(status)
	if !ok || len(conditions) < 2 {
		t.Fatalf("%v, %v", status, ok)
	}
	for _, c := range conditions {
		if at, has := c["lastUpdateTime"]; !has || at != kinds.TimePlaceholder {
			t.Errorf("%v has the update time %v", c["type"], at)
		}
	}
}
