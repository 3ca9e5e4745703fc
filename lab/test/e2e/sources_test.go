package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/testwait"
)

// gitServer serves one repository by git's own server program, over smart HTTP.
type gitServer struct {
	*httptest.Server
	work string
}

func newGitServer(t *testing.T) *gitServer {
	t.Helper()
	dir := t.TempDir()
	g := &gitServer{work: filepath.Join(dir, "work")}
	root := filepath.Join(dir, "root")
	g.runGit(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(root, "shop.git"))
	g.runGit(t, dir, "clone", "--quiet", filepath.Join(root, "shop.git"), g.work)
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	g.Server = httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(g.Close)
	return g
}

func (g *gitServer) runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Aiko", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=Aiko", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// commit writes and removes files, and pushes the commit.
func (g *gitServer) commit(t *testing.T, message string, files map[string]string) {
	t.Helper()
	g.editFiles(t, files)
	g.runGit(t, g.work, "add", "-A")
	g.runGit(t, g.work, "commit", "--quiet", "-m", message)
	g.runGit(t, g.work, "push", "--quiet", "origin", "HEAD:main")
}

// editFiles writes and removes files of the working directory. A file without text is removed.
func (g *gitServer) editFiles(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(g.work, name)
		if text == "" {
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func webText(image string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "` + image + `"}]}
`
}

const oldSettings = `apiVersion: v1
kind: ConfigMap
metadata: {name: old}
data: {colour: blue}
`

// postWebhook reports a push as GitHub does, without credentials of the hub. It returns the status of the answer.
func postWebhook(t *testing.T, namespace, repository, token, body string) int {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/webhooks/"+namespace+"/"+repository, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(body))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// A directory of a repository runs in members. A commit changes, adds and removes. Nothing is removed
// when the server is gone, or when the Source is deleted.
func TestSourceBringsCommitsToMembers(t *testing.T) {
	ns := createNamespace(t, "sources")
	g := newGitServer(t)
	g.commit(t, "the shop opens", map[string]string{"deploy/web.yaml": webText("nginx:1"), "deploy/old.yaml": oldSettings, "README.md": "a shop"})

	url := g.URL + "/shop.git"
	shown := runCLI(t, "source", "create", "git", url, "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--interval", "30s", "--dry-run")
	expectOutput(t, "the preview", shown, "+ source/shop: deploy of branch main, to the clusters with region in (eu,us)", "+ repository/shop: "+url, "+ rolebinding/atoll-sources")
	const token = "a token of the git server"
	mustKubectl(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: hook, namespace: "+ns+"}\nstringData: {token: "+token+"}\n", "create -f -")
	expectOutput(t, "the Source", runCLI(t, "source", "create", "git", url, "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--webhook-secret", "hook", "--yes"), "made; follow it with")
	testwait.UntilNil(t, "the commit runs in the chosen members", allChecks(
		existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old", "member1", "member2")))
	sourceIs := func(what string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := runCLI(t, "source", "get", "shop", "-n", ns)
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("no %q in:\n%s", w, out)
				}
			}
			return nil
		})
	}
	sourceIs("the Source is ready", "the shop opens", "author    Aiko", "clusters  2/2", "Ready: True", "webhook /webhooks/"+ns+"/shop: True")

	g.editFiles(t, map[string]string{"deploy/web.yaml": webText("nginx:2"), "deploy/new.yaml": strings.ReplaceAll(oldSettings, "old", "new"), "deploy/old.yaml": ""})
	compare := []string{"source", "diff", "shop", "-n", ns, "--local", g.work}
	expectOutput(t, "the next commit before its push", runCLI(t, compare...),
		"~ Deployment "+ns+"/web (deploy/web.yaml:", `"nginx:1" -> "nginx:2"`, "+ ConfigMap "+ns+"/new", "- ConfigMap "+ns+"/old", "member1", "exit status 2")
	g.commit(t, "nginx 2", nil)
	if forged, code := postWebhook(t, ns, "shop", "forged by a stranger", "{}"), postWebhook(t, ns, "shop", token, "{}"); forged != http.StatusForbidden || code != http.StatusAccepted {
		t.Fatalf("the hub answers %d to a webhook, and %d to a forged one", code, forged)
	}
	testwait.UntilNil(t, "the next commit runs, and what it dropped is gone", allChecks(
		existsIn("v1", "ConfigMap", ns, "new", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old"), imageIn("member1", ns, "nginx:2"), imageIn("member2", ns, "nginx:2")))
	sourceIs("the Source reports the commit", "nginx 2", "2 applied", "Ready: True")
	if out := runCLI(t, compare...); !strings.Contains(out, "3 objects as the commit applied them") || strings.Contains(out, "exit status") {
		t.Errorf("the applied commit differs from the hub:\n%s", out)
	}

	expectOutput(t, "the sync", runCLI(t, "source", "sync", "shop", "-n", ns), "checks the Repository")
	g.commit(t, "a mistake", map[string]string{"deploy/web.yaml": "", "deploy/new.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new\n"})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	sourceIs("content that cannot be read is reported", "ContentInvalid", "deploy/new.yaml:", "nginx 2")
	testwait.UntilNil(t, "all stays", allChecks(existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "new", "member1", "member2")))

	g.Config.Handler = http.NotFoundHandler()
	runCLI(t, "source", "sync", "shop", "-n", ns)
	repositoryShows := func(reason string) func(context.Context) error {
		return func(ctx context.Context) error {
			if got := conditionText(ctx, "atoll.dev/v1alpha1", "Repository", ns, "shop", "Reachable"); !strings.Contains(got, reason) {
				return fmt.Errorf("the Repository is %s", got)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "the server is reported", repositoryShows("False RepositoryMissing"))
	mustKubectl(t, "", "delete source shop -n "+ns)
	// An edit that arrives shows that the members have caught up with the deletion.
	mustKubectl(t, "", "patch configmap new -n "+ns+" --type merge -p {\"data\":{\"colour\":\"red\"}}")
	for _, member := range []string{"member1", "member2"} {
		testwait.UntilNil(t, "an edit arrives without the Source", func(ctx context.Context) error {
			o, err := get(ctx, member, "v1", "ConfigMap", ns, "new")
			if err != nil || o == nil || fmt.Sprint(o.Object["data"]) != "map[colour:red]" {
				return fmt.Errorf("%v (%v)", o, err)
			}
			return nil
		})
	}
	if err := existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2")(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Helm chart with a subchart, and a kustomization over a base, run in members. The next commit changes and removes. A
// random value that a chart makes is made once.
func TestSourceRendersChartsAndKustomizations(t *testing.T) {
	ns := createNamespace(t, "rendered")
	g := newGitServer(t)
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {colour: \"{{ .Values.colour }}\"}\n"
	named := func(name string) string { return strings.ReplaceAll(config, "NAME", name) }
	chart := func(more string) string { return "apiVersion: v2\nname: shop\nversion: 1.2.0\n" + more }
	g.commit(t, "a chart", map[string]string{
		"chart/Chart.yaml":                  chart("dependencies: [{name: sub, version: 0.1.0, repository: 'https://charts.example.com'}]\n"),
		"chart/values.yaml":                 "colour: blue\n",
		"chart/templates/a.yaml":            named("{{ .Release.Name }}-a"),
		"chart/templates/b.yaml":            named("{{ .Release.Name }}-b"),
		"chart/templates/tests/t.yaml":      "apiVersion: v1\nkind: Pod\nmetadata: {name: tester, annotations: {helm.sh/hook: test}}\nspec: {containers: [{name: a, image: a}]}\n",
		"chart/charts/sub/Chart.yaml":       "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"chart/charts/sub/templates/s.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-sub\"}\n",
		"env/prod.yaml":                     "colour: red\n",
		"base/kustomization.yaml":           "resources: [web.yaml]\n",
		"base/web.yaml":                     webText("nginx:1"),
		"over/kustomization.yaml":           "namePrefix: over-\nresources: [../base]\nimages: [{name: nginx, newTag: \"3\"}]\n",
	})
	url := g.URL + "/shop.git"
	create := func(name string, more ...string) {
		t.Helper()
		runCLI(t, append([]string{"source", "create", "git", url, "--name", name, "--repository", "shop", "-n", ns, "--clusters", "region in (eu,us)", "--interval", "30s", "--yes"}, more...)...)
	}
	create("helm", "--path", "chart", "--values-path", "env/prod.yaml")
	create("custom", "--path", "over")
	data := func(name, want string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, "member1", "v1", "ConfigMap", ns, name)
			if err != nil || o == nil || fmt.Sprint(o.Object["data"]) != want {
				return fmt.Errorf("%v (%v)", o, err)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "the chart and the kustomization run in the chosen members", allChecks(
		existsIn("v1", "ConfigMap", ns, "helm-a", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "helm-b", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "helm-sub", "member1", "member2"),
		existsIn("apps/v1", "Deployment", ns, "over-web", "member1", "member2"), existsIn("v1", "Pod", ns, "tester"), data("helm-a", "map[colour:red]")))
	shows := func(what, source string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := runCLI(t, "source", "get", source, "-n", ns)
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("no %q in:\n%s", w, out)
				}
			}
			return nil
		})
	}
	shows("the chart is named", "helm", "build     Helm of chart shop-1.2.0", "Ready: True")
	shows("the kustomization is named", "custom", "build     Kustomize of over", "Ready: True")
	local := runCLI(t, "source", "render", g.work, "--name", "helm", "-n", ns, "--path", "chart", "--values-path", "env/prod.yaml")
	expectOutput(t, "the same on this machine", local, "# chart/templates/a.yaml:1\n", "name: helm-a", "colour: red", "name: helm-sub")

	g.commit(t, "a random value", map[string]string{"chart/templates/b.yaml": "", "chart/templates/c.yaml": strings.ReplaceAll(named("{{ .Release.Name }}-c"), "{{ .Values.colour }}", "{{ randAlpha 9 }}")})
	runCLI(t, "source", "sync", "helm", "-n", ns)
	shows("the random value is reported", "helm", "GeneratedFieldsKept", "ConfigMap helm-c at /data/")
	random := func() string {
		o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "helm-c")
		if err != nil || o == nil {
			return ""
		}
		return fmt.Sprint(o.Object["data"])
	}
	testwait.UntilNil(t, "the random value runs", existsIn("v1", "ConfigMap", ns, "helm-c", "member1", "member2"))
	first := random()
	g.commit(t, "another value", map[string]string{"env/prod.yaml": "colour: yellow\n"})
	runCLI(t, "source", "sync", "helm", "-n", ns)
	testwait.UntilNil(t, "the next commit runs", data("helm-a", "map[colour:yellow]"))
	if now := random(); now != first || first == "" {
		t.Errorf("the random value was %s, and is %s", first, now)
	}
	g.commit(t, "a stated value", map[string]string{"chart/templates/c.yaml": named("{{ .Release.Name }}-c"), "env/prod.yaml": "colour: green\n"})
	runCLI(t, "source", "sync", "helm", "-n", ns)
	testwait.UntilNil(t, "the next commit runs, and what it dropped is gone", allChecks(
		data("helm-a", "map[colour:green]"), existsIn("v1", "ConfigMap", ns, "helm-c", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "helm-b")))
}
