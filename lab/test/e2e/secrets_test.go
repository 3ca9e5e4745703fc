package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// limitedRole is a tenant with all rights in one namespace except reading Secrets.
const limitedRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: $NS}
rules:
- {apiGroups: [""], resources: [configmaps, services, serviceaccounts, persistentvolumeclaims, events], verbs: ["*"]}
- {apiGroups: [apps, batch, atoll.dev, events.k8s.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-$NS}]
`

// configAs is the configuration of the hub's client as another user.
func configAs(t *testing.T, user string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	cfg.QPS, cfg.Burst = 200, 400
	return cfg
}

// tryAs applies YAML as another user and gives what comes of it.
func tryAs(t *testing.T, user, ns, text string) error {
	t.Helper()
	c, err := client.New(configAs(t, user), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range decodeObjects(t, ns, text) {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("tenant")); err != nil {
			return err
		}
	}
	return nil
}

// A user without the right to read Secrets cannot place them in any way; the refusal names
// the missing right.
func TestPlacingSecretsNeedsTheRightToReadThem(t *testing.T) {
	t.Parallel()
	ns, other := createNamespace(t, "tenant"), createNamespace(t, "tenant-other")
	apply(t, ns, limitedRole+`---
apiVersion: v1
kind: Secret
metadata: {name: theirs, namespace: $NS}
stringData: {password: hunter2}
`)
	user := "tenant-" + ns
	for name, c := range map[string]struct{ text, want string }{
		"a policy that selects Secrets": {propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: Secret}]", "may not get secrets"},
		"a policy that names one":       {propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: Secret, name: theirs}]", `may not get "theirs" of secrets`},
		"a policy that takes along":     {propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]\n  propagateDeps: true", "may not get secrets"},
		"an annotation that takes along": {
			strings.Replace(webDeployment, "metadata: {name: web, namespace: $NS,", "metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: member1},", 1),
			"may not get secrets",
		},
		"an override of Secrets":     {overridePrefix + "resourceSelectors: [{apiVersion: v1, kind: Secret}]\n  overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]", "may not get secrets"},
		"an override of everything":  {overridePrefix + "overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]", "may not get"},
		"an annotation on the whole": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS, annotations: {atoll.dev/clusters: '*'}}", "forbidden"},
	} {
		err := tryAs(t, user, ns, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a refusal that says %q", name, err, c.want)
		}
	}
	if err := tryAs(t, user, ns, selectingPolicy("fine", "", "member1")); err != nil {
		t.Errorf("what a tenant may read cannot be placed: %v", err)
	}

	// Their rights in their namespace reach no other.
	for name, text := range map[string]string{
		"a policy there":      strings.ReplaceAll(selectingPolicy("web", "", "member1"), "$NS", other),
		"a policy from here":  strings.Replace(selectingPolicy("web", "", "member1"), "kind: ConfigMap,", "kind: ConfigMap, namespace: "+other+",", 1),
		"a cluster policy":    "apiVersion: atoll.dev/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata: {name: tenant}\nspec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}",
		"a cluster override":  "apiVersion: atoll.dev/v1alpha1\nkind: ClusterOverridePolicy\nmetadata: {name: tenant}\nspec: {overrideRules: [{overriders: {replicas: 1}}]}",
		"an override there":   strings.ReplaceAll(overridePrefix+deploymentSelector+"overrideRules: [{overriders: {replicas: 1}}]", "$NS", other),
		"an override of it":   overridePrefix + "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, namespace: " + other + "}]\n  overrideRules: [{overriders: {replicas: 1}}]",
		"an annotation there": strings.ReplaceAll(withAnnotation("member1"), "$NS", other),
		"a cluster":           "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: tenant}\nspec: {accepted: true}",
		"a Bundle":            "apiVersion: atoll.dev/v1alpha1\nkind: Bundle\nmetadata: {name: web, namespace: $NS}\nspec: {source: {kind: Annotation, name: a}, conflictResolution: Abort, removal: {mode: Delete}, whenUnfit: Keep}",
	} {
		if err := tryAs(t, user, ns, text); err == nil {
			t.Errorf("%s was accepted from a tenant of %s", name, ns)
		}
	}
}

// A Secret's value is nowhere but in Secrets: in no object that the hub serves, no
// answer of the CLI, no log of hub or agents, and a tenant sees none of it.
func TestSecretValuesShowNowhere(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "hidden")
	const value = "hunter2-is-the-password-of-no-one"
	apply(t, ns, limitedRole+`---
apiVersion: v1
kind: Secret
metadata: {name: pass, namespace: $NS, labels: {app: web}}
stringData: {password: `+value+`}
---
apiVersion: v1
kind: Secret
metadata: {name: clash, namespace: $NS, labels: {app: web}}
stringData: {password: `+value+`}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS, labels: {app: web}}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Secret, labelSelector: {matchLabels: {app: web}}}, {apiVersion: v1, kind: ConfigMap, name: web}]
  conflictResolution: AdoptIfSame
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
---
apiVersion: atoll.dev/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: hidden-$NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Secret, namespace: $NS, name: clash}]
  overrideRules:
  - targetCluster: {clusterNames: [member1]}
    overriders: {plaintext: [{path: /data/password/deep, operator: replace, value: a}]}
`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "copol", "hidden-"+ns, "--ignore-not-found")
	})
	testwait.UntilNil(t, "delivery", allChecks(inCluster("member1", "v1", "Secret", ns, "pass", true), inCluster("member2", "v1", "Secret", ns, "clash", true)))
	testwait.UntilNil(t, "a patch that does not apply to a Secret is shown", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); !strings.Contains(out, "Failed") {
			return errors.New("the output is: " + out)
		}
		return nil
	})

	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	needles := []string{value, encoded, encoded[4 : len(encoded)-4], base64.StdEncoding.EncodeToString([]byte(encoded))[4:40]}
	found := func(where, text string) {
		t.Helper()
		for _, n := range needles {
			if i := strings.Index(text, n); i >= 0 {
				t.Errorf("%s shows the value of a Secret: …%s…", where, text[max(0, i-200):i])
				return
			}
		}
	}
	served := listReadable(t, configAs(t, "tenant-"+ns))
	for where, text := range served {
		found("to a tenant, "+where, text)
	}
	if len(served) < 5 {
		t.Errorf("a tenant could list only %d kinds: the test looks at nothing", len(served))
	}
	admin, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.Burst = 200, 400
	all := listReadable(t, admin)
	if unpackText(t, all["Revision of engine.atoll.dev/v1alpha1"]) == "" {
		t.Errorf("the Revisions hold nothing that can be read: the test looks at nothing")
	}
	for where, text := range all {
		if !strings.HasPrefix(where, "Secret ") {
			found("to an administrator, "+where, text)
		}
	}
	for _, args := range [][]string{
		{"get", "rows", "-n", ns, "-o", "json"}, {"get", "bundles", "-n", ns, "-o", "json"},
		{"explain", "secret/pass", "-n", ns, "-o", "json"}, {"explain", "secret/clash", "-n", ns}, {"explain", "bundle/web", "-n", ns, "-o", "json"},
	} {
		out := runCLI(t, args...)
		if strings.Contains(out, "exit status") {
			t.Errorf("atoll %v: %s", args, out)
		}
		found("atoll "+strings.Join(args, " "), out)
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(sharedWorld.lab.KubeconfigPath("hub")), "logs", "*.log"))
	if err != nil || len(logs) < 4 {
		t.Fatalf("logs: %v %v", logs, err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		found(log, string(text))
	}
}

// listReadable lists all that a user may list on the hub, by kind.
func listReadable(t *testing.T, cfg *rest.Config) map[string]string {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			if strings.Contains(r.Name, "/") || !strings.Contains(strings.Join(r.Verbs, " "), "list") {
				continue
			}
			var list unstructured.UnstructuredList
			list.SetAPIVersion(l.GroupVersion)
			list.SetKind(r.Kind + "List")
			err := c.List(t.Context(), &list)
			if err != nil && r.Namespaced {
				err = c.List(t.Context(), &list, client.InNamespace("hidden"))
			}
			if err != nil {
				continue
			}
			text, err := list.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			out[r.Kind+" of "+l.GroupVersion] = string(text) + unpackText(t, string(text))
		}
	}
	return out
}

var gzipPattern = regexp.MustCompile(`"H4sI[A-Za-z0-9+/]{20,}=*"`)

// unpackText is what lies compressed in a text.
func unpackText(t *testing.T, text string) string {
	t.Helper()
	out := ""
	for _, m := range gzipPattern.FindAllString(text, -1) {
		data, err := base64.StdEncoding.DecodeString(strings.Trim(m, `"`))
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out += "\n" + string(plain)
	}
	return out
}
