package charts

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the goldens anew")

const dir = "../../deploy/charts"

// cases are the values with which the charts are rendered. A golden has what comes out.
var cases = []struct{ name, chart, namespace, values string }{
	{"agent", "atoll-agent", "atoll-system", "{join: {name: tokyo-1, hub: 'hub.example:6444', caHash: 'sha256:" + hash + "', token: abcdef.0123, balancerCA: \"-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n\"}}"},
	{"agent-all", "atoll-agent", "atoll-system", `
join: {existingSecret: joining}
rbac: {allow: [crds, rbac, impersonate, all-kinds, cluster-admin]}
image: {repository: registry.example/atoll, digest: "sha256:` + hash + `", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
proxy: {url: "http://proxy.example:3128", noProxy: "10.0.0.0/8,.example"}
metrics: {enabled: true, port: 9090}
logFormat: json
verbose: true
resources: {limits: {memory: 1Gi}}
serviceAccount: {annotations: {a: b}}
podLabels: {team: fleet}
podAnnotations: {c: d}
priorityClassName: system-cluster-critical
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}
createNamespace: true
`},
	{"agent-without-rights", "atoll-agent", "atoll-system", "{join: {existingSecret: joining}, rbac: {create: false, allow: [crds]}, proxy: {existingSecret: proxy}}"},
	{"hub", "atoll-hub", "atoll", "{gatewayAddress: 'hub.example:6444'}"},
	{"hub-all", "atoll-hub", "atoll", `
gatewayAddress: "a.example:6444,b.example:6444"
apiAddress: "hub.example:443"
tlsSANs: [hub.example, 192.0.2.7]
replicas: 3
etcd: {servers: ["https://etcd-0:2379", "https://etcd-1:2379"], existingSecret: etcd}
keys: {existingSecret: hub-keys}
tls: {existingSecret: hub-tls}
authentication: |
  apiVersion: apiserver.config.k8s.io/v1
  kind: AuthenticationConfiguration
auditPolicy: |
  apiVersion: audit.k8s.io/v1
  kind: Policy
  rules: [{level: Metadata}]
persistence: {size: 1Gi, storageClass: fast, accessModes: [ReadWriteOncePod]}
image: {repository: registry.example/atoll-hub, tag: v9}
imagePullSecrets: [{name: registry}]
api: {service: {type: NodePort, port: 443, annotations: {a: b}}}
gateway: {service: {type: ClusterIP, port: 7000, annotations: {c: d}}}
networkPolicy: {create: true, apiFrom: [{ipBlock: {cidr: 10.0.0.0/8}}], gatewayFrom: [{ipBlock: {cidr: 0.0.0.0/0}}]}
logFormat: json
verbose: true
resources: {limits: {memory: 1Gi}}
podLabels: {team: fleet}
podAnnotations: {c: d}
priorityClassName: system-cluster-critical
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/name: atoll-hub}}}]}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app.kubernetes.io/name: atoll-hub}}}]
`},
}

var hash = strings.Repeat("0", 64)

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func rendered(t *testing.T, chart, namespace, text string) (string, error) {
	t.Helper()
	return Render(Release{Chart: filepath.Join(dir, chart), Name: "atoll-" + strings.TrimPrefix(chart, "atoll-"), Namespace: namespace, Values: values(t, text)})
}

func TestGoldens(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := rendered(t, c.chart, c.namespace, c.values)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", c.name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("what is rendered is not %s (%v); if it is right, run: go test ./charts -update", golden, err)
			}
		})
	}
}

// TestNotes: whoever has installed a chart is told what to do next, in commands.
func TestNotes(t *testing.T) {
	for i, wants := range map[int][]string{
		0: {"atoll accept tokyo-1\n", "workloads and what they need. What"},
		1: {"atoll accept NAME\n", "and: crds, rbac, impersonate, all-kinds, cluster-admin."},
		2: {"no rights but those that you give"},
		3: {"a-atoll-hub-0 -- atoll-hub kubeconfig", "svc/a-atoll-hub 6443:6443\n", "Agents dial hub.example:6444,"},
		4: {"--server https://hub.example:443\n", "--keys-dir /etc/atoll/keys --file -", "save the etcd with its own tools"},
	} {
		c := cases[i]
		notes, err := Notes(Release{Chart: filepath.Join(dir, c.chart), Name: "a", Namespace: c.namespace, Values: values(t, c.values)})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no %q in:\n%s", c.name, want, notes)
			}
		}
	}
}

func TestLint(t *testing.T) {
	for _, c := range cases {
		for _, m := range lint.RunAll(filepath.Join(dir, c.chart), values(t, c.values), c.namespace).Messages {
			if m.Severity > 1 { // more than that there is no icon
				t.Errorf("%s: %s", c.name, m)
			}
		}
	}
}

// TestEveryValueIsHonoured: the goldens with all values set change with each of them.
func TestEveryValueIsHonoured(t *testing.T) {
	for _, c := range []struct{ name, chart string }{{"agent-all", "atoll-agent"}, {"hub-all", "atoll-hub"}} {
		at := slices.IndexFunc(cases, func(o struct{ name, chart, namespace, values string }) bool { return o.name == c.name })
		full := values(t, cases[at].values)
		want, err := rendered(t, c.chart, cases[at].namespace, cases[at].values)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, c.chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for key := range values(t, string(text)) {
			if _, set := full[key]; !set {
				if key != "podDisruptionBudget" { // which is there by default
					t.Errorf("%s sets no %s", c.name, key)
				}
				continue
			}
			less := values(t, cases[at].values)
			delete(less, key)
			got, err := Render(Release{Chart: filepath.Join(dir, c.chart), Name: c.chart, Namespace: cases[at].namespace, Values: less})
			if err == nil && got == want {
				t.Errorf("%s: nothing changes without %s", c.name, key)
			}
		}
	}
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	for _, c := range []struct{ chart, namespace, values, want string }{
		{"atoll-agent", "atoll-system", "{joins: {}}", "additional properties 'joins' not allowed"},
		{"atoll-agent", "atoll-system", "{rbac: {allow: [everything]}}", "value must be one of 'crds'"},
		{"atoll-agent", "atoll-system", "{join: {name: a, hub: 'b:1', caHash: 'sha256:12', token: c}}", "does not match pattern"},
		{"atoll-agent", "atoll-system", "{}", "set join."},
		{"atoll-agent", "elsewhere", "{join: {existingSecret: a}}", "install the agent in the namespace atoll-system"},
		{"atoll-hub", "atoll", "{}", "set gatewayAddress"},
		{"atoll-hub", "atoll", "{gatewayAddress: hub.example}", "does not match pattern"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', replica: 2}", "additional properties 'replica' not allowed"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', replicas: 2}", "replicas above 1 need etcd.servers"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', replicas: 2, etcd: {servers: ['https://a']}}", "replicas above 1 need keys.existingSecret"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', etcd: {existingSecret: a}}", "is for etcd.servers"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', api: {service: {kind: NodePort}}}", "additional properties 'kind' not allowed"},
	} {
		if got, err := rendered(t, c.chart, c.namespace, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v; wanted %q\n%s", c.chart, c.values, err, c.want, got)
		}
	}
}

// TestThePlainManifestsAreMadeOfTheChart, so that there are no twins to keep alike.
func TestThePlainManifestsAreMadeOfTheChart(t *testing.T) {
	manifest, optIns, err := Agent(filepath.Join(dir, "atoll-agent"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"agent.yaml": manifest, "agent-allow.yaml": optIns} {
		if have, err := os.ReadFile(filepath.Join("../../deploy", name)); err != nil || string(have) != want {
			t.Errorf("deploy/%s is stale (%v): run `make generate`", name, err)
		}
	}
	if strings.Contains(manifest, "fill-in") || strings.Contains(manifest, strings.Repeat("f", 64)) {
		t.Error("a blank was left in deploy/agent.yaml")
	}
}
