package policy

import (
	"strings"
	"testing"
)

func TestServiceAccountsThatTheHubNames(t *testing.T) {
	const required, own = "requires a ServiceAccount for each object (spec.namedServiceAccount): name one on the hub", "requires a ServiceAccount of the object's own namespace (spec.namedServiceAccount)"
	for _, c := range []struct{ what, spec, object, account, refuse string }{
		{"no limits", "{}", deployment, "", ""},
		{"no limits, any account", "{}", deployment, "kube-system/x", ""},
		{"Optional", "{namedServiceAccount: Optional}", deployment, "", ""},
		{"Required, none", "{namedServiceAccount: Required}", deployment, "", required},
		{"Required, any", "{namedServiceAccount: Required}", deployment, "kube-system/x", ""},
		{"OwnNamespace, none", "{namedServiceAccount: OwnNamespace}", deployment, "", own},
		{"OwnNamespace, another", "{namedServiceAccount: OwnNamespace}", deployment, "kube-system/x", own},
		{"OwnNamespace, a longer name", "{namedServiceAccount: OwnNamespace}", deployment, "shop-2/x", own},
		{"OwnNamespace", "{namedServiceAccount: OwnNamespace}", deployment, "shop/x", ""},
		{"OwnNamespace, of the namespace itself", "{namedServiceAccount: OwnNamespace}", namespace, "shop/x", ""},
		{"OwnNamespace, cluster-scoped", "{namedServiceAccount: OwnNamespace}", role, "shop/x", own},
	} {
		got := read(t, c.spec).NamedAccountRefusal(parseKey(c.object), c.account)
		if (got == "") != (c.refuse == "") || !strings.Contains(got, c.refuse) {
			t.Errorf("%s: %q, want %q", c.what, got, c.refuse)
		}
	}
	if got := (*Policy)(nil).NamedAccountRefusal(parseKey(deployment), ""); got != "" {
		t.Errorf("without a policy: %s", got)
	}
	if got := read(t, "{namedServiceAccount: Perhaps}").ApplyRefusal(parseKey(deployment), Namespace{}); !strings.Contains(got, `spec.namedServiceAccount: "Perhaps" has no meaning`) {
		t.Errorf("a value that is not known: %s", got)
	}
}
