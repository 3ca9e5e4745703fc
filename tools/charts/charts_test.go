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

var updateGoldens = flag.Bool("update", false, "write the goldens again")

const chartsDir = "../../deploy/charts"

// goldenCases are the values of the golden files.
var goldenCases = []struct{ name, chart, namespace, values string }{
	{"agent", "atoll-agent", "atoll-system", "{join: {name: tokyo-1, hub: 'hub.example:6444', caHash: 'sha256:" + zeroHash + "', token: atoll1.abcdefghij.klmnopqrstuvwxyz234567abcd, balancerCA: \"-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n\"}}"},
	{"agent-all", "atoll-agent", "atoll-system", `
join: {existingSecret: joining}
rbac: {allow: [crds, rbac, impersonate, all-kinds, cluster-admin]}
image: {repository: registry.example/atoll, digest: "sha256:` + zeroHash + `", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
proxy: {url: "http://proxy.example:3128", noProxy: "10.0.0.0/8,.example"}
metrics: {enabled: true, port: 9090}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
agentPolicy: {spec: {namespaces: {denied: [kube-public, kube-node-lease]}, removal: Deny}}
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
	{"agent-without-rights", "atoll-agent", "atoll-system", "{join: {existingSecret: joining}, rbac: {create: false, allow: [crds]}, agentPolicy: {create: false}, networkPolicy: {create: false}, proxy: {existingSecret: proxy}}"},
	{"hub", "atoll-hub", "atoll", "{gatewayAddress: 'hub.example:6444', etcd: {quotaBytes: 4294967296}}"},
	{"hub-all", "atoll-hub", "atoll", `
defaultPlacement: ClusterSet/edge
gatewayAddress: "a.example:6444,b.example:6444"
apiAddress: "hub.example:443"
tlsSANs: [hub.example, 192.0.2.7]
push: {allowedCIDRs: [127.0.0.0/8, "fe80::/10"]}
sources: {allowedCIDRs: [10.0.0.5/32]}
gates: {allowedCIDRs: [10.0.0.6/32]}
notifications: {allowedCIDRs: [10.0.0.7/32]}
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
console: {address: "console.example:443", oidc: {issuer: "https://sso.example", clientID: "console #1: web", existingSecret: sso, scopes: [email, groups]}}
persistence: {size: 1Gi, storageClass: fast, accessModes: [ReadWriteOncePod]}
image: {repository: registry.example/atoll-hub, tag: v9}
imagePullSecrets: [{name: registry}]
api: {service: {type: NodePort, port: 443, annotations: {a: b}}}
gateway: {service: {type: ClusterIP, port: 7000, annotations: {c: d}}}
networkPolicy: {apiFrom: [{ipBlock: {cidr: 10.0.0.0/8}}], gatewayFrom: [{ipBlock: {cidr: 0.0.0.0/0}}]}
tracing: {endpoint: "https://collector:4317", samplingRatePerMillion: 1000000, existingSecret: otlp}
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

var zeroHash = strings.Repeat("0", 64)

func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func renderChart(t *testing.T, chart, namespace, text string) (string, error) {
	t.Helper()
	return RenderManifests(Release{Chart: filepath.Join(chartsDir, chart), Name: "atoll-" + strings.TrimPrefix(chart, "atoll-"), Namespace: namespace, Values: parseValues(t, text)})
}

func TestGoldens(t *testing.T) {
	for _, c := range goldenCases {
		t.Run(c.name, func(t *testing.T) {
			got, err := renderChart(t, c.chart, c.namespace, c.values)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", c.name+".yaml")
			if *updateGoldens {
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

// TestNotes: the notes contain the next commands.
func TestNotes(t *testing.T) {
	for i, wants := range map[int][]string{
		0: {"atoll accept tokyo-1\n", "workloads and what they need. When", "writes an AgentPolicy", "kubectl edit agentpolicy agent"},
		1: {"atoll accept NAME\n", "and: crds, rbac, impersonate, all-kinds, cluster-admin."},
		2: {"no rights but those that you give", "agentPolicy.create is false"},
		3: {"a-atoll-hub-0 -- atoll-hub kubeconfig", "svc/a-atoll-hub 6443:6443\n", "Agents dial hub.example:6444,"},
		4: {"--server https://hub.example:443\n", "--keys-dir /etc/atoll/keys --file -", "save the etcd with its own tools"},
	} {
		c := goldenCases[i]
		notes, err := RenderNotes(Release{Chart: filepath.Join(chartsDir, c.chart), Name: "a", Namespace: c.namespace, Values: parseValues(t, c.values)})
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
	for _, c := range goldenCases {
		for _, m := range lint.RunAll(filepath.Join(chartsDir, c.chart), parseValues(t, c.values), c.namespace).Messages {
			if m.Severity > 1 { // besides the missing icon
				t.Errorf("%s: %s", c.name, m)
			}
		}
	}
}

// TestEveryValueIsHonoured: the goldens with all values set change with each of them.
func TestEveryValueIsHonoured(t *testing.T) {
	for _, c := range []struct{ name, chart string }{{"agent-all", "atoll-agent"}, {"hub-all", "atoll-hub"}} {
		at := slices.IndexFunc(goldenCases, func(o struct{ name, chart, namespace, values string }) bool { return o.name == c.name })
		full := parseValues(t, goldenCases[at].values)
		want, err := renderChart(t, c.chart, goldenCases[at].namespace, goldenCases[at].values)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(chartsDir, c.chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for key := range parseValues(t, string(text)) {
			if _, set := full[key]; !set {
				// The former has its default. The latter needs kinds that a member does not serve, and has
				// tests of its own.
				if key != "podDisruptionBudget" && key != "monitoring" {
					t.Errorf("%s sets no %s", c.name, key)
				}
				continue
			}
			less := parseValues(t, goldenCases[at].values)
			delete(less, key)
			got, err := RenderManifests(Release{Chart: filepath.Join(chartsDir, c.chart), Name: c.chart, Namespace: goldenCases[at].namespace, Values: less})
			if err == nil && got == want {
				t.Errorf("%s: nothing changes without %s", c.name, key)
			}
		}
	}
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	for _, c := range []struct{ chart, namespace, values, want string }{
		{"atoll-agent", "atoll-system", "{joins: {}}", "additional properties 'joins' not allowed"},
		{"atoll-agent", "atoll-system", "{networkPolicy: {apiFrom: []}}", "additional properties 'apiFrom' not allowed"},
		{"atoll-agent", "atoll-system", "{agentPolicy: {spec: []}}", "got array, want object"},
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
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', console: {oidc: {issuer: 'https://sso.example'}}}", "console.oidc.issuer needs authentication"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', authentication: x, console: {oidc: {issuer: 'http://sso.example'}}}", "does not match pattern"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', console: {address: a}}", "console.oidc.issuer, which is missing"},
		{"atoll-hub", "atoll", "{gatewayAddress: 'a:1', api: {service: {kind: NodePort}}}", "additional properties 'kind' not allowed"},
	} {
		if got, err := renderChart(t, c.chart, c.namespace, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v; wanted %q\n%s", c.chart, c.values, err, c.want, got)
		}
	}
}

// TestThePlainManifestsAreMadeOfTheChart: the plain manifests equal the rendered chart.
func TestThePlainManifestsAreMadeOfTheChart(t *testing.T) {
	files, err := RenderAgentManifests(filepath.Join(chartsDir, "atoll-agent"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if have, err := os.ReadFile(filepath.Join("../../deploy", name)); err != nil || string(have) != want {
			t.Errorf("deploy/%s is stale (%v): run `make generate`", name, err)
		}
	}
	manifest := files["agent.yaml"]
	if strings.Contains(manifest, "AgentPolicy\nmetadata") {
		t.Error("deploy/agent.yaml has an AgentPolicy: an apply would overwrite the administrator's")
	}
	if strings.Contains(files["agent-policy.yaml"], "helm.sh") {
		t.Error("deploy/agent-policy.yaml has annotations for Helm")
	}
	if strings.Contains(manifest, "fill-in") || strings.Contains(manifest, strings.Repeat("f", 64)) {
		t.Error("a blank was left in deploy/agent.yaml")
	}
}
