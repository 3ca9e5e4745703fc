package charts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	firstToken  = "atoll1.aaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbb"
	secondToken = "atoll1.cccccccccc.dddddddddddddddddddddddddd"
)

// TestARemovedTokenIsNotRendered: a release renders no token that the agent has removed, and no
// token is required then. A new token is rendered, and restarts the agent.
func TestARemovedTokenIsNotRendered(t *testing.T) {
	for name, c := range map[string]struct {
		removed, token string // removed "-": there is no Secret
		want, restarts string
		fails          string
	}{
		"an installation":               {"-", firstToken, firstToken, "aaaaaaaaaa", ""},
		"a token with blanks":           {"-", firstToken + "\n", firstToken, "aaaaaaaaaa", ""},
		"an installation without one":   {"-", "", "", "", "set join.token"},
		"an upgrade before the join":    {"", firstToken, firstToken, "aaaaaaaaaa", ""},
		"an upgrade after it":           {"aaaaaaaaaa", firstToken, "", "aaaaaaaaaa", ""},
		"an upgrade without the token":  {"aaaaaaaaaa", "", "", "", ""},
		"a new token":                   {"aaaaaaaaaa", secondToken, secondToken, "cccccccccc", ""},
		"what does not look like token": {"aaaaaaaaaa", "x", "x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			join := maps.Clone(blankValues)
			join["token"] = c.token
			r := Release{
				Chart: filepath.Join(chartsDir, "atoll-agent"), Name: "atoll-agent", Namespace: "atoll-system", Values: map[string]any{"join": join},
				Cluster: memberLookup{t, nil},
			}
			if c.removed != "-" {
				live := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "atoll-agent-join", "namespace": "atoll-system"},
				}}
				if c.removed != "" {
					live.SetAnnotations(map[string]string{"agent.atoll.dev/removed-token": c.removed})
				}
				r.Cluster = memberLookup{t, []runtime.Object{live}}
			}
			if c.fails != "" {
				if _, err := RenderManifests(r); err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("it fails with %v, not with %q", err, c.fails)
				}
				return
			}
			secret, deployment := findObjects(t, r, "Secret")[0], findObjects(t, r, "Deployment")[0]
			data, _, err := unstructured.NestedStringMap(secret.Object, "stringData")
			if err != nil || data["token"] != c.want || data["name"] != join["name"] {
				t.Errorf("the Secret holds %v (%v)", data, err)
			}
			if _, has := data["token"]; has != (c.want != "") {
				t.Errorf("the Secret has an empty token: %v", data)
			}
			annotations, _, err := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "annotations")
			if err != nil || annotations["agent.atoll.dev/join-token"] != c.restarts {
				t.Errorf("the pod has %v (%v)", annotations, err)
			}
		})
	}
}

// TestTheAgentKeepsTheTokenOfAForeignSecret: unless the values allow its removal. The token of the
// chart's own Secret is removed in any case.
func TestTheAgentKeepsTheTokenOfAForeignSecret(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                        "--token-secret=atoll-agent-join",
		"{existingSecret: joining}": "--token-secret=joining --keep-token",
		"{existingSecret: joining, removeToken: true}": "--token-secret=joining",
	} {
		join := parseValues(t, values)
		maps.Copy(join, blankValues)
		r := Release{Chart: filepath.Join(chartsDir, "atoll-agent"), Name: "atoll-agent", Namespace: "atoll-system", Values: map[string]any{"join": join}}
		containers, _, err := unstructured.NestedSlice(findObjects(t, r, "Deployment")[0].Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		got := slices.DeleteFunc(args, func(arg string) bool { return !strings.Contains(arg, "token") })
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: the agent runs with %v (%v), not %s", values, got, err, want)
		}
	}
}

// TestHelmDoesNotWriteARemovedToken: upstream's Helm upgrades a release whose token was removed,
// without the token. A rollback, and a new token, write one.
func TestHelmDoesNotWriteARemovedToken(t *testing.T) {
	c := newCluster(t)
	i := &installation{t: t, bin: os.Getenv("ATOLL_BIN_DIR"), dir: t.TempDir()}
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		t.Setenv("HELM_"+kind+"_HOME", t.TempDir())
	}
	file := filepath.Join(i.dir, "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, token, id string) {
		t.Helper()
		got := i.runKubectl(c.kubeconfig, "", "get secret atoll-agent-join -n atoll-system -o go-template={{.data.name|base64decode}}/{{with.data.token}}{{.|base64decode}}{{end}}")
		if want := "tokyo-1/" + token; got != want {
			t.Errorf("%s the Secret has %s, not %s", when, got, want)
		}
		got = i.runKubectl(c.kubeconfig, "", `get deployment atoll-agent -n atoll-system -o jsonpath={.spec.template.metadata.annotations.agent\.atoll\.dev/join-token}`)
		if got != id {
			t.Errorf("%s the pod is of token %s, not %s", when, got, id)
		}
	}
	// remove does what the agent does.
	remove := func(id string) {
		t.Helper()
		i.runKubectl(c.kubeconfig, "", fmt.Sprintf(`patch secret atoll-agent-join -n atoll-system --type merge -p {"metadata":{"annotations":{"agent.atoll.dev/removed-token":"%s"}},"data":{"token":null}}`, id))
	}
	const release = "atoll-agent -n atoll-system"
	chart := " " + filepath.Join(chartsDir, "atoll-agent")
	write(firstToken)
	i.runHelm(c.kubeconfig, "install "+release+chart+" --create-namespace --set join.name=tokyo-1,join.hub=hub:6444,join.caHash=sha256:"+zeroHash+" --set-file join.token="+file)
	expect("after the installation", firstToken, "aaaaaaaaaa")
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set logFormat=json")
	expect("after an upgrade before the join", firstToken, "aaaaaaaaaa")
	remove("aaaaaaaaaa")
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set logFormat=text")
	expect("after an upgrade", "", "aaaaaaaaaa")
	write(secondToken)
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set-file join.token="+file)
	expect("with a new token", secondToken, "cccccccccc")
	remove("cccccccccc")
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set join.token=")
	expect("with an empty token", "", "")
	i.runHelm(c.kubeconfig, "rollback "+release+" 1")
	expect("after a rollback", firstToken, "aaaaaaaaaa")
}
