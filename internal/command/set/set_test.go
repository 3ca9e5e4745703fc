package set_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/set"
)

const (
	asia     = "atoll.dev/clustersets/asia"
	account  = "namespaces/atoll-system/serviceaccounts/set-admin-asia"
	role     = "rbac.authorization.k8s.io/clusterroles/atoll:set:asia"
	onSet    = "rbac.authorization.k8s.io/clusterrolebindings/atoll:set:asia"
	clusters = "rbac.authorization.k8s.io/clusterrolebindings/atoll:set-clusters:asia"
)

func run(t *testing.T, h *clienttest.FakeHub, args ...string) (out string, err error) {
	t.Helper()
	return clienttest.RunForOutput(t, h, set.NewCommand, args...)
}

func fieldJSON(t *testing.T, h *clienttest.FakeHub, path, field string) string {
	t.Helper()
	text, err := json.Marshal(h.Object(path)[field])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An existing set keeps its selector, unless another one is stated.
func TestCreateKeepsTheSelector(t *testing.T) {
	admins := []string{"apply " + account, "apply " + role, "apply " + onSet, "apply " + clusters, "post " + account + "/token"}
	for name, c := range map[string]struct {
		there, selector string
		writesSet       bool
		want            string
	}{
		"a new set":                  {"", "", true, "{}"},
		"a new set with a selector":  {"", "tier=edge", true, `{"clusterSelector":{"labelSelector":{"matchLabels":{"tier":"edge"}},"selectorType":"LabelSelector"}}`},
		"an existing one":            {"spec: {clusterSelector: {selectorType: LabelSelector}}", "", false, `{"clusterSelector":{"selectorType":"LabelSelector"}}`},
		"an existing one, stated so": {"spec: {}", "tier=edge", true, `{"clusterSelector":{"labelSelector":{"matchLabels":{"tier":"edge"}},"selectorType":"LabelSelector"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := clienttest.NewFakeHub(t, nil)
			if c.there != "" {
				h.Put(t, asia, c.there)
			}
			args := []string{"create", "asia", "--out", "-"}
			if c.selector != "" {
				args = append(args, "--selector", c.selector)
			}
			if _, err := run(t, h, args...); err != nil {
				t.Fatal(err)
			}
			want := admins
			if c.writesSet {
				want = append([]string{"apply " + asia}, admins...)
			}
			h.ExpectWrites(t, want...)
			if got := fieldJSON(t, h, asia, "spec"); got != c.want {
				t.Errorf("the set is %s, want %s", got, c.want)
			}
		})
	}
}

// Admins get verbs on their set alone, and the shipped role on Clusters.
func TestAdminsGetTheirSetAlone(t *testing.T) {
	h := clienttest.NewFakeHub(t, nil)
	h.Token = "the-token"
	out, err := run(t, h, "create", "asia", "--admin", "aiko", "--admin-group", "ops", "--out", "-")
	if err != nil || !strings.Contains(out, "token: the-token") || strings.Contains(out, "namespace:") {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := fieldJSON(t, h, role, "rules"), `[{"apiGroups":["atoll.dev"],"resourceNames":["asia"],"resources":["clustersets"],"verbs":["manage","bind"]}]`; got != want {
		t.Errorf("the rules are %s, want %s", got, want)
	}
	subjects := `[{"kind":"ServiceAccount","name":"set-admin-asia","namespace":"atoll-system"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"aiko"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"ops"}]`
	for path, name := range map[string]string{onSet: "atoll:set:asia", clusters: "atoll:cluster-admin"} {
		if got := fieldJSON(t, h, path, "subjects"); got != subjects {
			t.Errorf("%s is for %s, want %s", path, got, subjects)
		}
		if got, want := fieldJSON(t, h, path, "roleRef"), `{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+name+`"}`; got != want {
			t.Errorf("%s gives %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{account, role, onSet, clusters} {
		if got := fieldJSON(t, h, path, "metadata"); !strings.Contains(got, `"atoll.dev/set-admins":"asia"`) {
			t.Errorf("%s lacks the label: %s", path, got)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"the set of all clusters": {"default", "atoll:fleet-admins"},
		"a malformed name":        {"Asia", `the set's name "Asia" is malformed`},
		"a long name":             {strings.Repeat("a", 64), "is malformed"},
		"a malformed selector":    {"asia --selector a=b=c", `--selector "a=b=c" is malformed`},
		"a short lifetime":        {"asia --lifetime 1m", "at least 10m"},
	} {
		t.Run(name, func(t *testing.T) {
			h := clienttest.NewFakeHub(t, nil)
			if _, err := run(t, h, append([]string{"create", "--out", "-"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			h.ExpectWrites(t)
		})
	}
}

// Rights end before what they refer to; the set stays unless it is named.
func TestDeleteTakesRightsAway(t *testing.T) {
	objects := map[string]string{asia: "{}", account: "{}", role: "{}", onSet: "{}", clusters: "{}"}
	rights := []string{"delete " + clusters, "delete " + onSet, "delete " + role, "delete " + account}

	h := clienttest.NewFakeHub(t, objects)
	if out, err := run(t, h, "delete", "asia"); err != nil || !strings.Contains(out, "the set and its Clusters stay") {
		t.Errorf("%q, %v", out, err)
	}
	h.ExpectWrites(t, rights...)

	h = clienttest.NewFakeHub(t, objects)
	if out, err := run(t, h, "delete", "asia", "--with-set"); err != nil || !strings.Contains(out, "its Clusters stay") {
		t.Errorf("%q, %v", out, err)
	}
	h.ExpectWrites(t, append(rights, "delete "+asia)...)

	if _, err := run(t, clienttest.NewFakeHub(t, map[string]string{asia: "{}"}), "delete", "asia"); err == nil || !strings.Contains(err.Error(), "nothing to take away") {
		t.Errorf("where nothing is left: %v", err)
	}

	h = clienttest.NewFakeHub(t, objects)
	h.Refuse = map[string]metav1.Status{"delete " + role: {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
	if _, err := run(t, h, "delete", "asia", "--with-set"); err == nil || !strings.Contains(err.Error(), "take away ClusterRole atoll:set:asia of set asia") {
		t.Errorf("refused: %v", err)
	}
	h.ExpectWrites(t, rights[:2]...)
}
