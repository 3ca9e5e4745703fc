package sourcesets

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/render/filetree"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

var (
	repoKey = types.NamespacedName{Namespace: "shop", Name: "repo"}
	setKey  = types.NamespacedName{Namespace: "shop", Name: "apps"}
)

const (
	template = "{metadata: {name: '{{.path.basename}}'}, spec: {repository: repo, ref: {branch: main}, paths: ['{{.path.path}}']}}"
	appDirs  = "{generators: [{directories: {repository: repo, ref: {branch: main}, paths: ['apps/*']}}], template: " + template + "}"
)

// hub is a Reconciler over a store in memory, and a repository.
type hub struct {
	mu     sync.Mutex // of a running hub, held except in a sleep
	t      *testing.T
	r      *Reconciler
	cfg    Config
	tables *state.HubTables
	store  *sourceStore
	// files are those of the commit; fails is the failure of all fetches, and failure that of each listing.
	files          fstest.MapFS
	commit         string
	fails, failure *fetch.Failure
	failures       int
	// descends and descentFails answer comparisons, which compared counts.
	descends     bool
	descentFails *fetch.Failure
	compared     int
	listed       int
	checks       []types.NamespacedName
	events       []string
	clusters     fakeClusters
}

// sourceStore is the Sources of the API, and a table that lags behind nothing.
type sourceStore struct {
	objects map[string]*unstructured.Unstructured
	writes  []string
	// refuse is the error of writes of a Source of that name.
	refuse map[string]error
	// raced are Sources that another client makes just before the first apply of their names.
	raced   map[string]*unstructured.Unstructured
	refused int
	version int
}

func (s *sourceStore) Get(key types.NamespacedName) (*v1alpha1.Source, bool) {
	u, ok := s.objects[key.Name]
	if !ok {
		return nil, false
	}
	out := &v1alpha1.Source{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		panic(err)
	}
	return out, true
}

func (s *sourceStore) InNamespace(namespace string) (out []*v1alpha1.Source) {
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		one, _ := s.Get(types.NamespacedName{Namespace: namespace, Name: name})
		out = append(out, one)
	}
	return out
}

func (s *sourceStore) Put(*v1alpha1.Source)                 { /* the store has it */ }
func (s *sourceStore) Subscribe(func(types.NamespacedName)) { /* the tests reconcile by themselves */ }
func (s *sourceStore) SubscribeToEveryChange(func(types.NamespacedName)) {
	/* the same */
}

// fakeClusters are Clusters by name, of which the namespace shop may place on those of the set a.
type fakeClusters map[string]*v1alpha1.Cluster

func (f fakeClusters) Get(name string) (*v1alpha1.Cluster, bool) { c, ok := f[name]; return c, ok }
func (f fakeClusters) Subscribe(func(string))                    { /* the tests reconcile by themselves */ }
func (f fakeClusters) SubscribeSets(func(string))                { /* the same */ }
func (f fakeClusters) OfCluster(name string) []string            { return []string{f[name].Labels["set"]} }
func (f fakeClusters) AllowedSets(namespace string) []string {
	return map[string][]string{"shop": {"a"}}[namespace]
}

func (f fakeClusters) List() (out []*v1alpha1.Cluster) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		out = append(out, f[name])
	}
	return out
}

// setCluster makes a Cluster with labels, or changes them.
func (f fakeClusters) setCluster(name string, labels map[string]string) {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	c.Spec.Accepted = true
	f[name] = c
}

func parseSpec(t *testing.T, text string) *v1alpha1.SourceSetSpec {
	t.Helper()
	spec := &v1alpha1.SourceSetSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return spec
}

func newHub(t *testing.T, spec string) *hub {
	t.Helper()
	h := &hub{t: t, files: fstest.MapFS{}, commit: "c0", descends: true, clusters: fakeClusters{}, store: &sourceStore{objects: map[string]*unstructured.Unstructured{}, refuse: map[string]error{}}}
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo", UID: "r", Generation: 1}}
	repo.Spec.Git = &v1alpha1.GitRepository{URL: "https://git.example.com/shop.git"}
	set := &v1alpha1.SourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "apps", UID: "s", Generation: 1}}
	set.Spec = *parseSpec(t, spec)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "atoll-sources"}}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, v1alpha1.GroupVersion})
	c := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithRESTMapper(mapper).WithObjects(repo, set, account).WithStatusSubresource(&v1alpha1.SourceSet{}).Build()
	h.tables = statetest.NewTables(t, c)
	if err := c.Get(t.Context(), repoKey, repo); err != nil {
		t.Fatal(err)
	}
	h.tables.Repositories.Put(repo)
	h.cfg = Config{Config: sources.Config{Repositories: h.tables.Repositories, Client: c, Templates: h.store.newClient(t), Events: h, Log: slog.New(slog.DiscardHandler)}, Sets: h.tables.SourceSets, Made: h.store, Clusters: h.clusters, ClusterSets: h.clusters}
	h.r = newReconciler(h.cfg)
	h.r.checkRepository = func(key types.NamespacedName) { h.checks = append(h.checks, key) }
	h.refreshSet()
	return h
}

// newClient returns a client that applies as the API server does, for these tests' objects.
func (s *sourceStore) newClient(t *testing.T) *dynamicfake.FakeDynamicClient {
	c := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	c.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch a := action.(type) {
		case clienttesting.GetActionImpl:
			if u, ok := s.objects[a.Name]; ok {
				return true, u.DeepCopy(), nil
			}
			return true, nil, apierrors.NewNotFound(a.Resource.GroupResource(), a.Name)
		case clienttesting.PatchActionImpl:
			if err := s.refuse[a.Name]; err != nil {
				s.refused++
				return true, nil, err
			}
			u, err := s.applyPatch(a)
			return true, u, err
		case clienttesting.DeleteActionImpl:
			p := a.DeleteOptions.Preconditions
			if err := s.refuse[a.Name]; err != nil {
				return true, nil, err
			}
			if p == nil || *p.UID != s.objects[a.Name].GetUID() || *p.ResourceVersion != s.objects[a.Name].GetResourceVersion() {
				t.Errorf("a delete of %s does not state its UID and version", a.Name)
			}
			delete(s.objects, a.Name)
			s.writes = append(s.writes, "delete "+a.Name)
			return true, nil, nil
		}
		return false, nil, nil
	})
	return c
}

// applyPatch applies a form over what the store has: fields that the form does not state stay.
func (s *sourceStore) applyPatch(a clienttesting.PatchActionImpl) (*unstructured.Unstructured, error) {
	var form unstructured.Unstructured
	if err := json.Unmarshal(a.Patch, &form.Object); err != nil {
		return nil, err
	}
	old, has := s.objects[a.Name]
	if *a.PatchOptions.Force != has {
		return nil, fmt.Errorf("%s is applied with force %v", a.Name, *a.PatchOptions.Force)
	}
	if other := s.raced[a.Name]; other != nil && !has {
		delete(s.raced, a.Name)
		s.objects[a.Name] = other
		old, has = other, true
		form.SetResourceVersion(other.GetResourceVersion())
	}
	if form.Object["spec"] == nil {
		return s.releaseFields(a, old), nil
	}
	now := &unstructured.Unstructured{Object: map[string]any{}}
	if has {
		now = old.DeepCopy()
		if v := form.GetResourceVersion(); v != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "sources"}, a.Name, fmt.Errorf("version %q", v))
		}
	}
	mergeFields(now.Object, form.Object)
	s.version++
	now.SetResourceVersion(fmt.Sprint(s.version))
	if !has {
		now.SetUID(types.UID(fmt.Sprint("uid-", a.Name, s.version)))
	}
	entry := metav1.ManagedFieldsEntry{Manager: a.PatchOptions.FieldManager, Operation: metav1.ManagedFieldsOperationApply}
	for key := range form.GetAnnotations() {
		entry.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + key + `":{}}}}`)
	}
	now.SetManagedFields(append(otherManagers(now, entry.Manager), entry))
	s.objects[a.Name] = now
	s.writes = append(s.writes, "apply "+a.Name)
	return now.DeepCopy(), nil
}

// releaseFields applies an empty form: labels and annotations of the manager alone are taken back.
func (s *sourceStore) releaseFields(a clienttesting.PatchActionImpl, old *unstructured.Unstructured) *unstructured.Unstructured {
	now := old.DeepCopy()
	now.SetLabels(nil)
	now.SetAnnotations(nil)
	now.SetManagedFields(otherManagers(now, a.PatchOptions.FieldManager))
	s.objects[a.Name] = now
	s.writes = append(s.writes, "release "+a.Name)
	return now.DeepCopy()
}

func otherManagers(of *unstructured.Unstructured, manager string) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(of.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager })
}

func mergeFields(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		old, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			mergeFields(old, inner)
			continue
		}
		into[key] = value
	}
}

// editSource changes a Source as a person does.
func (s *sourceStore) editSource(name string, change func(spec map[string]any, u *unstructured.Unstructured)) {
	u := s.objects[name]
	spec, _ := u.Object["spec"].(map[string]any)
	change(spec, u)
	s.version++
	u.SetResourceVersion(fmt.Sprint(s.version))
}

func (h *hub) RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string) {
	h.events = append(h.events, about.Kind+"/"+about.Name+" "+string(reason)+" "+message)
}

// setFiles brings a commit with these files alone, each with its text after =.
func (h *hub) setFiles(commit string, files ...string) {
	h.commit = commit
	clear(h.files)
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		h.files[name] = &fstest.MapFile{Data: []byte(text)}
	}
}

// runCheck checks the Repository, as package sources does.
func (h *hub) runCheck() {
	h.t.Helper()
	repo, _ := h.tables.Repositories.Get(repoKey)
	if h.fails != nil {
		h.failures++
		h.r.FailListings(repoKey, *h.fails, h.failures)
		return
	}
	h.failures = 0
	check := sources.ListingCheck{Repository: repo, TrustedKeys: "keys", Descends: func(context.Context, string, string) (bool, error) {
		h.compared++
		if h.descentFails != nil {
			return false, h.descentFails
		}
		return h.descends, nil
	}}
	var contents []fetch.Content
	for _, w := range h.r.ListWants(check) {
		contents = append(contents, h.listContent(w))
	}
	h.r.TakeListings(h.t.Context(), check, contents)
}

// listContent answers one request.
func (h *hub) listContent(w fetch.Want) fetch.Content {
	c := fetch.Content{ID: w.ID, Commit: h.commit}
	if h.failure != nil {
		c.Failure, c.Commit = h.failure, ""
		return c
	}
	if c.Unchanged = w.SeenCommit == h.commit; c.Unchanged {
		return c
	}
	h.listed++
	var err error
	if c.Listing, c.Problems, err = render.List(filetree.Tree{FS: h.files}, *w.Listing); err != nil {
		h.t.Fatal(err)
	}
	if c.Listing != nil {
		if c.Digest = c.Listing.Digest(); c.Digest == w.SeenDigest {
			c.Listing, c.Unchanged = nil, true
		}
	}
	return c
}

// runReconcile reconciles the SourceSet until no check is requested. It returns the writes of Sources.
func (h *hub) runReconcile() string {
	h.t.Helper()
	h.store.writes = nil
	for range 5 {
		h.checks = nil
		if _, err := h.r.reconcileSet(h.t.Context(), setKey); err != nil {
			h.t.Fatal(err)
		}
		if len(h.checks) == 0 {
			break
		}
		h.runCheck()
	}
	slices.Sort(h.store.writes)
	return strings.Join(h.store.writes, ", ")
}

// checkAndReconcile checks the Repository, and reconciles the SourceSet.
func (h *hub) checkAndReconcile() string {
	h.t.Helper()
	h.runCheck()
	return h.runReconcile()
}

func (h *hub) readSet() *v1alpha1.SourceSet {
	h.t.Helper()
	set, ok := h.tables.SourceSets.Get(setKey)
	if !ok {
		h.t.Fatal("no SourceSet")
	}
	return set
}

// refreshSet takes the SourceSet of the store into the table, as the watch does.
func (h *hub) refreshSet() {
	h.t.Helper()
	var set v1alpha1.SourceSet
	if err := h.r.Client.Get(h.t.Context(), setKey, &set); err != nil {
		h.t.Fatal(err)
	}
	h.tables.SourceSets.Put(&set)
}

// editSet edits the spec of the SourceSet, as a user does.
func (h *hub) editSet(change func(*v1alpha1.SourceSetSpec)) {
	h.t.Helper()
	set := h.readSet().DeepCopy()
	change(&set.Spec)
	set.Generation++
	if err := h.r.Client.Update(h.t.Context(), set); err != nil {
		h.t.Fatal(err)
	}
	h.refreshSet()
}

// describeStatus returns the conditions, and the Sources that are kept.
func (h *hub) describeStatus() string {
	var out []string
	st := h.readSet().Status
	for _, c := range st.Conditions {
		out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	slices.Sort(out)
	for _, o := range st.Inventory {
		if o.Kept != "" {
			out = append(out, o.Name+" "+o.Kept)
		}
	}
	return strings.Join(out, " ")
}

// expectStep checks the writes of a step, and the status after it.
func (h *hub) expectStep(when, writes, wantWrites, status string) {
	h.t.Helper()
	if writes != wantWrites {
		h.t.Errorf("%s: wrote %q, want %q", when, writes, wantWrites)
	}
	if got := h.describeStatus(); got != status {
		h.t.Errorf("%s: %s, want %s; %+v", when, got, status, h.readSet().Status.Errors)
	}
}

const good = "Applied=True/Applied Generated=True/Generated"

func TestDirectoriesBecomeSources(t *testing.T) {
	h := newHub(t, appDirs)
	h.setFiles("c1", "apps/web/a.yaml", "apps/db/a.yaml", "README.md")
	h.expectStep("the first commit", h.runReconcile(), "apply db, apply web", good)
	st := h.readSet().Status
	if st.Sources.Generated != 2 || st.Sources.Applied != 2 || st.ObservedGeneration != 1 || st.WaitsFor != "" || len(st.Inventory) != 2 || st.Inventory[0].UID == "" || st.Settings == "" ||
		len(st.Revisions) != 1 || st.Revisions[0].Generator != "generators[0].directories" || st.Revisions[0].Commit != "c1" {
		t.Errorf("%+v", st)
	}
	if s, _ := h.store.Get(types.NamespacedName{Namespace: "shop", Name: "web"}); s.Spec.Paths[0] != "apps/web" || s.Labels[v1alpha1.LabelSourceSet] != "apps" || h.store.objects["web"].GetManagedFields()[0].Manager != "atoll-source-set:apps" {
		t.Errorf("%+v", s)
	}
	if len(h.events) != 1 || h.events[0] != "SourceSet/apps SourcesMade made 2 Sources: db, web" {
		t.Error(h.events)
	}

	version := h.readSet().ResourceVersion
	h.setFiles("c2", "apps/web/a.yaml=other", "apps/db/a.yaml", "docs/a")
	h.expectStep("an unrelated commit", h.checkAndReconcile(), "", good)
	if now := h.readSet(); now.ResourceVersion != version || now.Status.Revisions[0].Commit != "c1" {
		t.Errorf("an unrelated commit wrote the status: %+v", now.Status)
	}
	h.checkAndReconcile()
	if h.listed != 2 {
		t.Errorf("%d listings were read of two commits", h.listed)
	}

	h.setFiles("c3", "apps/web/a.yaml", "apps/db/a.yaml", "apps/new/a.yaml")
	h.expectStep("one more", h.checkAndReconcile(), "apply new", good)
	h.setFiles("c4", "apps/web/a.yaml", "apps/new/a.yaml")
	h.expectStep("one less", h.checkAndReconcile(), "delete db", good)
	if h.compared != 1 || h.readSet().Status.Revisions[0].Commit != "c4" || len(h.readSet().Status.Inventory) != 2 {
		t.Errorf("%d comparisons; %+v", h.compared, h.readSet().Status)
	}
	if last := h.events[len(h.events)-1]; last != "SourceSet/apps SourcesRemoved deleted 1 Source that no generator gives; the objects that they applied stay: db" {
		t.Error(last)
	}
}

// Content that cannot be read, or is empty, deletes nothing and has its reason.
func TestWhatIsNotReadDeletesNothing(t *testing.T) {
	const files = "{generators: [{files: {repository: repo, ref: {branch: main}, paths: ['apps/*/v.yaml']}}], template: " + template + "}"
	made := []string{"apps/web/v.yaml=a: 1", "apps/db/v.yaml=a: 1"}
	for name, c := range map[string]struct {
		spec   string
		change func(h *hub)
		want   string
	}{
		"an empty tree":         {appDirs, func(h *hub) { h.setFiles("c2", "README.md") }, "Applied=True/Applied Generated=False/GeneratorEmpty db GeneratorEmpty web GeneratorEmpty"},
		"a renamed directory":   {appDirs, func(h *hub) { h.setFiles("c2", "old/web/a", "old/db/a") }, "Applied=True/Applied Generated=False/GeneratorEmpty db GeneratorEmpty web GeneratorEmpty"},
		"a file that is none":   {files, func(h *hub) { h.setFiles("c2", "apps/web/v.yaml=a: [", "apps/new/v.yaml=a: 1") }, "Applied=True/Applied Generated=False/ContentInvalid"},
		"a file without values": {files, func(h *hub) { h.setFiles("c2", "apps/web/v.yaml=a: 1", "apps/db/v.yaml=") }, "Applied=True/Applied Generated=False/ContentInvalid"},
		"a key that is missing": {files, func(h *hub) { h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Template.Metadata.Name = "{{.gone}}" }) }, "Applied=True/Applied Generated=False/TemplateFailed"},
		"one name twice":        {files, func(h *hub) { h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Template.Metadata.Name = "same" }) }, "Applied=True/Applied Generated=False/ParametersInvalid"},
		"a server that is away": {appDirs, func(h *hub) {
			h.setFiles("c2", "apps/web/a")
			h.fails = render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
			h.runCheck()
		}, "Applied=True/Applied Generated=False/RepositoryUnreachable"},
		"a branch that is gone":  {appDirs, func(h *hub) { h.failure = render.NewFailure(atoll.ReasonRefMissing, "gone") }, "Applied=True/Applied Generated=False/RefMissing"},
		"a signature is missing": {appDirs, func(h *hub) { h.failure = render.NewFailure(atoll.ReasonSignatureMissing, "none") }, "Applied=True/Applied Generated=False/SignatureMissing"},
		"too many directories":   {appDirs, func(h *hub) { h.failure = render.NewFailure(atoll.ReasonContentTooLarge, "many") }, "Applied=True/Applied Generated=False/ContentTooLarge"},
		"a suspension": {appDirs, func(h *hub) {
			h.setFiles("c2", "apps/web/a")
			h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Suspend = true })
		}, "Applied=True/Applied Generated=False/Suspended"},
		"a suspended Repository": {appDirs, func(h *hub) {
			h.setFiles("c2", "apps/web/a")
			h.editRepository(func(r *v1alpha1.Repository) { r.Spec.Suspend = true })
		}, "Applied=True/Applied Generated=False/Suspended"},
		"a deleted Repository": {appDirs, func(h *hub) { h.editRepository(func(r *v1alpha1.Repository) { r.DeletionTimestamp = &metav1.Time{} }) }, "Applied=True/Applied Generated=False/RepositoryMissing"},
		"a Repository of charts": {appDirs, func(h *hub) {
			h.editRepository(func(r *v1alpha1.Repository) {
				r.Spec = v1alpha1.RepositorySpec{Helm: &v1alpha1.HelmRepository{URL: "https://h"}}
			})
		}, "Applied=True/Applied Generated=False/RefUnsupported"},
		"other paths": {appDirs, func(h *hub) {
			h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Generators[0].Directories.Exclude = []string{"db"} })
		}, "Applied=True/Applied Generated=True/Generated db SettingsChanged"},
		"another name": {appDirs, func(h *hub) {
			h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Prune = v1alpha1.PruneKeep })
			h.setFiles("c2", "apps/web/a")
		}, "Applied=True/Applied Generated=True/Generated db PruneKeeps"},
		"a rewritten history": {appDirs, func(h *hub) { h.setFiles("c2", "apps/web/a"); h.descends = false }, "Applied=True/Applied Generated=True/Generated db HistoryRewritten"},
		"none that was":       {appDirs, func(h *hub) { h.setFiles("c2", "README.md"); h.checkAndReconcile(); h.setFiles("c3", "apps/web/a") }, "Applied=True/Applied Generated=True/Generated db GeneratorEmpty"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, c.spec)
			h.setFiles("c1", made...)
			if got := h.runReconcile(); got != "apply db, apply web" {
				t.Fatal(got)
			}
			c.change(h)
			h.expectStep("then", h.checkAndReconcile(), "", c.want)
			h.expectStep("again", h.checkAndReconcile(), "", c.want)
			if len(h.store.objects) != 2 {
				t.Errorf("%d Sources are left", len(h.store.objects))
			}
		})
	}
}

// editRepository changes the Repository, as a user does.
func (h *hub) editRepository(change func(*v1alpha1.Repository)) {
	repo, _ := h.tables.Repositories.Get(repoKey)
	now := repo.DeepCopy()
	change(now)
	now.Generation++
	now.ResourceVersion = fmt.Sprint(1000 + now.Generation)
	h.tables.Repositories.Put(now)
}

// A failed check in a row of good ones is not reported before the second one. A SourceSet that waits for content reports the first.
func TestOneFailedCheckIsNotReported(t *testing.T) {
	h := newHub(t, appDirs)
	h.fails = render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
	h.expectStep("the first one", h.runReconcile(), "", "Applied=Unknown/NotDetermined Generated=False/RepositoryUnreachable")
	h.fails = nil
	h.setFiles("c1", "apps/web/a")
	h.expectStep("it is there", h.checkAndReconcile(), "apply web", good)
	h.fails = render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
	h.expectStep("one failure", h.checkAndReconcile(), "", good)
	h.expectStep("two failures", h.checkAndReconcile(), "", "Applied=True/Applied Generated=False/RepositoryUnreachable")
	h.fails = nil
	h.expectStep("it is back", h.checkAndReconcile(), "", good)
}

// A removal waits while commits cannot be compared, whatever commits come, and is carried out once they can.
func TestRemovalsWaitForAComparison(t *testing.T) {
	h := newHub(t, appDirs)
	h.setFiles("c1", "apps/web/a", "apps/db/a")
	h.runReconcile()
	h.descentFails = render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
	h.setFiles("c2", "apps/web/a")
	const waits = "Applied=False/CommitsNotCompared Generated=True/Generated"
	h.expectStep("no comparison", h.checkAndReconcile(), "", waits)
	h.setFiles("c3", "apps/web/a", "apps/new/a")
	h.expectStep("another commit", h.checkAndReconcile(), "apply new", waits)
	if got := h.readSet().Status.Revisions[0].Commit; got != "c1" {
		t.Errorf("the commit to compare with is %s", got)
	}
	h.descentFails = nil
	h.expectStep("a comparison", h.checkAndReconcile(), "delete db", good)
	if got := h.readSet().Status.Revisions[0].Commit; got != "c3" {
		t.Errorf("the commit is %s", got)
	}
}
