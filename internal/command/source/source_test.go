package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/command/clienttest"
)

const (
	repoPath   = "atoll.dev/namespaces/shop/repositories/web"
	sourcePath = "atoll.dev/namespaces/shop/sources/web"
	account    = "namespaces/shop/serviceaccounts/atoll-sources"
	binding    = "rbac.authorization.k8s.io/namespaces/shop/rolebindings/atoll-sources"
	url        = "https://git.example.com/shop.git"
)

// readField returns a field of an object of the hub, by its path.
func readField(h *clienttest.FakeHub, path string, fields ...string) any {
	var v any = h.Object(path)
	for _, f := range fields {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[f]
	}
	return v
}

func TestCreateMakesWhatItShows(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	args := []string{"create", "git", url, "--name", "web", "--path", "deploy", "--clusters", "env=prod,tier in (a,b)", "--secret", "token", "--interval", "1m", "--keep"}
	out, err := clienttest.RunForOutput(t, h, NewCommand, args...)
	if err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without --yes and a terminal: %v", err)
	}
	for _, want := range []string{"+ serviceaccount/atoll-sources", "+ rolebinding/atoll-sources: atoll:application-team", "+ repository/web: " + url, "+ source/web: deploy of branch main, to the clusters with env=prod,tier in (a,b)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if _, err := clienttest.RunForOutput(t, h, NewCommand, append(args, "--dry-run")...); err != nil {
		t.Error(err)
	}
	h.ExpectWrites(t)
	if _, err := clienttest.RunForOutput(t, h, NewCommand, append(args, "--yes")...); err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "post "+account, "post "+binding, "post "+repoPath, "post "+sourcePath)
	for path, c := range map[string]struct {
		fields []string
		want   any
	}{
		"the account stays on the hub": {[]string{account, "metadata", "annotations", "atoll.dev/clusters"}, ""},
		"the Secret":                   {[]string{repoPath, "spec", "git", "secretRef", "name"}, "token"},
		"the interval":                 {[]string{repoPath, "spec", "interval"}, "1m0s"},
		"the branch":                   {[]string{sourcePath, "spec", "ref", "branch"}, "main"},
		"prune":                        {[]string{sourcePath, "spec", "prune"}, "Keep"},
	} {
		got := readField(h, c.fields[0], c.fields[1:]...)
		if got != c.want {
			t.Errorf("%s: %v, want %v", path, got, c.want)
		}
	}
	const in = "labelSelector"
	env := readField(h, sourcePath, "spec", "placement", "clusterAffinity", in, "matchLabels", "env")
	if tiers, ok := readField(h, sourcePath, "spec", "placement", "clusterAffinity", in, "matchExpressions").([]any); env != "prod" || !ok || len(tiers) != 1 {
		t.Errorf("the Source places by %v", readField(h, sourcePath, "spec", "placement"))
	}
}

// A chart of a Helm repository is made as a Source of git is. A Repository of another type is another place.
func TestCreateOfAChart(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	const registry = "oci://registry.example.com/charts"
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"create", "helm", registry, "--name", "web", "--chart", "shop", "--version", ">=1 <2", "--clusters", "*", "--secret", "token", "--ca-file", ca, "--release-name", "r", "--yes"}
	out, err := clienttest.RunForOutput(t, h, NewCommand, args...)
	if err != nil || !strings.Contains(out, "+ source/web: chart shop >=1 <2, to all clusters") || !strings.Contains(out, "+ repository/web: "+registry) {
		t.Fatalf("%v\n%s", err, out)
	}
	for field, want := range map[string]string{"url": registry, "caBundle": "pem"} {
		if got := readField(h, repoPath, "spec", "helm", field); got != want || readField(h, repoPath, "spec", "git") != nil {
			t.Errorf("%s: %v", field, got)
		}
	}
	if readField(h, repoPath, "spec", "helm", "secretRef", "name") != "token" || readField(h, sourcePath, "spec", "ref", "chart") != "shop" || readField(h, sourcePath, "spec", "ref", "version") != ">=1 <2" ||
		readField(h, sourcePath, "spec", "build", "helm", "releaseName") != "r" || readField(h, sourcePath, "spec", "ref", "branch") != nil {
		t.Errorf("%v", h.Object(sourcePath))
	}
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", registry, "--name", "other", "--repository", "web", "--yes"); err == nil || !strings.Contains(err.Error(), "with the URL "+registry+" of the type helm") {
		t.Errorf("a Repository of another type: %v", err)
	}
	for _, missing := range []string{"--chart", "--version"} {
		i := slices.Index(args, missing)
		if _, err := clienttest.RunForOutput(t, h, NewCommand, slices.Delete(slices.Clone(args), i, i+2)...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(missing, "--")) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

// An artifact is made by one of tag, version and digest.
func TestCreateOfAnArtifact(t *testing.T) {
	const repository = "oci://registry.example.com/shop/deploy"
	digest := "sha256:" + strings.Repeat("a", 64)
	for flag, value := range map[string]string{"tag": "latest", "version": "1.x", "digest": digest} {
		h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
		out, err := clienttest.RunForOutput(t, h, NewCommand, "create", "oci", repository, "--name", "web", "--"+flag, value, "--path", "prod", "--build", "plain", "--yes")
		if err != nil || !strings.Contains(out, "+ source/web: prod of "+flag+" "+value+", where policies") {
			t.Errorf("%v\n%s", err, out)
		}
		if readField(h, repoPath, "spec", "oci", "url") != repository || readField(h, sourcePath, "spec", "ref", flag) != value || readField(h, sourcePath, "spec", "ref", "branch") != nil || readField(h, sourcePath, "spec", "build", "type") != "Plain" {
			t.Errorf("%s: %v", flag, h.Object(sourcePath))
		}
	}
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "oci", repository, "--name", "web", "--yes"); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("without a ref: %v", err)
	}
}

func TestCreateInTheNamespaceOfATenant(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{metadata: {labels: {atoll.dev/tenant: shop}}}"})
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", url, "--name", "web", "--tag", "v1", "--clusters", "*", "--yes"); err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "post "+account, "post "+repoPath, "post "+sourcePath)
	if got := readField(h, sourcePath, "spec", "ref", "tag"); got != "v1" || readField(h, sourcePath, "spec", "placement") == nil {
		t.Errorf("%v", h.Object(sourcePath))
	}
}

func TestARepositoryIsUsedBySeveralSources(t *testing.T) {
	objects := map[string]string{repoPath: "{spec: {git: {url: '" + url + "'}}}"}
	h := clienttest.NewFakeHub(t, objects)
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", url, "--name", "api", "--repository", "web", "--service-account", "deployer", "--placement", "edge", "--yes"); err != nil {
		t.Fatal(err)
	}
	const api = "atoll.dev/namespaces/shop/sources/api"
	h.ExpectWrites(t, "post "+api)
	if readField(h, api, "spec", "repository") != "web" || readField(h, api, "spec", "serviceAccountName") != "deployer" || readField(h, api, "spec", "placementRef", "name") != "edge" {
		t.Errorf("%v", h.Object(api))
	}
	_, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", "https://other/a", "--name", "web", "--service-account", "deployer", "--yes")
	if err == nil || !strings.Contains(err.Error(), url) {
		t.Errorf("a Repository of another URL: %v", err)
	}
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", url, "--name", "web", "--service-account", "deployer", "--clusters", "a in (", "--yes"); err == nil {
		t.Error("a malformed selector is accepted")
	}
}

const readySource = `
spec: {repository: web, ref: {branch: main}}
status:
  commit: 1f0c9d2e7ab41f0c9d2e7ab41f0c9d2e7ab41f0c
  shortCommit: 1f0c9d2e7ab4
  message: the shop opens
  author: Aiko
  waitsFor: ContentInvalid
  builds: [{path: charts/shop, type: Helm, chart: shop-1.2.0}]
  objects: {total: 2, applied: 2, kept: 1}
  clusters: {desired: 3, ready: 2, summary: 2/3}
  errors: [{file: deploy/a.yaml, line: 4, message: "it has no metadata.name"}, {file: chart/Chart.yaml, message: "no version"}]
  inventory: [{apiVersion: v1, kind: ConfigMap, namespace: shop, name: old, kept: HistoryRewritten}, {apiVersion: v1, kind: ConfigMap, name: a}]
  conditions: [{type: Rendered, status: "False", reason: ContentInvalid, message: a mistake, lastTransitionTime: "2026-01-02T03:04:05Z"}]
`

func TestListAndGet(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{sourcePath: readySource,
		repoPath: "{spec: {git: {url: '" + url + "'}}, status: {conditions: [{type: Reachable, status: 'True', reason: Fetched, message: fine, lastTransitionTime: '2026-01-02T03:04:05Z'}]}}"})
	for _, c := range []struct {
		args string
		want []string
	}{
		{"list", []string{"NAMESPACE", "shop", "web", "1f0c9d2e7ab4", "the shop opens", "2/3", "ContentInvalid"}},
		{"list -A", []string{"shop", "web"}},
		{"list -o json", []string{`"shortCommit": "1f0c9d2e7ab4"`}},
		{"get web", []string{"source/web in namespace shop", "author    Aiko", "build     Helm of charts/shop shop-1.2.0", "2 in the content, 2 applied, 1 kept", "deploy/a.yaml:4: it has no metadata.name", "error     chart/Chart.yaml: no version", "kept      ConfigMap shop old: HistoryRewritten", "repository " + url + ": True, Fetched", "Rendered: False, ContentInvalid since 2026-01-02T03:04:05Z: a mistake"}},
		{"get web -o yaml", []string{"author: Aiko"}},
	} {
		out, err := clienttest.RunForOutput(t, h, NewCommand, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in:\n%s", c.args, w, out)
			}
		}
	}
	empty := clienttest.NewFakeHub(t, nil)
	if out, err := clienttest.RunForOutput(t, empty, NewCommand, "list"); err != nil || !strings.Contains(out, "no Sources") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := clienttest.RunForOutput(t, empty, NewCommand, "get", "web"); err == nil {
		t.Error("a Source that is missing is shown")
	}
}

// Two requests of one second are two.
func TestSyncRequestsAreDistinct(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))
	for before, want := range map[string]string{
		"": "2026-01-02T02:04:05Z", "no time": "2026-01-02T02:04:05Z", "2026-01-02T02:04:04Z": "2026-01-02T02:04:05Z",
		"2026-01-02T02:04:05Z": "2026-01-02T02:04:06Z", "2026-01-02T03:04:06+01:00": "2026-01-02T02:04:07Z",
	} {
		if got := nextSyncRequest(now, before); got != want {
			t.Errorf("after %q: %s, want %s", before, got, want)
		}
	}
	h := clienttest.NewFakeHub(t, map[string]string{sourcePath: readySource})
	seen := map[any]bool{}
	for range 3 {
		if _, err := clienttest.RunForOutput(t, h, NewCommand, "sync", "web"); err != nil {
			t.Fatal(err)
		}
		seen[readField(h, sourcePath, "spec", "syncRequest")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three requests are %v", seen)
	}
}

func TestSyncSuspendAndResume(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{sourcePath: readySource})
	run := func(args ...string) string {
		t.Helper()
		out, err := clienttest.RunForOutput(t, h, NewCommand, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := run("sync", "web"); !strings.Contains(out, "atoll source get web -n shop") || readField(h, sourcePath, "spec", "syncRequest") == nil {
		t.Errorf("sync: %s, %v", out, h.Object(sourcePath))
	}
	if out := run("suspend", "web"); !strings.Contains(out, "stays") || readField(h, sourcePath, "spec", "suspend") != true {
		t.Errorf("suspend: %s", out)
	}
	if run("resume", "web"); readField(h, sourcePath, "spec", "suspend") != nil {
		t.Errorf("resume: %v", h.Object(sourcePath))
	}
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "sync", "absent"); err == nil {
		t.Error("a Source that is missing is synchronised")
	}
}
