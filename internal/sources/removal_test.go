package sources

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
)

// errRefused is what the API says of an object that it does not take.
var errRefused = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", fmt.Errorf("no"))

// listInventory returns the inventory as NAME, and NAME=REASON for objects that stay.
func (h *hub) listInventory() string {
	var out []string
	for _, o := range h.readSource().Status.Inventory {
		out = append(out, strings.TrimSuffix(o.Name+"="+o.Kept, "="))
	}
	return strings.Join(out, " ")
}

// Putting the settings or the commit back removes nothing of an attempt that was applied in part.
func TestPartialAttemptsRemoveNothing(t *testing.T) {
	const partly = "Applied=False/NotApplied"
	for name, c := range map[string]struct {
		// attempt applies y and refuses x; back is the next check.
		attempt, back func(h *hub)
		want          string
	}{
		"settings that are put back": {
			func(h *hub) {
				h.editSource(func(s *v1alpha1.SourceSpec) { s.Paths = []string{"b"} })
				h.setCommit("c1", "y=1", "x=1")
			},
			func(h *hub) {
				h.editSource(func(s *v1alpha1.SourceSpec) { s.Paths = nil })
				h.setCommit("c1", "a=1", "b=1")
			},
			"a b y=SettingsChanged",
		},
		"a branch that is reset to the applied commit": {
			func(h *hub) { h.setCommit("c2", "a=1", "b=1", "y=1", "x=1") },
			func(h *hub) {
				h.descends = false
				h.setCommit("c1", "a=1", "b=1")
			},
			"a b y=HistoryRewritten",
		},
		"a commit that is amended": {
			func(h *hub) { h.setCommit("c2", "a=1", "b=1", "y=1", "x=1") },
			func(h *hub) {
				h.descendsFrom = map[string]bool{"c1": true}
				h.setCommit("c2b", "a=1", "b=1")
			},
			"a b y=HistoryRewritten",
		},
		"a commit that follows the attempt": {
			func(h *hub) { h.setCommit("c2", "a=1", "b=1", "y=1", "x=1") },
			func(h *hub) { h.setCommit("c3", "a=1", "b=1") },
			"a b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, branch)
			h.setCommit("c1", "a=1", "b=1")
			h.expectCheck("the first commit", "apply a, apply b", good)
			h.refuse["x"] = errRefused
			c.attempt(h)
			h.expectCheck("an attempt", "apply y", partly)
			if s := h.readSource(); s.Status.Commit != "c1" || s.Status.AttemptedCommit != h.commit.Commit {
				t.Errorf("%+v", s.Status)
			}
			c.back(h)
			h.runCheck()
			if got := h.listInventory(); got != c.want {
				t.Errorf("the inventory is %q, want %q", got, c.want)
			}
			if _, exists := h.objects["configmaps/y"]; exists != strings.Contains(c.want, "y") {
				t.Errorf("y exists: %v", exists)
			}
		})
	}
}

// A commit that cannot be compared is not forgotten by the next one, which may be of another history.
func TestCommitsThatWereNeverComparedRemoveNothing(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.runCheck()
	h.descentFails = &fetch.Failure{Reason: atoll.ReasonFetchTimedOut, Message: "too slow"}
	h.setCommit("c2", "a=1", "n=1")
	h.expectCheck("a comparison that fails", "apply n", "Applied=False/FetchTimedOut")
	h.expectCheck("once more", "", "Applied=False/FetchTimedOut")
	h.setCommit("c3", "a=1")
	h.expectCheck("a third commit", "", good)
	if got := h.listInventory(); got != "a b=HistoryRewritten n=HistoryRewritten" && got != "a n=HistoryRewritten b=HistoryRewritten" {
		t.Error(got)
	}
	if len(h.objects) != 3 {
		t.Errorf("%d objects are left", len(h.objects))
	}
}

// A check that began before a person stopped, changed or deleted the Source or its Repository removes nothing more.
func TestInterruptedChecksRemoveNothing(t *testing.T) {
	repository := func(change func(*v1alpha1.Repository)) func(h *hub) {
		return func(h *hub) {
			var repo v1alpha1.Repository
			if err := h.r.Client.Get(h.t.Context(), repoKey, &repo); err != nil {
				h.t.Fatal(err)
			}
			change(&repo)
			repo.Generation++
			if err := h.r.Client.Update(h.t.Context(), &repo); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	// The table is not refreshed: the change is in the store alone, as while the watch lags.
	source := func(change func(*v1alpha1.SourceSpec)) func(h *hub) {
		return func(h *hub) {
			s := h.readStoredSource()
			change(&s.Spec)
			s.Generation++
			if err := h.r.Client.Update(h.t.Context(), s); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	for name, during := range map[string]func(h *hub){
		"the Source is suspended":     source(func(s *v1alpha1.SourceSpec) { s.Suspend = true }),
		"prune: Keep":                 source(func(s *v1alpha1.SourceSpec) { s.Prune = v1alpha1.PruneKeep }),
		"other paths":                 source(func(s *v1alpha1.SourceSpec) { s.Paths = []string{"a"} }),
		"the Repository is suspended": repository(func(r *v1alpha1.Repository) { r.Spec.Suspend = true }),
		"another URL":                 repository(func(r *v1alpha1.Repository) { r.Spec.Git.URL = "https://other.example.com/a" }),
		"the Source is deleted": func(h *hub) {
			if err := h.r.Client.Delete(h.t.Context(), h.readStoredSource()); err != nil {
				h.t.Fatal(err)
			}
		},
		"the Repository is deleted": func(h *hub) {
			if err := h.r.Client.Delete(h.t.Context(), &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo"}}); err != nil {
				h.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, branch)
			h.setCommit("c1", "a=1", "b=1", "c=1")
			h.runCheck()
			h.setCommit("c2", "a=2")
			h.during = func() { during(h) }
			if got := h.runCheck(); got != "apply a" {
				t.Errorf("during the apply: %s", got)
			}
			if len(h.objects) != 3 {
				t.Errorf("%d objects are left", len(h.objects))
			}
			if s, ok := h.tables.Sources.Get(sourceKey); !strings.Contains(name, "Source is deleted") && (!ok || len(s.Status.Inventory) != 3 || s.Status.Commit != "c1") {
				t.Errorf("%+v", s)
			}
			if s, ok := h.tables.Sources.Get(sourceKey); ok && s.Generation > 1 {
				if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceApplied); c.ObservedGeneration != 1 {
					t.Errorf("the check of a former spec reports of the present one: %+v", c)
				}
			}
			if repo, _ := h.tables.Repositories.Get(repoKey); len(repo.Status.Refs) == 1 && repo.Status.Refs[0].Commit == "c2" {
				t.Error("the commit counts as considered")
			}

			h = newHub(t, branch)
			h.setCommit("c1", "a=1", "b=1", "c=1")
			h.runCheck()
			h.setCommit("c2", "a=1")
			h.during = func() { during(h) }
			if got := h.runCheck(); got != "delete b" {
				t.Errorf("during the first removal: %s", got)
			}

			h = newHub(t, branch)
			h.setCommit("c1", "a=1", "b=1", "c=1")
			h.runCheck()
			during(h)
			h.setCommit("c2", "a=2")
			if got := h.runCheck(); got != "" {
				t.Errorf("before the apply: %s", got)
			}
		})
	}
}

// An object that the Source did not create stays, whatever its name, its label and its fields.
func TestOnlyObjectsThatTheSourceCreatedAreRemoved(t *testing.T) {
	const manager = "atoll-source:shop/web"
	remake := func(h *hub) {
		o := h.objects["configmaps/b"].DeepCopy()
		o.SetUID("made-again")
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {Manager: manager}})
		h.objects["configmaps/b"] = o
	}
	for name, c := range map[string]struct {
		change func(h *hub)
		next   []string // the objects of a commit in between
		want   string
	}{
		"nothing":                                      {func(*hub) {}, nil, "a"},
		"a person deleted it and made it again":        {remake, nil, "a b=OwnedElsewhere"},
		"the same, and the Source applied it again":    {remake, []string{"a=1", "b=2"}, "a b=Adopted"},
		"a person deleted it, and the Source made it":  {func(h *hub) { delete(h.objects, "configmaps/b") }, []string{"a=1", "b=2"}, "a"},
		"a hub ended before it wrote what it had made": {func(h *hub) { h.resetStatus() }, []string{"a=1", "b=1"}, "a b=Adopted"},
		"an object of its manager that existed": {func(h *hub) {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "d", "uid": "d"}}}
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager}})
			h.objects["configmaps/d"] = o
		}, []string{"a=1", "b=1", "d=1"}, "a d=Adopted"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, branch)
			h.setCommit("c1", "a=1", "b=1")
			h.runCheck()
			c.change(h)
			if c.next != nil {
				h.setCommit("c2", c.next...)
				h.runCheck()
			}
			h.setCommit("c3", "a=1")
			h.runCheck()
			if got := h.listInventory(); got != c.want {
				t.Errorf("the inventory is %q, want %q", got, c.want)
			}
			if _, exists := h.objects["configmaps/b"]; exists != strings.Contains(c.want, "b=") {
				t.Errorf("b exists: %v", exists)
			}
		})
	}
}

// An object is removed in whatever version the hub serves. One of a kind that the hub does not serve is kept, because
// it may still exist.
func TestRemovalsInOtherVersions(t *testing.T) {
	for served, want := range map[string]string{"v1": "delete b", "v2": "delete b", "": ""} {
		h := newHub(t, branch)
		mapper := h.r.Client.RESTMapper().(*meta.DefaultRESTMapper)
		mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, meta.RESTScopeNamespace)
		h.setCommit("c1", "a=1", "b=1")
		h.commit.Objects[1].Fields["apiVersion"], h.commit.Objects[1].Fields["kind"] = "example.com/v1", "Thing"
		h.expectCheck("a commit with a Thing", "apply a, apply b", good)

		next := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "example.com", Version: "v2"}, {Group: "example.com", Version: "v1"}})
		next.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
		if served != "" {
			next.Add(schema.GroupVersionKind{Group: "example.com", Version: served, Kind: "Thing"}, meta.RESTScopeNamespace)
		}
		*mapper = *next
		h.setCommit("c2", "a=1")
		h.expectCheck("without the Thing, served "+served, want, good)
		if got := h.listInventory(); got != map[bool]string{true: "a", false: "a b=KindUnserved"}[served != ""] {
			t.Errorf("served %q: %s", served, got)
		}
	}
}

// A sync forgets the kept objects that a person deleted by now, and no others.
func TestASyncForgetsKeptObjectsThatAreGone(t *testing.T) {
	h := newHub(t, "{repository: repo, ref: {branch: main}, prune: Keep}")
	h.setCommit("c1", "a=1", "b=1", "c=1")
	h.runCheck()
	h.setCommit("c2", "a=1")
	h.runCheck()
	delete(h.objects, "configmaps/b")
	h.setCommit("c3", "a=2")
	h.runCheck()
	if got := h.listInventory(); got != "a b=PruneKeeps c=PruneKeeps" {
		t.Errorf("after a commit: %s", got)
	}
	now := metav1.Now().Rfc3339Copy()
	h.editSource(func(s *v1alpha1.SourceSpec) { s.SyncRequest = &now })
	h.expectCheck("a sync", "apply a", good)
	if got := h.listInventory(); got != "a c=PruneKeeps" || h.readSource().Status.Objects.Kept != 1 {
		t.Errorf("after a sync: %s, %+v", got, h.readSource().Status.Objects)
	}
}

// The message of a commit is hostile, and is escaped in Events.
func TestEventsOfRemovalsAreEscaped(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.runCheck()
	h.setCommit("c2", "a=1")
	h.commit.Message = "drop\u202e it\x1b[2J" + strings.Repeat("x", 2000)
	h.runCheck()
	if len(h.events) != 1 || strings.ContainsAny(h.events[0], "\u202e\x1b") || !strings.Contains(h.events[0], "commit c2 (drop") || len(h.events[0]) > 1200 {
		t.Errorf("%q", h.events)
	}
}

// A Source that was made again under its name during a check gets nothing of the former one's status.
func TestASourceThatIsMadeAgainIsAnotherOne(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	h.during = func() {
		if err := h.r.Client.Delete(t.Context(), h.readStoredSource()); err != nil {
			t.Fatal(err)
		}
		again := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "again", Generation: 1}, Spec: h.readSource().Spec}
		if err := h.r.Client.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	h.runCheck()
	if s := h.readStoredSource(); s.UID != "again" || len(s.Status.Inventory)+len(s.Status.Conditions) > 0 {
		t.Errorf("%+v", s.Status)
	}
}

// readStoredSource returns the Source of the store, which the table may lag behind.
func (h *hub) readStoredSource() *v1alpha1.Source {
	h.t.Helper()
	var s v1alpha1.Source
	if err := h.r.Client.Get(h.t.Context(), sourceKey, &s); err != nil {
		h.t.Fatal(err)
	}
	return &s
}

// resetStatus takes the status of the Source back to none, as when a hub ended before it wrote one.
func (h *hub) resetStatus() {
	h.t.Helper()
	now := h.readStoredSource()
	before := now.DeepCopy()
	now.Status = v1alpha1.SourceStatus{}
	if err := h.r.Client.Status().Patch(h.t.Context(), now, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
	h.refreshTables()
}
