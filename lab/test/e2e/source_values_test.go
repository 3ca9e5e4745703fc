package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// A chart takes values of a ConfigMap and a Secret of the hub. A Source without one is held, other values come to members without a
// commit, and nothing that people read of the Source has a value of the Secret.
func TestSourceReadsValuesOfTheHub(t *testing.T) {
	ns := createNamespace(t, "values")
	g := newGitServer(t)
	g.commit(t, "a chart", map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: {{ .Values.colour }}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: {{ .Values.password }}}\n",
	})
	values := func(kind, name, data string) {
		t.Helper()
		mustKubectl(t, "apiVersion: v1\nkind: "+kind+"\nmetadata: {name: "+name+", namespace: "+ns+", annotations: {atoll.dev/clusters: \"\"}}\n"+data+"\n", "apply -f -")
	}
	values("ConfigMap", "shop-values", `data: {values.yaml: "colour: red"}`)
	runCLI(t, "source", "create", "git", g.URL+"/shop.git", "--name", "shop", "-n", ns, "--clusters", "region in (eu,us)", "--yes")
	mustKubectl(t, "", "patch source shop -n "+ns+` --type=merge -p {"spec":{"build":{"helm":{"valuesFrom":[{"kind":"ConfigMap","name":"shop-values"},{"kind":"Secret","name":"shop-login","key":"login.yaml"}]}}}}`)
	shows := func(what, want string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := runCLI(t, "source", "get", "shop", "-n", ns)
			if strings.Contains(out, "hush") {
				t.Errorf("a value of the Secret is shown:\n%s", out)
			}
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in:\n%s", want, out)
			}
			return nil
		})
	}
	member := func(kind, name, want string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, "member1", "v1", kind, ns, name)
			if err != nil || o == nil || fmt.Sprint(o.Object["data"]) != want {
				return fmt.Errorf("%s %s is not as wanted (%v)", kind, name, err)
			}
			return nil
		}
	}
	encoded := func(text string) string {
		return "map[password:" + base64.StdEncoding.EncodeToString([]byte(text)) + "]"
	}
	shows("the missing Secret holds the Source", "ValuesMissing")
	values("Secret", "shop-login", `stringData: {login.yaml: "password: hush-1"}`)
	testwait.UntilNil(t, "the values come to members", allChecks(member("ConfigMap", "settings", "map[colour:red]"), member("Secret", "login", encoded("hush-1"))))
	values("Secret", "shop-login", `stringData: {login.yaml: "password: hush-2"}`)
	values("ConfigMap", "shop-values", `data: {values.yaml: "colour: blue"}`)
	testwait.UntilNil(t, "other values come to members without a commit", allChecks(member("ConfigMap", "settings", "map[colour:blue]"), member("Secret", "login", encoded("hush-2"))))
	mustKubectl(t, "", "delete secret shop-login -n "+ns)
	shows("the Secret is missed", "ValuesMissing")
	if err := allChecks(member("ConfigMap", "settings", "map[colour:blue]"), member("Secret", "login", encoded("hush-2")))(t.Context()); err != nil {
		t.Errorf("what ran stays: %v", err)
	}
}
