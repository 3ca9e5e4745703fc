package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// notificationRequest returns a write of a Notification of a namespace by ann.
func notificationRequest(t *testing.T, namespace, now, before string) admission.Attributes {
	t.Helper()
	text := func(spec string) runtime.Object {
		return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Notification, metadata: {name: chat, namespace: "+namespace+"}, spec: "+spec+"}")
	}
	op, old := admission.Create, runtime.Object(nil)
	if before != "" {
		op, old = admission.Update, text(before)
	}
	gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Notification"}
	return admission.NewAttributesRecord(text(now), old, gvk, namespace, "chat", gvk.GroupVersion().WithResource("notifications"), "", op, nil, false, &user.DefaultInfo{Name: "ann"})
}

func TestNotificationsThatAreRefused(t *testing.T) {
	const (
		secret, sources, bundles = "ann get secrets shop/chat", "ann get sources.atoll.dev shop/", "ann get bundles.atoll.dev shop/"
		slack                    = "{target: {slack: {secretRef: {name: chat}}}, events: [SourceFailed]}"
		webhook                  = "target: {webhook: {url: 'https://h/a?b=c', secretRef: {name: chat}}}"
		email                    = "from: hub@example.com, to: [team@example.com]"
		noEmail                  = "events: [SourceFailed]}"
	)
	all := []string{secret, sources, bundles}
	for name, c := range map[string]struct {
		namespace, now, before string
		rights                 []string
		want                   string
	}{
		"Slack":                     {"shop", slack, "", all, ""},
		"without the Secret":        {"shop", slack, "", []string{sources}, `spec.target.slack.secretRef: the right to get the Secret "chat" is needed`},
		"a Secret of teams":         {"shop", strings.Replace(slack, "slack", "teams", 1), "", []string{sources}, "spec.target.teams.secretRef"},
		"without the Sources":       {"shop", slack, "", []string{secret, bundles}, "spec.events[0]: the target gets states of sources.atoll.dev: the right to get them is needed, which \"ann\" lacks"},
		"without the Bundles":       {"shop", strings.Replace(slack, "[SourceFailed]", "[SourceFailed, SourceApplied, BundleDegraded]", 1), "", []string{secret, sources}, "spec.events[2]: the target gets states of bundles.atoll.dev"},
		"what stays":                {"shop", strings.Replace(slack, "{target", "{suspend: true, testRequest: '2026-01-02T03:04:05Z', target", 1), slack, nil, ""},
		"another Secret":            {"shop", strings.Replace(slack, "name: chat", "name: other", 1), slack, all, `the right to get the Secret "other" is needed`},
		"other events":              {"shop", strings.Replace(slack, "SourceFailed", "BundleDegraded", 1), slack, []string{sources}, "spec.events[0]"},
		"other events of a kind":    {"shop", strings.Replace(slack, "SourceFailed", "SourceDrifted", 1), slack, []string{sources}, ""},
		"other objects":             {"shop", strings.Replace(slack, "{target", "{objects: {names: ['*']}, target", 1), slack, nil, "spec.events[0]"},
		"clusters":                  {"shop", strings.Replace(slack, "SourceFailed", "ClusterReady", 1), "", all, "spec.events[0]: Forbidden: events of clusters are for Notifications in the namespace atoll-system"},
		"clusters of the system":    {"atoll-system", strings.Replace(slack, "SourceFailed", "ClusterReady", 1), "", []string{"ann get secrets atoll-system/chat", "ann get clusters.atoll.dev /"}, ""},
		"clusters without a right":  {"atoll-system", strings.Replace(slack, "SourceFailed", "ClusterReady", 1), "", []string{"ann get secrets atoll-system/chat"}, "states of clusters.atoll.dev"},
		"ClusterBundles":            {"atoll-system", strings.Replace(slack, "SourceFailed", "BundleDegraded", 1), "", []string{"ann get secrets atoll-system/chat", "ann get bundles.atoll.dev atoll-system/"}, "states of clusterbundles.atoll.dev"},
		"an unknown event":          {"shop", strings.Replace(slack, "SourceFailed", "Other", 1), "", all, "spec.events[0]: Invalid value: \"Other\""},
		"a hidden event":            {"shop", strings.Replace(slack, "SourceFailed", "RolloutBegan", 1), "", all, "spec.events[0]: Invalid value"},
		"a template":                {"shop", strings.Replace(slack, "{target", "{template: 'see {{.Name}}', target", 1), "", all, ""},
		"a loop":                    {"shop", strings.Replace(slack, "{target", "{template: '{{range .Name}}{{end}}', target", 1), "", all, "spec.template: Invalid value: it may have texts, fields, if and else alone"},
		"a field that is not there": {"shop", strings.Replace(slack, "{target", "{template: '{{.Nam}}', target", 1), "", all, "spec.template: Invalid value: there is no field .Nam"},
		"labels":                    {"shop", strings.Replace(slack, "{target", "{objects: {labelSelector: {matchLabels: {a: b}}}, target", 1), "", all, ""},
		"no labels":                 {"shop", strings.Replace(slack, "{target", "{objects: {labelSelector: {}}, target", 1), "", all, "spec.objects.labelSelector: Required value"},
		"bad labels":                {"shop", strings.Replace(slack, "{target", "{objects: {labelSelector: {matchExpressions: [{key: a, operator: Near}]}}, target", 1), "", all, "spec.objects.labelSelector.matchExpressions[0].operator"},
		"a webhook":                 {"shop", "{" + webhook + ", " + noEmail, "", all, ""},
		"a webhook by http":         {"shop", "{" + strings.Replace(webhook, "https", "http", 1) + ", " + noEmail, "", all, "spec.target.webhook.url: Invalid value: must be https://HOST/PATH"},
		"a webhook with a user":     {"shop", "{" + strings.Replace(webhook, "h/a", "ann:hush@h/a", 1) + ", " + noEmail, "", all, "spec.target.webhook.url"},
		"its Secret":                {"shop", "{" + webhook + ", " + noEmail, "", []string{sources}, "spec.target.webhook.secretRef"},
		"mail":                      {"shop", "{target: {email: {host: mail.example.com, " + email + "}}, " + noEmail, "", []string{sources}, ""},
		"mail by an address":        {"shop", "{target: {email: {host: '192.0.2.1', " + email + "}}, " + noEmail, "", all, ""},
		"mail with a login":         {"shop", "{target: {email: {host: h, secretRef: {name: chat}, " + email + "}}, " + noEmail, "", []string{sources}, "spec.target.email.secretRef"},
		"a host with a port":        {"shop", "{target: {email: {host: 'h:25', " + email + "}}, " + noEmail, "", all, "spec.target.email.host"},
		"a sender":                  {"shop", "{target: {email: {host: h, from: 'Hub <hub@example.com>', to: [team@example.com]}}, " + noEmail, "", all, "spec.target.email.from"},
		"a recipient":               {"shop", "{target: {email: {host: h, from: hub@example.com, to: [team@example.com, \"a@example.com\\r\\nBcc: b\"]}}, " + noEmail, "", all, "spec.target.email.to[1]"},
	} {
		err := newGrantingPlugin(Hub{}, c.rights...).validateNotification(t.Context(), notificationRequest(t, c.namespace, c.now, c.before))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: a credential is in the refusal: %v", name, err)
		}
	}
}
