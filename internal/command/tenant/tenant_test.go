package tenant_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/tenant"
)

const (
	asia      = "atoll.dev/clustersets/asia"
	namespace = "namespaces/shop"
	account   = "namespaces/atoll-system/serviceaccounts/tenant-shop"
	team      = "rbac.authorization.k8s.io/namespaces/shop/rolebindings/atoll:tenant"
	viewers   = "rbac.authorization.k8s.io/namespaces/shop/rolebindings/atoll:tenant-viewers"
	binding   = "atoll.dev/namespaces/shop/clustersetbindings/"
)

// run runs the command; out is what it prints.
func run(t *testing.T, h *clienttest.FakeHub, args ...string) (out string, err error) {
	t.Helper()
	return clienttest.RunForOutput(t, h, tenant.NewCommand, args...)
}

// A namespace is bound before anyone may write in it, and the token comes last.
func TestATenantIsMadeInOrder(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{asia: "{}"})
	h.Token = "the-token"
	out, err := run(t, h, "create", "shop", "--set", "asia", "--user", "aiko", "--group", "devs", "--viewer-group", "support", "--out", "-")
	if err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "apply "+namespace, "apply "+binding+"asia", "apply "+account, "apply "+team, "apply "+viewers, "post "+account+"/token")
	if !strings.Contains(out, "token: the-token") || !strings.Contains(out, "namespace: shop") {
		t.Errorf("the kubeconfig is %s", out)
	}
	for path, want := range map[string]string{
		namespace:        `{"atoll.dev/tenant":"shop"}`,
		binding + "asia": `{"atoll.dev/tenant":"shop"} {"clusterSet":"asia"}`,
		team: `{"atoll.dev/tenant":"shop"} {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"atoll:application-team"} ` +
			`[{"kind":"ServiceAccount","name":"tenant-shop","namespace":"atoll-system"},{"kind":"ServiceAccount","name":"atoll-sources","namespace":"shop"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"aiko"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"devs"}]`,
		viewers: `{"atoll.dev/tenant":"shop"} {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"atoll:viewer"} [{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"support"}]`,
	} {
		o := h.Object(path)
		if o == nil {
			t.Errorf("there is no %s", path)
			continue
		}
		var got []string
		for _, field := range []any{o["metadata"].(map[string]any)["labels"], o["spec"], o["roleRef"], o["subjects"]} {
			if field != nil {
				text, err := json.Marshal(field)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(text))
			}
		}
		if is := strings.Join(got, " "); is != want {
			t.Errorf("%s is\n%s, want\n%s", path, is, want)
		}
	}
}

// A set that an earlier create bound and this one does not name is unbound, once the rest is there.
// Bindings of others stay.
func TestASecondCreateUnbindsOtherSets(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{
		asia: "{}", namespace: "metadata: {labels: {atoll.dev/tenant: shop}}",
		binding + "asia":   "{metadata: {labels: {atoll.dev/tenant: shop}}, spec: {clusterSet: asia}}",
		binding + "europe": "{metadata: {labels: {atoll.dev/tenant: shop}}, spec: {clusterSet: europe}}",
		binding + "manual": "spec: {clusterSet: africa}",
	})
	if _, err := run(t, h, "create", "shop", "--set", "asia", "--out", "-"); err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "apply "+namespace, "apply "+binding+"asia", "apply "+account, "apply "+team, "apply "+viewers,
		"delete "+binding+"europe", "post "+account+"/token")
	if h.Object(binding+"manual") == nil {
		t.Error("the binding of another author is gone")
	}
}

func TestCreateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		objects map[string]string
		args    string
		want    string
	}{
		"no set":                    {nil, "shop", "with --set"},
		"a set that is not there":   {nil, "shop --set asia", `there is no cluster set "asia"`},
		"a malformed name":          {nil, "Shop --set asia", `the tenant's name "Shop" is malformed`},
		"a malformed namespace":     {nil, "shop --namespace a.b --set asia", `the namespace "a.b" is malformed`},
		"the default namespace":     {nil, "default --set asia", "the hub's own"},
		"the hub's namespace":       {nil, "shop --namespace atoll-system --set asia", "the hub's own"},
		"a namespace of Kubernetes": {nil, "shop --namespace kube-x --set asia", "the hub's own"},
		"a short lifetime":          {nil, "shop --set asia --lifetime 9m59s", "at least 10m"},
		"a foreign namespace":       {map[string]string{asia: "{}", namespace: "{}"}, "shop --set asia", "is no tenant's"},
		"another tenant's":          {map[string]string{asia: "{}", namespace: "metadata: {labels: {atoll.dev/tenant: mall}}"}, "shop --set asia", "is tenant mall's"},
		"one that is being deleted": {map[string]string{asia: "{}", namespace: "metadata: {deletionTimestamp: 2026-01-01T00:00:00Z, labels: {atoll.dev/tenant: shop}}"}, "shop --set asia", "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			h := clienttest.NewFakeHub(t, c.objects)
			if _, err := run(t, h, append([]string{"create", "--out", "-"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			h.ExpectWrites(t)
		})
	}
}

// A create that is refused half-way hands out no token.
func TestARefusedWriteEndsCreate(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{asia: "{}"})
	h.Refuse = map[string]metav1.Status{"apply " + team: {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
	_, err := run(t, h, "create", "shop", "--set", "asia", "--out", "-")
	if err == nil || !strings.Contains(err.Error(), "make RoleBinding atoll:tenant of tenant shop") {
		t.Errorf("%v", err)
	}
	h.ExpectWrites(t, "apply "+namespace, "apply "+binding+"asia", "apply "+account)
}

func newFleet(t *testing.T) *clienttest.FakeHub {
	return clienttest.NewFakeHub(t, map[string]string{
		namespace: "metadata: {labels: {atoll.dev/tenant: shop}}",
		account:   "{}",
		team:      "{metadata: {labels: {atoll.dev/tenant: shop}}, subjects: [{kind: User, name: aiko}, {kind: Group, name: devs}]}",
		viewers:   "{metadata: {labels: {atoll.dev/tenant: shop}}, subjects: [{kind: Group, name: support}]}",
		"rbac.authorization.k8s.io/namespaces/shop/rolebindings/own": "{metadata: {labels: {atoll.dev/tenant: shop}}, subjects: [{kind: User, name: other}]}",
		binding + "b":          "{metadata: {labels: {atoll.dev/tenant: shop}}, spec: {clusterSet: europe}}",
		binding + "a":          "{metadata: {labels: {atoll.dev/tenant: shop}}, spec: {clusterSet: asia}}",
		"namespaces/mall":      "metadata: {labels: {atoll.dev/tenant: mall}}",
		"namespaces/old":       "metadata: {deletionTimestamp: 2026-01-01T00:00:00Z, labels: {atoll.dev/tenant: old}}",
		"namespaces/unrelated": "{}",
	})
}

func TestListShowsAccess(t *testing.T) {
	out, err := run(t, newFleet(t), "list", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Name, Namespace, State string
		Sets, Subjects         []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var lines []string
	for _, l := range got {
		lines = append(lines, strings.Join([]string{l.Name, l.Namespace, l.State, strings.Join(l.Sets, ","), strings.Join(l.Subjects, ",")}, " "))
	}
	if want := []string{"mall mall NoAccess  ", "old old Terminating  ", "shop shop Active asia,europe User/aiko,Group/devs"}; !slices.Equal(lines, want) {
		t.Errorf("listed %q, want %q", lines, want)
	}
	if out, err := run(t, clienttest.NewFakeHub(t, nil), "list"); err != nil || !strings.Contains(out, "no tenants") {
		t.Errorf("without tenants: %q, %v", out, err)
	}
}

// The access ends; what runs stays, unless its namespace is named.
func TestDeleteTakesAccessAway(t *testing.T) {
	h := newFleet(t)
	if out, err := run(t, h, "delete", "shop"); err != nil || !strings.Contains(out, "what it placed stay") {
		t.Errorf("%q, %v", out, err)
	}
	h.ExpectWrites(t, "delete "+account, "delete "+team, "delete "+viewers)

	h = newFleet(t)
	if out, err := run(t, h, "delete", "shop", "--with-namespace"); err != nil || !strings.Contains(out, "goes with namespace shop") {
		t.Errorf("%q, %v", out, err)
	}
	h.ExpectWrites(t, "delete "+account, "delete "+team, "delete "+viewers, "delete "+namespace)

	h = newFleet(t)
	if _, err := run(t, h, "delete", "unrelated", "--with-namespace"); err == nil || !strings.Contains(err.Error(), `no tenant "unrelated"`) {
		t.Errorf("of a namespace that is no tenant's: %v", err)
	}
	h.ExpectWrites(t)
}

// The output of create says where objects go that no policy selects.
func TestCreateDescribesTheDefaultPlacement(t *testing.T) {
	const settings = "atoll.dev/hubsettings/hub"
	for spec, want := range map[string]string{
		"":   "stays on the hub. To send it to all clusters of these sets:\n  kubectl patch hubsettings hub ",
		"{}": "stays on the hub.",
		"{spec: {defaultPlacement: {type: None}}}":                   "stays on the hub.",
		"{spec: {defaultPlacement: {type: All}}}":                    "An object that no policy selects goes to all clusters of these sets.\n",
		"{spec: {defaultPlacement: {type: ClusterSet, name: edge}}}": "goes to those clusters of these sets that ClusterSet edge has.",
	} {
		objects := map[string]string{asia: "{}"}
		if spec != "" {
			objects[settings] = spec
		}
		h := clienttest.NewFakeHub(t, objects)
		h.Token = "the-token"
		out, err := run(t, h, "create", "shop", "--set", "asia", "--out", t.TempDir()+"/kubeconfig")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("with settings %q it says %q (%v), not %q", spec, out, err, want)
		}
	}
}
