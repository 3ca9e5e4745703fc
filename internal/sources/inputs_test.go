package sources

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// watchedObjects are the objects of a hub's watches.
type watchedObjects struct {
	mu          sync.Mutex
	objects     map[atoll.ItemKey]*unstructured.Unstructured
	subscribers []func(atoll.ItemKey)
}

func (w *watchedObjects) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.objects[key]
	return o, ok
}

func (w *watchedObjects) IsSynced(_, kind string) bool { return kind == "ConfigMap" }

func (w *watchedObjects) Subscribe(fn func(key atoll.ItemKey)) {
	w.subscribers = append(w.subscribers, fn)
}

// putValues stores values on the hub, as KIND/NAME, and lets the watches know of it. No text removes the object.
func (h *hub) putValues(object, text string) {
	kind, name, _ := strings.Cut(object, "/")
	path, key := strings.ToLower(kind)+"s/"+name, atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": "shop"}}}
	value := text
	if kind == "Secret" {
		value = base64.StdEncoding.EncodeToString([]byte(text))
	}
	o.Object["data"] = map[string]any{"values.yaml": value}
	h.watched.mu.Lock()
	h.objects[path], h.watched.objects[key] = o, o
	if text == "" {
		delete(h.objects, path)
		delete(h.watched.objects, key)
	}
	h.watched.mu.Unlock()
	for _, fn := range h.watched.subscribers {
		fn(key)
	}
}

const readsSecret = "{repository: repo, ref: {branch: main}, build: {helm: {valuesFrom: [{kind: Secret, name: v}, {kind: ConfigMap, name: o, optional: true}]}}}"

// lastWant returns what the last fetch read.
func (h *hub) lastWant() fetch.Want { return h.requests[len(h.requests)-1].Wants[0] }

// A chart gets the values of the hub, and other values make a new rendering of the commit that was seen.
func TestValuesOfTheHubAreRead(t *testing.T) {
	h := newHub(t, readsSecret)
	h.putValues("Secret/v", "a: hush")
	h.setCommit("c1", "a=1", "b=1")
	h.expectCheck("the first commit", "apply a, apply b", good)
	if in := h.lastWant().Inputs; len(in) != 1 || string(in["Secret/v/values.yaml"]) != "a: hush" {
		t.Errorf("%v", in)
	}
	first := h.readSource().Status
	if first.ValuesDigest == "" {
		t.Errorf("%+v", first)
	}
	h.expectCheck("nothing changed", "", good)
	if h.lastWant().SeenCommit != "c1" || h.readSource().Status.ValuesDigest != first.ValuesDigest {
		t.Errorf("%+v", h.lastWant())
	}
	h.putValues("ConfigMap/o", "b: 2")
	h.setCommit("c1", "a=2") // as the same commit renders with other values
	h.expectCheck("other values", "apply a", good)
	if w := h.lastWant(); w.SeenCommit != "" || len(w.Inputs) != 2 {
		t.Errorf("%+v", w)
	}
	// An object that other values leave out stays: no commit dropped it.
	s := h.readSource()
	if o := s.Status.Inventory[1]; o.Name != "b" || o.Kept != string(atoll.ReasonSettingsChanged) || s.Status.ValuesDigest == first.ValuesDigest {
		t.Errorf("%+v", s.Status)
	}
	h.setCommit("c2")
	h.expectCheck("bad content", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentEmpty")
	h.expectCheck("bad content again", "", "Applied=True")
	if h.lastWant().SeenCommit != "c2" {
		t.Errorf("%+v", h.lastWant())
	}
	h.putValues("ConfigMap/o", "b: 3")
	h.runCheck()
	if h.lastWant().SeenCommit != "" {
		t.Error("other values do not read bad content again")
	}
}

// Values that are missing, forbidden or too large hold a commit, and what runs stays. Nothing tells a value.
func TestValuesThatAreNotThereHoldTheCommit(t *testing.T) {
	held := func(why atoll.Reason) string {
		return "Applied=True/Applied Ready=False/Nowhere Rendered=False/" + string(why)
	}
	h := newHub(t, readsSecret)
	h.setCommit("c1", "a=1")
	h.expectCheck("never there", "", "Applied=False/NotRendered Ready=False/NotRendered Rendered=False/ValuesMissing")
	if len(h.requests) != 1 || len(h.requests[0].Wants) != 0 {
		t.Errorf("%+v", h.requests)
	}
	h.putValues("Secret/v", "a: hush")
	h.expectCheck("there", "apply a", good)
	h.setCommit("c2", "b=1")
	h.putValues("Secret/v", "")
	h.expectCheck("gone", "", held(atoll.ReasonValuesMissing))
	if repo, _ := h.tables.Repositories.Get(repoKey); len(repo.Status.Refs) != 0 {
		t.Errorf("the commit counts as considered: %+v", repo.Status.Refs)
	}
	before := h.readSource().ResourceVersion
	h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable, Message: "away"}
	h.runCheck()
	h.expectCheck("gone, and the server is away", "", held(atoll.ReasonValuesMissing))
	if h.readSource().ResourceVersion != before {
		t.Error("a Source that is held is written at each check")
	}
	h.fails = nil
	h.putValues("Secret/v", strings.Repeat("hush", 40<<10))
	h.expectCheck("large", "", held(atoll.ReasonValuesTooLarge))
	h.forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "v", nil)
	h.expectCheck("forbidden", "", held(atoll.ReasonValuesForbidden))
	if h.r.tries[repoKey] == 0 {
		t.Error("rights are not watched, and are not tried again soon")
	}
	h.forbidden = nil
	h.putValues("Secret/v", "a: hush")
	h.expectCheck("there again", "apply b, delete a", good)
	status := h.readSource().Status
	if text := status.ValuesDigest + status.Digest + status.Settings + strings.Join(h.events, ""); strings.Contains(text, "hush") {
		t.Error(text)
	}
}

// Large values of many Sources are of several fetches, and Sources that wait come first.
func TestLargeValuesAreOfSeveralFetches(t *testing.T) {
	check := repositoryCheck{inputs: map[string]render.Inputs{}}
	var sources []*v1alpha1.Source
	for i := range 2 * maxRequestInputs / render.MaxInputBytes {
		s := &v1alpha1.Source{}
		s.Name = fmt.Sprint("s", i)
		check.inputs[s.Name] = render.Inputs{"ConfigMap/a/k": make([]byte, render.MaxInputBytes)}
		s.Status.Digest, s.Status.ValuesDigest = "d", check.inputs[s.Name].Digest()
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SourceApplied, Status: metav1.ConditionTrue}}
		sources = append(sources, s)
	}
	last := sources[len(sources)-1]
	last.Status.ValuesDigest = "another"
	asked, later := splitByInputs(check, sources)
	if len(asked) != maxRequestInputs/render.MaxInputBytes || len(later) != len(asked) || asked[0] != last {
		t.Errorf("%d and %d, first %s", len(asked), len(later), asked[0].Name)
	}
	// A check has no room for all where there are more of them. Checks together leave none out.
	had := map[string]bool{}
	for n := 0; n < 64 && len(had) < len(sources); n++ {
		asked, _ := splitByInputs(check, sources)
		for _, s := range asked {
			had[s.Name] = true
		}
	}
	if len(had) != len(sources) {
		t.Errorf("%d of %d Sources are ever read", len(had), len(sources))
	}
	check.inputs = nil
	if asked, later := splitByInputs(check, sources); len(asked) != len(sources) || later != nil {
		t.Errorf("without values: %d and %d", len(asked), len(later))
	}
}

// An event of a watch checks a Repository when values are other ones than those that were read, and only then.
func TestEventsOfValues(t *testing.T) {
	h := newHub(t, readsSecret)
	key := func(object string) atoll.ItemKey {
		kind, name, _ := strings.Cut(object, "/")
		return atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}
	}
	if len(h.r.references.sourcesOf(key("Secret/v"))) != 1 || len(h.r.references.sourcesOf(key("Secret/o"))) != 0 || len(h.r.references.sourcesOf(key("ConfigMap/o"))) != 1 {
		t.Errorf("%+v", h.r.references.byKey)
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got := h.r.hasOtherInputs(h.readSource()); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	h.setCommit("c1", "a=1")
	h.runCheck()
	expect("missing, as is reported", false)
	h.putValues("Secret/v", "a: 1")
	expect("there", true)
	h.runCheck()
	expect("read", false)
	h.putValues("Secret/v", "a: 1")
	expect("the same again", false)
	h.putValues("ConfigMap/o", "b: 1")
	expect("an optional one came", true)
	h.runCheck()
	h.putValues("ConfigMap/o", "")
	expect("an optional one went", true)
	h.runCheck()
	h.putValues("Secret/v", "")
	expect("gone", true)
	h.runCheck()
	h.putValues("Secret/v", "a: 1")
	expect("as it was before it went", true)
	h.runCheck()
	h.putValues("Secret/v", "a: 2")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Suspend = true })
	expect("suspended", false)
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Suspend, s.Build = false, nil })
	expect("a Source without values, before its check", true)
	if len(h.r.references.byKey)+len(h.r.references.bySource) != 0 {
		t.Errorf("%+v", h.r.references)
	}
	h.runCheck()
	if s := h.readSource(); s.Status.ValuesDigest != "" || !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.SourceRendered) {
		t.Errorf("%+v", s.Status)
	}
	expect("a Source without values", false)
}

// A change of a Secret makes a check of a running hub, without an interval. An event without another value makes none.
func TestAChangeOfValuesChecksTheRepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, readsSecret)
		h.putValues("Secret/v", "a: 1")
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for _, c := range []struct {
			text string
			want int
		}{{"", 1}, {"a: 2", 2}, {"a: 2", 2}, {"a: 3", 3}} {
			if c.text != "" {
				h.putValues("Secret/v", c.text)
			}
			time.Sleep(2 * maxChangeDebounce)
			synctest.Wait()
			if got := h.countRequests(); got != c.want {
				t.Errorf("%q: %d checks, want %d", c.text, got, c.want)
			}
		}
		stop()
		done.Wait()
	})
}
