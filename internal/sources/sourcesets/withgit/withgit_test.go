// Package withgit tests SourceSets with the server program of git and the child process that reads it.
//
// Contract: the child is the test binary itself. Its bounds of memory leave no room for the race detector, so these tests have a
// directory of their own.
package withgit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/sourcesets"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
	"atoll.dev/atoll/internal/testwait"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == fetch.ChildCommand {
		if err := fetch.ServeChild(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// gitWork is a git repository with a work tree.
type gitWork struct{ root, work string }

func newRepository(t *testing.T) *gitWork {
	t.Helper()
	dir := t.TempDir()
	g := &gitWork{root: filepath.Join(dir, "root"), work: filepath.Join(dir, "work")}
	g.runGit(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(g.root, "a.git"))
	g.runGit(t, dir, "clone", "--quiet", filepath.Join(g.root, "a.git"), g.work)
	return g
}

func (g *gitWork) runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Aiko", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=Aiko", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit replaces all files, and pushes the commit.
func (g *gitWork) commit(t *testing.T, files map[string]string) {
	t.Helper()
	g.runGit(t, g.work, "rm", "-rf", "--quiet", "--ignore-unmatch", ".")
	for name, text := range files {
		at := filepath.Join(g.work, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.runGit(t, g.work, "add", "-A")
	g.runGit(t, g.work, "commit", "--quiet", "-m", "change")
	g.runGit(t, g.work, "push", "--quiet", "--force", "origin", "HEAD:main")
}

func (g *gitWork) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(g.runGit(t, g.root, "--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard,
	})
	t.Cleanup(server.Close)
	return server.URL + "/a.git"
}

// sourceAPI is the Sources of the API. It is safe for concurrent use.
type sourceAPI struct {
	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	version int
}

func (s *sourceAPI) Get(key types.NamespacedName) (*v1alpha1.Source, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.objects[key.Name]
	if !ok {
		return nil, false
	}
	out := &v1alpha1.Source{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out) == nil
}

func (s *sourceAPI) InNamespace(namespace string) (out []*v1alpha1.Source) {
	for _, name := range s.listNames() {
		if one, ok := s.Get(types.NamespacedName{Namespace: namespace, Name: name}); ok {
			out = append(out, one)
		}
	}
	return out
}

func (s *sourceAPI) listNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *sourceAPI) Put(*v1alpha1.Source)                              { /* the API has it */ }
func (s *sourceAPI) Subscribe(func(types.NamespacedName))              { /* no other client writes */ }
func (s *sourceAPI) SubscribeToEveryChange(func(types.NamespacedName)) { /* no other client writes */ }

// answerRequest answers the requests of a dynamic client. An apply replaces the object.
func (s *sourceAPI) answerRequest(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.GetActionImpl:
		if u, ok := s.objects[a.Name]; ok {
			return true, u.DeepCopy(), nil
		}
		return true, nil, apierrors.NewNotFound(a.Resource.GroupResource(), a.Name)
	case clienttesting.PatchActionImpl:
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(a.Patch, &u.Object); err != nil {
			return true, nil, err
		}
		s.version++
		u.SetUID(types.UID("uid-" + a.Name))
		u.SetResourceVersion(fmt.Sprint(s.version))
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: a.PatchOptions.FieldManager, Operation: metav1.ManagedFieldsOperationApply}})
		s.objects[a.Name] = u
		return true, u.DeepCopy(), nil
	case clienttesting.DeleteActionImpl:
		delete(s.objects, a.Name)
		return true, nil, nil
	}
	return false, nil, nil
}

// quiet records no Event, and has no Bundle.
type quiet struct{}

func (quiet) RecordEvent(corev1.ObjectReference, atoll.Reason, string) { /* Events are tested elsewhere */
}
func (quiet) BundlesHolding(atoll.ItemKey) []policymatch.BundleID { return nil }
func (quiet) Get(string) (*v1alpha1.Cluster, bool)                { return nil, false }
func (quiet) List() []*v1alpha1.Cluster                           { return nil }
func (quiet) Subscribe(func(string))                              { /* no Cluster comes */ }

const setText = `
metadata: {namespace: shop, name: apps, uid: s, generation: 1}
spec:
  generators:
  - directories: {repository: repo, ref: {branch: main}, paths: [apps/*]}
  - files: {repository: repo, ref: {branch: main}, paths: [tenants/*.yaml]}
  template:
    metadata: {name: '{{if hasKey . "tenant"}}{{.tenant}}{{else}}{{.path.basename}}{{end}}'}
    spec: {repository: repo, ref: {branch: main}, paths: ['{{.path.path}}']}
`

// Directories and files of a repository become Sources. A commit makes and deletes, and an empty tree, a file that cannot be read
// and a rewritten history delete nothing.
func TestASourceSetFollowsARepository(t *testing.T) {
	g := newRepository(t)
	g.commit(t, map[string]string{"apps/web/a": "x", "apps/db/a": "x", "tenants/a.yaml": "- tenant: blue\n- tenant: red\n"})
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo", UID: "r", Generation: 1}}
	repo.Spec.Git = &v1alpha1.GitRepository{URL: g.serve(t)}
	set := &v1alpha1.SourceSet{}
	if err := yaml.UnmarshalStrict([]byte(setText), set); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "atoll-sources"}}
	c := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(repo, set, account).WithStatusSubresource(&v1alpha1.SourceSet{}, &v1alpha1.Repository{}).Build()
	tables := statetest.NewTables(t, c)
	keys := types.NamespacedName{Namespace: "shop", Name: "apps"}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "repo"}, repo); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), keys, set); err != nil {
		t.Fatal(err)
	}
	tables.Repositories.Put(repo)
	tables.SourceSets.Put(set)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	api := &sourceAPI{objects: map[string]*unstructured.Unstructured{}}
	templates := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	templates.PrependReactor("*", "*", api.answerRequest)
	cfg := sourcesets.Config{Sets: tables.SourceSets, Made: api, Clusters: quiet{}, ClusterSets: tables.Sets}
	cfg.Repositories, cfg.Sources, cfg.Bundles, cfg.Objects = tables.Repositories, tables.Sources, tables.Bundles, tables.Templates
	cfg.Client, cfg.Templates, cfg.Events, cfg.Log = c, templates, quiet{}, slog.New(slog.DiscardHandler)
	cfg.Fetcher = &fetch.Fetcher{Executable: []string{own, fetch.ChildCommand}, AllowedNetworks: []string{"127.0.0.0/8", "::1/128"}}
	run := sourcesets.NewRunner(cfg, quiet{})
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer done.Wait()
	defer stop()
	requests := 1
	expect := func(when, names, status string) {
		t.Helper()
		requests++
		requestCheck(t, tables, requests)
		testwait.UntilNil(t, when, func(context.Context) error {
			now, _ := tables.SourceSets.Get(keys)
			if got := strings.Join(api.listNames(), " ") + ": " + describeStatus(now); got != names+": "+status {
				return fmt.Errorf("%s, want %s: %s; %+v", got, names, status, now.Status.Errors)
			}
			return nil
		})
	}
	expect("the first commit", "blue db red web", "Generated Applied")
	g.commit(t, map[string]string{"apps/web/a": "x", "apps/new/a": "x", "tenants/a.yaml": "tenant: red\n", "README.md": "y"})
	expect("a commit that makes and drops", "new red web", "Generated Applied")
	g.runGit(t, g.work, "checkout", "--quiet", "--orphan", "other")
	g.commit(t, map[string]string{"apps/web/a": "x", "tenants/a.yaml": "tenant: red\n"})
	expect("a rewritten history", "new red web", "Generated Applied new:HistoryRewritten")
	g.commit(t, map[string]string{"README.md": "y"})
	const kept = " new:HistoryRewritten red:GeneratorEmpty web:GeneratorEmpty"
	expect("an empty tree", "new red web", "GeneratorEmpty Applied"+kept)
	g.commit(t, map[string]string{"apps/web/a": "x", "tenants/a.yaml": "tenant: [\n"})
	expect("a file that cannot be read", "new red web", "ContentInvalid Applied"+kept)
}

// requestCheck requests a check of the Repository, as a webhook does.
func requestCheck(t *testing.T, tables *state.HubTables, number int) {
	t.Helper()
	repo, ok := tables.Repositories.Get(types.NamespacedName{Namespace: "shop", Name: "repo"})
	if !ok {
		t.Fatal("no Repository")
	}
	now := repo.DeepCopy()
	at := metav1.NewMicroTime(metav1.Now().Time)
	now.Status.WebhookTime, now.ResourceVersion = &at, fmt.Sprint(100000*number)
	tables.Repositories.Put(now)
}

// describeStatus returns the reasons of the conditions, and the Sources that are kept.
func describeStatus(set *v1alpha1.SourceSet) string {
	var out []string
	for _, kind := range []string{v1alpha1.SourceSetGenerated, v1alpha1.SourceSetApplied} {
		if c := meta.FindStatusCondition(set.Status.Conditions, kind); c != nil {
			out = append(out, c.Reason)
		}
	}
	for _, o := range set.Status.Inventory {
		if o.Kept != "" {
			out = append(out, o.Name+":"+o.Kept)
		}
	}
	return strings.Join(out, " ")
}
