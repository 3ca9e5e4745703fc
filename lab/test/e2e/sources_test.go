package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// commit writes and removes files, and pushes the commit. A file without text is removed.
func (g *gitServer) commit(t *testing.T, message string, files map[string]string) {
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
	g.runGit(t, g.work, "add", "-A")
	g.runGit(t, g.work, "commit", "--quiet", "-m", message)
	g.runGit(t, g.work, "push", "--quiet", "origin", "HEAD:main")
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

// A directory of a repository runs in members. A commit changes, adds and removes. Nothing is removed
// when the server is gone, or when the Source is deleted.
func TestSourceBringsCommitsToMembers(t *testing.T) {
	ns := createNamespace(t, "sources")
	g := newGitServer(t)
	g.commit(t, "the shop opens", map[string]string{"deploy/web.yaml": webText("nginx:1"), "deploy/old.yaml": oldSettings, "README.md": "a shop"})

	url := g.URL + "/shop.git"
	shown := runCLI(t, "source", "create", "git", url, "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--interval", "30s", "--dry-run")
	expectOutput(t, "the preview", shown, "+ source/shop: deploy of branch main, to the clusters with region in (eu,us)", "+ repository/shop: "+url, "+ rolebinding/atoll-sources")
	expectOutput(t, "the Source", runCLI(t, "source", "create", "git", url, "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--interval", "30s", "--yes"), "made; follow it with")
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
	sourceIs("the Source is ready", "the shop opens", "author    Aiko", "clusters  2/2", "Ready: True")

	g.commit(t, "nginx 2", map[string]string{"deploy/web.yaml": webText("nginx:2"), "deploy/new.yaml": strings.ReplaceAll(oldSettings, "old", "new"), "deploy/old.yaml": ""})
	expectOutput(t, "the sync", runCLI(t, "source", "sync", "shop", "-n", ns), "checks the Repository")
	testwait.UntilNil(t, "the next commit runs, and what it dropped is gone", allChecks(
		existsIn("v1", "ConfigMap", ns, "new", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old"), imageIn("member1", ns, "nginx:2"), imageIn("member2", ns, "nginx:2")))
	sourceIs("the Source tells the commit", "nginx 2", "2 applied", "Ready: True")

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
