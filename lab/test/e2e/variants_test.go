package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const variantsChart = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {env: "{{ .Values.env }}"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "nginx:{{ .Values.tag }}", args: [{{ .Values.arg | quote }}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {common.path: "{{ .Values.common }}"{{ if .Values.debug }}, debug: "true"{{ end }}}
---
apiVersion: v1
kind: Secret
metadata: {name: same}
stringData: {token: "{{ .Values.common }}"}
{{- if eq .Values.env "us" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: us-only}
{{- else }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: elsewhere}
{{- end }}
`

// applyVariants makes a Source of the chart with a variant for the region us, and what the Source needs.
func applyVariants(t *testing.T, ns, url string) {
	t.Helper()
	mustKubectl(t, `apiVersion: v1
kind: ServiceAccount
metadata: {name: atoll-sources, namespace: `+ns+`, annotations: {atoll.dev/clusters: ""}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: atoll-sources, namespace: `+ns+`, annotations: {atoll.dev/clusters: ""}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:application-team"}
subjects: [{kind: ServiceAccount, name: atoll-sources, namespace: `+ns+`}]
---
apiVersion: atoll.dev/v1alpha1
kind: Repository
metadata: {name: shop, namespace: `+ns+`}
spec: {git: {url: "`+url+`/shop.git"}, interval: 30s}
---
apiVersion: atoll.dev/v1alpha1
kind: Source
metadata: {name: shop, namespace: `+ns+`}
spec:
  repository: shop
  ref: {branch: main}
  paths: [chart]
  placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}]}}}
  variants:
  - name: us
    targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us]}]}}
    helm: {valuesFiles: [us.yaml]}
    patches: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{name: web, imagePullPolicy: Always}]}}}}]
`, "apply -f -")
}

// describeStored returns what each write of the objects in a member changes.
func describeStored(t *testing.T, member, ns string) string {
	t.Helper()
	var out []string
	for _, o := range [][2]string{{"apps/v1", "Deployment web"}, {"v1", "ConfigMap settings"}} {
		kind, name, _ := strings.Cut(o[1], " ")
		u, err := get(t.Context(), member, o[0], kind, ns, name)
		if err != nil || u == nil {
			t.Fatalf("%s in %s: %v", o[1], member, err)
		}
		out = append(out, fmt.Sprint(u.GetName(), " ", u.GetGeneration(), " ", u.GetLabels(), u.GetManagedFields()[0].Time, u.Object["data"]))
	}
	return strings.Join(out, "\n")
}

// Two members have two variants of one chart. A commit that changes a value of one variant writes nothing to the other
// member, and a variant that is not rendered holds the commit.
func TestVariantsOfASourceGoToTheirMembers(t *testing.T) {
	ns := createNamespace(t, "variants")
	g := newGitServer(t)
	values := func(tag, arg, common string) string {
		return fmt.Sprintf("env: eu\ntag: %q\narg: %q\ncommon: %s\ndebug: true\n", tag, arg, common)
	}
	g.commit(t, "two variants", map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "chart/templates/all.yaml": variantsChart,
		"chart/values.yaml": values("1", "a", "x"), "us.yaml": "env: us\ntag: \"7\"\ndebug: false\n",
	})
	applyVariants(t, ns, g.URL)
	has := func(member, kind, name, want string, path ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			version := "v1"
			if kind == "Deployment" {
				version = "apps/v1"
			}
			o, err := get(ctx, member, version, kind, ns, name)
			if err != nil || o == nil {
				return fmt.Errorf("%s/%s in %s: %v (%v)", kind, name, member, o, err)
			}
			var at any = o.Object
			for _, name := range path {
				if list, ok := at.([]any); ok {
					at = list[0]
				}
				m, _ := at.(map[string]any)
				at = m[name]
			}
			if got := fmt.Sprint(at); got != want {
				return fmt.Errorf("%s/%s in %s has %v = %s, want %s", kind, name, member, path, got, want)
			}
			return nil
		}
	}
	image := []string{"spec", "template", "spec", "containers", "image"}
	policy := []string{"spec", "template", "spec", "containers", "imagePullPolicy"}
	const eu, us = "member1", "member2"
	testwait.UntilNil(t, "each member has its variant", allChecks(
		has(eu, "Deployment", "web", "nginx:1", image...), has(us, "Deployment", "web", "nginx:7", image...), has(us, "Deployment", "web", "Always", policy...),
		has(eu, "Deployment", "web", "eu", "metadata", "labels", "env"), has(us, "Deployment", "web", "us", "metadata", "labels", "env"),
		has(eu, "ConfigMap", "settings", "map[common.path:x debug:true]", "data"), has(us, "ConfigMap", "settings", "map[common.path:x]", "data"),
		has(us, "Secret", "same", "map[token:eA==]", "data"), existsIn("v1", "ConfigMap", ns, "us-only", us), existsIn("v1", "ConfigMap", ns, "elsewhere", eu)))
	if out := runCLI(t, "explain", "deployment/web", "-n", ns); !strings.Contains(out, "variant us of Source shop: chart/templates/all.yaml of commit ") {
		t.Errorf("explain names no variant:\n%s", out)
	}
	before := describeStored(t, eu, ns)
	g.commit(t, "one value of one variant", map[string]string{"us.yaml": "env: us\ntag: \"8\"\ndebug: false\n"})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "the variant changes", has(us, "Deployment", "web", "nginx:8", image...))
	if after := describeStored(t, eu, ns); after != before {
		t.Errorf("the other member was written:\n%s\n%s", before, after)
	}

	g.commit(t, "a broken variant", map[string]string{"us.yaml": "env: [us\n", "chart/values.yaml": values("2", "b", "two")})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "the variant that is not rendered is reported", func(context.Context) error {
		if out := runCLI(t, "source", "get", "shop", "-n", ns); !strings.Contains(out, "variant us") || !strings.Contains(out, "us.yaml") {
			return fmt.Errorf("no variant in:\n%s", out)
		}
		return nil
	})
	g.commit(t, "both change", map[string]string{"us.yaml": "env: us\ntag: \"9\"\ndebug: false\n"})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "both members change", allChecks(
		has(eu, "Deployment", "web", "nginx:2", image...), has(us, "Deployment", "web", "nginx:9", image...), has(us, "Deployment", "web", "Always", policy...), has(us, "ConfigMap", "settings", "map[common.path:two]", "data")))
	mustKubectl(t, "", "patch source shop -n "+ns+` --type json -p [{"op":"replace","path":"/spec/variants/0","value":{"name":"us","targetCluster":{"clusterNames":["`+us+`"]},"exclude":true}}]`)
	testwait.UntilNil(t, "an excluded member has nothing of it", allChecks(
		existsIn("apps/v1", "Deployment", ns, "web", eu), existsIn("v1", "ConfigMap", ns, "settings", eu), existsIn("v1", "Secret", ns, "same", eu), existsIn("v1", "ConfigMap", ns, "elsewhere", eu)))
	mustKubectl(t, "", "patch source shop -n "+ns+` --type json -p [{"op":"remove","path":"/spec/variants"}]`)
	testwait.UntilNil(t, "without variants both members have the content", allChecks(
		has(us, "Deployment", "web", "nginx:2", image...), has(us, "ConfigMap", "settings", "map[common.path:two debug:true]", "data"), existsIn("v1", "ConfigMap", ns, "elsewhere", eu, us)))
}
