package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

var (
	repoKey   = types.NamespacedName{Namespace: "shop", Name: "repo"}
	sourceKey = types.NamespacedName{Namespace: "shop", Name: "web"}
)

// hub is a Reconciler over a store in memory, and a repository.
type hub struct {
	t       *testing.T
	r       *Reconciler
	tables  *state.HubTables
	objects map[string]*unstructured.Unstructured
	// refuse is the error of an apply of an object of that name.
	refuse map[string]error
	// watched are the ConfigMaps and Secrets of the watches, and forbidden is the error of a read of Secrets.
	watched   watchedObjects
	forbidden error
	// commit is what the repository has; fails is the failure of all fetches.
	commit fetch.Content
	fails  *fetch.Failure
	// descentFails is the failure of comparisons of commits.
	descentFails *fetch.Failure
	// took is how long each fetch takes; postpones leaves all contents but the first to the next fetch.
	took      time.Duration
	postpones bool
	descends  bool
	// descendsFrom are the only ancestors; nil: descends is of all.
	descendsFrom map[string]bool
	mu           sync.Mutex // of requests, objects and writes, while a Reconciler runs
	requests     []fetch.Request
	// during is called once, in the next write of an object.
	during  func()
	made    int
	bundles map[string][]policymatch.BundleID
	writes  []string
	events  []string
}

func newHub(t *testing.T, spec string) *hub {
	t.Helper()
	h := &hub{t: t, objects: map[string]*unstructured.Unstructured{}, refuse: map[string]error{}, descends: true, bundles: map[string][]policymatch.BundleID{}}
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo", UID: "r", Generation: 1}}
	repo.Spec.Git = &v1alpha1.GitRepository{URL: "https://git.example.com/shop.git"}
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "s", Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte(spec), &s.Spec); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "atoll-sources"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}, Data: map[string][]byte{"token": []byte("hush\n")}}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "example.com", Version: "v1"}, v1alpha1.GroupVersion})
	for _, kind := range []string{"ConfigMap", "Secret"} {
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	for _, kind := range []string{"PropagationPolicy", "OverridePolicy"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	c := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithRESTMapper(mapper).WithObjects(repo, s, account, secret).WithStatusSubresource(&v1alpha1.Repository{}, &v1alpha1.Source{}).Build()
	h.tables = statetest.NewTables(t, c)
	h.watched.objects = map[atoll.ItemKey]*unstructured.Unstructured{}
	h.r = New(Config{
		Objects:      &h.watched,
		Repositories: h.tables.Repositories, Sources: h.tables.Sources, Bundles: h.tables.Bundles, Client: c, Templates: h.newTemplates(), Fetcher: h, Events: h, Log: slog.New(slog.DiscardHandler),
	}, h)
	h.refreshTables()
	return h
}

// newTemplates returns a client of a store that applies as the API server does, for these tests' objects.
func (h *hub) newTemplates() *dynamicfake.FakeDynamicClient {
	c := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	c.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch a := action.(type) {
		case clienttesting.GetActionImpl:
			if h.forbidden != nil && a.Resource.Resource == "secrets" {
				return true, nil, h.forbidden
			}
			if o, ok := h.findObject(a.Resource.Resource + "/" + a.Name); ok {
				return true, o, nil
			}
			return true, nil, apierrors.NewNotFound(a.Resource.GroupResource(), a.Name)
		case clienttesting.PatchActionImpl:
			if err := h.refuse[a.Name]; err != nil && !*a.PatchOptions.Force {
				return true, nil, err
			}
			var o unstructured.Unstructured
			if err := json.Unmarshal(a.Patch, &o.Object); err != nil {
				h.t.Fatal(err)
			}
			key := a.Resource.Resource + "/" + a.Name
			managers := []metav1.ManagedFieldsEntry{newOwnership(a.PatchOptions.FieldManager, metav1.ManagedFieldsOperationApply, &o)}
			if old, ok := h.findObject(key); ok {
				o.SetUID(old.GetUID())
				managers = append(managers, slices.DeleteFunc(old.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == a.PatchOptions.FieldManager })...)
			} else {
				h.made++
				o.SetUID(types.UID(fmt.Sprint("uid-", h.made)))
			}
			o.SetManagedFields(managers)
			if len(a.PatchOptions.DryRun) > 0 {
				return true, &o, nil
			}
			h.storeObject(key, &o, "apply "+a.Name)
			h.callDuring()
			return true, &o, nil
		case clienttesting.DeleteActionImpl:
			key := a.Resource.Resource + "/" + a.Name
			if p := a.DeleteOptions.Preconditions; p == nil || *p.UID != h.objects[key].GetUID() {
				h.t.Errorf("a delete of %s does not state its UID", a.Name)
			}
			delete(h.objects, key)
			h.writes = append(h.writes, "delete "+a.Name)
			h.callDuring()
			return true, nil, nil
		}
		return false, nil, nil
	})
	return c
}

// findObject returns an object of the hub, while a Reconciler may run.
func (h *hub) findObject(key string) (*unstructured.Unstructured, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.objects[key]
	return o, ok
}

// storeObject stores an object, with the write that a Reconciler made; empty for a write of another client.
func (h *hub) storeObject(key string, o *unstructured.Unstructured, write string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[key] = o
	if write != "" {
		h.writes = append(h.writes, write)
	}
}

// countWrites counts the writes of a kind, while a Reconciler may run.
func (h *hub) countWrites(write string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.writes {
		if w == write {
			n++
		}
	}
	return n
}

// callDuring lets something happen while a check writes.
func (h *hub) callDuring() {
	if during := h.during; during != nil {
		h.during = nil
		during()
	}
}

func (h *hub) Fetch(_ context.Context, r fetch.Request) (*fetch.Answer, error) {
	h.mu.Lock()
	h.requests = append(h.requests, r)
	h.mu.Unlock()
	time.Sleep(h.took)
	switch {
	case h.fails != nil:
		return nil, h.fails
	case r.Descends != nil && h.descentFails != nil:
		return nil, h.descentFails
	case r.Descends != nil && h.descendsFrom != nil:
		return &fetch.Answer{Descends: h.descendsFrom[r.Descends.Old]}, nil
	case r.Descends != nil:
		return &fetch.Answer{Descends: h.descends}, nil
	}
	a := &fetch.Answer{}
	for i, w := range r.Wants {
		if i > 0 && h.postpones {
			a.Contents = append(a.Contents, fetch.Content{ID: w.ID, Postponed: true})
			continue
		}
		c := h.commit
		c.ID = w.ID
		if c.Unchanged = w.SeenCommit == c.Commit && c.Commit != "" || w.SeenDigest != "" && w.SeenDigest == c.Digest; c.Unchanged {
			c.Objects, c.Problems = nil, nil
		}
		for i := range c.Objects {
			c.Objects[i].Fields = runtime.DeepCopyJSON(c.Objects[i].Fields)
		}
		a.Contents = append(a.Contents, c)
	}
	return a, nil
}

// countRequests counts the fetches, while a Reconciler may run.
func (h *hub) countRequests() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

func (h *hub) BundlesHolding(key atoll.ItemKey) []policymatch.BundleID { return h.bundles[key.Name] }

func (h *hub) RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string) {
	h.events = append(h.events, about.Kind+"/"+about.Name+" "+string(reason)+" "+message)
}

// setCommit brings a commit with ConfigMaps, by NAME=VALUE.
func (h *hub) setCommit(hash string, objects ...string) {
	h.commit = fetch.Content{Commit: hash, Digest: strings.Join(objects, ","), Message: "change " + hash, Author: "Aiko"}
	for i, o := range objects {
		name, value, _ := strings.Cut(o, "=")
		h.commit.Objects = append(h.commit.Objects, render.Object{File: "a.yaml", Line: i + 1, Fields: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"v": value},
		}})
	}
}

// refreshTables takes the objects of the store into the tables, as the watch does.
func (h *hub) refreshTables() {
	h.t.Helper()
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(h.t.Context(), repoKey, &repo); err == nil {
		h.tables.Repositories.Put(&repo)
	}
	var s v1alpha1.Source
	if err := h.r.Client.Get(h.t.Context(), sourceKey, &s); err != nil {
		h.t.Fatal(err)
	}
	h.tables.Sources.Put(&s)
}

// editSource edits the spec of the Source, as a user does.
func (h *hub) editSource(change func(*v1alpha1.SourceSpec)) {
	h.t.Helper()
	s := h.readSource()
	change(&s.Spec)
	s.Generation++
	if err := h.r.Client.Update(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
	h.refreshTables()
}

func (h *hub) readSource() *v1alpha1.Source {
	h.t.Helper()
	s, ok := h.tables.Sources.Get(sourceKey)
	if !ok {
		h.t.Fatal("no Source")
	}
	return s.DeepCopy()
}

// runCheck checks the Repository, and returns the writes of objects since the last check.
func (h *hub) runCheck() string {
	h.t.Helper()
	h.writes = nil
	if err := h.r.checkRepository(h.t.Context(), repoKey); err != nil {
		h.t.Fatal(err)
	}
	slices.Sort(h.writes)
	return strings.Join(h.writes, ", ")
}

// listConditions returns the conditions of the Source, as TYPE=STATUS/REASON. InSync is left out unless others changed an object.
func (h *hub) listConditions() string {
	var out []string
	for _, c := range h.readSource().Status.Conditions {
		if c.Type == v1alpha1.SourceInSync && c.Status != metav1.ConditionFalse {
			continue
		}
		out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// expectCheck checks the writes of a check and the conditions after it.
func (h *hub) expectCheck(when, writes, conditions string) {
	h.t.Helper()
	if got := h.runCheck(); got != writes {
		h.t.Errorf("%s: wrote %q, want %q", when, got, writes)
	}
	if got := h.listConditions(); !strings.HasPrefix(got, conditions) {
		h.t.Errorf("%s: %s, want %s", when, got, conditions)
	}
}

const (
	branch  = "{repository: repo, ref: {branch: main}}"
	good    = "Applied=True/Applied Ready=False/Nowhere Rendered=True/Rendered"
	invalid = "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentInvalid"
)

func TestACommitIsAppliedAndTheNextOneRemoves(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.expectCheck("the first commit", "apply a, apply b", good)
	s := h.readSource()
	if s.Status.Commit != "c1" || s.Status.Message != "change c1" || s.Status.Author != "Aiko" || s.Status.ObservedGeneration != 1 || s.Status.Objects.Total != 2 || s.Status.Objects.Applied != 2 || s.Status.ShortCommit != "c1" {
		t.Errorf("%+v", s.Status)
	}
	a := h.objects["configmaps/a"]
	if a.GetNamespace() != "shop" || a.GetLabels()[v1alpha1.LabelSource] != "web" || a.GetManagedFields()[0].Manager != "atoll-source:shop/web" {
		t.Errorf("%v", a.Object)
	}
	h.expectCheck("the same commit", "", good)
	repo, _ := h.tables.Repositories.Get(repoKey)
	if len(repo.Status.Refs) != 1 || repo.Status.Refs[0] != (v1alpha1.RepositoryRef{Ref: "refs/heads/main", Commit: "c1"}) || repo.Status.ObservedGeneration != 1 || !meta.IsStatusConditionTrue(repo.Status.Conditions, v1alpha1.RepositoryReachable) {
		t.Errorf("%+v", repo.Status)
	}
	h.setCommit("c2", "a=2", "c=1")
	h.expectCheck("the next commit", "apply a, apply c, delete b", good)
	if len(h.events) != 1 || !strings.Contains(h.events[0], "Source/web RemovedByCommit commit c2 (change c2) dropped ConfigMap b") {
		t.Errorf("%q", h.events)
	}
	if s := h.readSource(); len(s.Status.Inventory) != 2 || s.Status.Digest != h.commit.Digest {
		t.Errorf("%+v", s.Status)
	}
}

// A commit that does not touch the paths writes nothing for the Source. So does a hub that starts again.
func TestAnUnrelatedCommitWritesNothing(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	h.runCheck()
	before := h.readSource().ResourceVersion
	h.commit.Commit = "c2"
	h.expectCheck("another commit", "", good)
	h.r = New(h.r.Config, h)
	h.expectCheck("another hub", "", good)
	if now := h.readSource(); now.ResourceVersion != before || now.Status.Commit != "c1" {
		t.Errorf("the Source was written: %+v", now.Status)
	}
	if repo, _ := h.tables.Repositories.Get(repoKey); repo.Status.Refs[0].Commit != "c2" {
		t.Errorf("%+v", repo.Status)
	}
	last := h.requests[len(h.requests)-1].Wants[0]
	if last.SeenCommit != "c2" || last.SeenDigest != "a=1" {
		t.Errorf("%+v", last)
	}
}

func TestWhatIsNotReadRemovesNothing(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.runCheck()
	before := h.readSource().ResourceVersion

	h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable, Message: "the server is away"}
	h.expectCheck("the first failure", "", good)
	if h.readSource().ResourceVersion != before {
		t.Error("one failed check is written to each Source")
	}
	h.expectCheck("the second failure", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/RepositoryUnreachable")
	repo, _ := h.tables.Repositories.Get(repoKey)
	if c := meta.FindStatusCondition(repo.Status.Conditions, v1alpha1.RepositoryReachable); c.Reason != "RepositoryUnreachable" || c.Status != metav1.ConditionFalse || repo.Status.Refs[0].Commit != "c1" {
		t.Errorf("%+v", repo.Status)
	}
	h.fails = nil
	h.expectCheck("it is back", "", good)

	h.setCommit("c2")
	h.expectCheck("a commit without objects", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentEmpty")
	h.setCommit("c3")
	h.commit.Problems = []render.Problem{{File: "b.yaml", Line: 3, Message: "no YAML"}}
	h.expectCheck("a commit with an error", "", invalid)
	if s := h.readSource(); len(s.Status.Errors) != 1 || s.Status.Errors[0] != (v1alpha1.SourceError{File: "b.yaml", Line: 3, Message: "no YAML"}) || s.Status.Commit != "c1" || s.Status.WaitsFor != "ContentInvalid" {
		t.Errorf("%+v", s.Status)
	}
	h.expectCheck("the same error again", "", invalid)
	h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable}
	h.runCheck()
	h.expectCheck("an error, and away", "", invalid)
	h.fails = nil
	h.setCommit("c4", "a=1", "a=2")
	h.expectCheck("an object twice", "", invalid)
	h.commit = fetch.Content{Result: render.Result{Failure: &fetch.Failure{Reason: atoll.ReasonRefMissing, Message: "no branch main"}}}
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Ref.Branch = "next" })
	h.expectCheck("no such branch", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/RefMissing")

	if err := h.r.Client.Delete(t.Context(), &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo"}}); err != nil {
		t.Fatal(err)
	}
	h.r.Repositories = statetest.NewTables(t, h.r.Client).Repositories
	h.expectCheck("no Repository", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/RepositoryMissing")
	if len(h.objects) != 2 {
		t.Errorf("%d objects are left", len(h.objects))
	}
}

// A commit that could not be read is read by the next check, also when the branch has not moved.
func TestACommitWhosePackFailedIsReadLater(t *testing.T) {
	for _, reason := range []atoll.Reason{atoll.ReasonRepositoryUnreachable, atoll.ReasonFetchFailed, atoll.ReasonFetchTimedOut} {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1")
		h.expectCheck("the first commit", "apply a", good)
		h.commit = fetch.Content{Commit: "c2", Result: render.Result{Failure: &fetch.Failure{Reason: reason, Message: "half a pack"}}}
		h.expectCheck("half a pack", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/"+string(reason))
		if repo, _ := h.tables.Repositories.Get(repoKey); len(repo.Status.Refs) != 0 {
			t.Errorf("the commit counts as considered: %+v", repo.Status.Refs)
		}
		h.setCommit("c2", "a=2", "b=1")
		h.expectCheck("the same commit, in whole", "apply a, apply b", good)
	}
	h := newHub(t, branch)
	h.commit = fetch.Content{Commit: "c2", Result: render.Result{Failure: &fetch.Failure{Reason: atoll.ReasonContentTooLarge, Message: "too many files"}}}
	h.expectCheck("content that is too large", "", "Applied=False/NotRendered Ready=False/NotRendered Rendered=False/ContentTooLarge")
	h.runCheck()
	if w := h.requests[len(h.requests)-1].Wants[0]; w.SeenCommit != "c2" {
		t.Errorf("a commit that is too large is read again: %+v", w)
	}
}

// A ref has a commit only when each of its Sources considered this very commit.
func TestConsideredRefs(t *testing.T) {
	refs := consideredRefs{}
	for _, c := range []struct {
		ref, commit string
		considered  bool
	}{{"one", "c1", true}, {"one", "c1", true}, {"two", "c1", true}, {"two", "c2", true}, {"two", "c2", true}, {"three", "c1", false}, {"three", "c1", true}, {"four", "c1", true}, {"four", "c1", false}, {"five", "", false}} {
		refs.addCommit(c.ref, c.commit, c.considered)
	}
	if got := refs.listRefs(); !slices.Equal(got, []v1alpha1.RepositoryRef{{Ref: "one", Commit: "c1"}}) {
		t.Errorf("%+v", got)
	}
}

func TestSuspension(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	h.runCheck()
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Suspend = true })
	h.setCommit("c2", "b=1")
	h.expectCheck("suspended", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/Suspended")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Suspend = false })
	h.expectCheck("resumed", "apply b, delete a", good)
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
		t.Fatal(err)
	}
	repo.Spec.Suspend = true
	repo.Generation++
	if err := h.r.Client.Update(t.Context(), &repo); err != nil {
		t.Fatal(err)
	}
	h.refreshTables()
	h.setCommit("c3", "c=1")
	n := len(h.requests)
	h.expectCheck("a suspended Repository", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/Suspended")
	if len(h.requests) != n {
		t.Error("a suspended Repository is fetched")
	}
}

func TestRewrittenHistoryAndSettingsRemoveNothing(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1", "c=1")
	h.runCheck()
	h.descends = false
	h.setCommit("x1", "a=2", "c=1")
	h.expectCheck("a history that was rewritten", "apply a", good)
	if got := h.requests[len(h.requests)-1].Descends; got == nil || got.Old != "c1" || got.New != "x1" {
		t.Errorf("%+v", got)
	}
	h.descends = true
	h.descentFails = &fetch.Failure{Reason: atoll.ReasonFetchTimedOut, Message: "too slow"}
	h.setCommit("x1b", "a=2")
	h.expectCheck("a history that cannot be compared", "", "Applied=False/FetchTimedOut")
	if s := h.readSource(); !strings.Contains(s.Status.Errors[0].Message, "x1, an applied one: too slow") || len(s.Status.Inventory) != 3 {
		t.Errorf("%+v", s.Status)
	}
	h.descentFails = nil
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Paths = []string{"sub"}; s.Exclude = []string{"x"} })
	h.setCommit("x2", "a=2")
	h.expectCheck("other paths", "", good)
	h.setCommit("x3", "a=3")
	h.expectCheck("a later commit", "apply a", good)
	var kept []string
	for _, o := range h.readSource().Status.Inventory {
		kept = append(kept, o.Name+" "+o.Kept)
	}
	if got := strings.Join(kept, ", "); got != "a , c SettingsChanged, b HistoryRewritten" || h.readSource().Status.Objects.Kept != 2 {
		t.Errorf("%s, %+v", got, h.readSource().Status.Objects)
	}
	if w := h.requests[len(h.requests)-1].Wants[0]; !slices.Equal(w.Paths, []string{"sub"}) || !slices.Equal(w.Exclude, []string{"x"}) {
		t.Errorf("%+v", w)
	}
}

func TestWhatIsNotOfTheSourceStays(t *testing.T) {
	h := newHub(t, branch)
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b", "uid": "b"}}}
	h.objects["configmaps/b"] = other
	h.setCommit("c1", "a=1", "b=1", "c=1", "d=1")
	h.expectCheck("an object that existed", "apply a, apply b, apply c, apply d", good)
	h.objects["configmaps/c"].SetLabels(map[string]string{v1alpha1.LabelSource: "another"})
	delete(h.objects, "configmaps/d")
	h.setCommit("c2", "a=1")
	h.expectCheck("dropped: adopted, of another Source, and gone", "", good)
	if len(h.objects) != 3 {
		t.Errorf("%v", h.objects)
	}
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Prune = v1alpha1.PruneKeep })
	h.setCommit("c3", "e=1")
	h.expectCheck("prune: Keep", "apply e", good)
}

func TestRefusedObjects(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.runCheck()
	h.refuse["a"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf(`conflict with "kubectl": .data.v`))
	h.setCommit("c2", "a=2")
	h.expectCheck("a conflict", "", "Applied=False/OwnedByOthers")
	s := h.readSource()
	if len(s.Status.Errors) != 1 || s.Status.Errors[0].File != "a.yaml" || s.Status.Errors[0].Line != 1 ||
		!strings.Contains(s.Status.Errors[0].Message, "atoll-source:shop/web") || !strings.Contains(s.Status.Errors[0].Message, "kubectl") || s.Status.Commit != "c1" || s.Status.Objects.Applied != 0 {
		t.Errorf("%+v", s.Status)
	}
	h.refuse["a"] = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf(`User "system:serviceaccount:shop:atoll-sources" cannot patch`))
	h.expectCheck("no right", "", "Applied=False/PermissionMissing")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Force = true })
	h.expectCheck("force", "apply a, delete b", good)
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Force = false })
	h.expectCheck("nothing changed", "", good)

	h.editSource(func(s *v1alpha1.SourceSpec) { s.ServiceAccountName = "absent" })
	h.expectCheck("no such ServiceAccount, and nothing changed", "", "Applied=False/ServiceAccountMissing")
	delete(h.refuse, "a")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.ServiceAccountName = "" })
	h.commit.Objects[0].Fields["kind"] = "Unserved"
	h.commit.Digest, h.commit.Commit = "u", "c3"
	h.expectCheck("a kind that the hub does not serve", "", "Applied=False/NotApplied")
	if len(h.objects) != 1 {
		t.Error("something was removed while not all is applied")
	}
}

func TestSyncAppliesEverythingOnce(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.runCheck()
	now := metav1.Now().Rfc3339Copy()
	h.editSource(func(s *v1alpha1.SourceSpec) { s.SyncRequest = &now })
	h.expectCheck("a syncRequest", "apply a, apply b", good)
	if s := h.readSource(); !s.Status.SyncRequest.Equal(&now) {
		t.Errorf("%+v", s.Status)
	}
	h.expectCheck("afterwards", "", good)
}
