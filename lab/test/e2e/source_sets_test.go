package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// settingsOf returns a ConfigMap.
func settingsOf(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {colour: blue}\n"
}

const sourceSetText = `apiVersion: atoll.dev/v1alpha1
kind: SourceSet
metadata: {name: apps, namespace: NAMESPACE}
spec:
  generators:
  - directories: {repository: shop, ref: {branch: main}, paths: [apps/*]}
  template:
    metadata: {name: '{{.path.basename}}', labels: {team: shop}}
    spec:
      repository: shop
      ref: {branch: main}
      paths: ['{{.path.path}}']
      placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}]}}}
`

// Each directory of a repository becomes a Source, and its objects run in members. A commit that drops one directory deletes its Source,
// and its objects stay. An empty tree deletes nothing.
func TestASourceSetFollowsDirectories(t *testing.T) {
	ns := createNamespace(t, "sets")
	g := newGitServer(t)
	g.commit(t, "two applications", map[string]string{"apps/web/a.yaml": settingsOf("web-settings"), "apps/db/a.yaml": settingsOf("db-settings"), "README.md": "a shop"})
	file := filepath.Join(t.TempDir(), "apps.yaml")
	set := strings.ReplaceAll(sourceSetText, "NAMESPACE", ns)
	if err := os.WriteFile(file, []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	expectOutput(t, "the preview", runCLI(t, "source", "generate", "-f", file, "--local", g.work, "--names"), "db\tspec.generators[0].directories apps/db\nweb\t")
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
spec: {git: {url: "`+g.URL+`/shop.git"}, interval: 30s}
---
`+set, "apply -f -")
	testwait.UntilNil(t, "both directories run in members", allChecks(
		existsIn("v1", "ConfigMap", ns, "web-settings", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "db-settings", "member1", "member2")))
	setIs := func(what string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := mustKubectl(t, "", "get sourceset apps -n "+ns+" -o yaml") + mustKubectl(t, "", "get sources,events -n "+ns)
			for _, w := range want {
				if absent, ok := strings.CutPrefix(w, "no "); ok && strings.Contains(out, absent) || !ok && !strings.Contains(out, w) {
					return fmt.Errorf("%q in:\n%s", w, out)
				}
			}
			return nil
		})
	}
	setIs("the SourceSet is complete", "generated: 2", "applied: 2", "reason: Generated", "reason: Applied")
	expectOutput(t, "a made Source", runCLI(t, "source", "get", "web", "-n", ns), "made by   sourceset/apps")

	g.commit(t, "db is dropped, and api is new", map[string]string{"apps/db/a.yaml": "", "apps/api/a.yaml": settingsOf("api-settings")})
	runCLI(t, "source", "sync", "web", "-n", ns)
	testwait.UntilNil(t, "the new directory runs, and the objects of the dropped one stay", allChecks(
		existsIn("v1", "ConfigMap", ns, "api-settings", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "db-settings", "member1", "member2")))
	setIs("the Source of the dropped directory is deleted", "generated: 2", "name: api", "no name: db", "reason: Applied", "SourcesRemoved", "the objects that they applied stay: db")

	g.commit(t, "a mistake", map[string]string{"apps/web/a.yaml": "", "apps/api/a.yaml": ""})
	runCLI(t, "source", "sync", "web", "-n", ns)
	setIs("an empty tree is reported", "reason: GeneratorEmpty", "kept: 2", "name: web", "name: api")
	testwait.UntilNil(t, "an empty tree deletes nothing", existsIn("v1", "ConfigMap", ns, "web-settings", "member1", "member2"))

	mustKubectl(t, "", "delete sourceset apps -n "+ns)
	if out := mustKubectl(t, "", "get sources -n "+ns); !strings.Contains(out, "web") || !strings.Contains(out, "api") {
		t.Errorf("the Sources went with their SourceSet:\n%s", out)
	}
	if owners := kubectlOutput(t, "", "get", "sources", "-n", ns, "-o", "jsonpath={.items[*].metadata.ownerReferences}"); owners != "" {
		t.Errorf("the Sources will go with their SourceSet, because they have the owners %s", owners)
	}
}
