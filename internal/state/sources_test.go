package state

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// Subscribers of Sources hear of specs, and not of statuses; an older version replaces no newer one.
func TestSourcesNotifyOfSpecs(t *testing.T) {
	_, sources := newSourceTables()
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	notified, changed := 0, 0
	sources.SubscribeChanges(func(types.NamespacedName) { changed++ })
	sources.Subscribe(func(got types.NamespacedName) {
		if notified++; got != key && got.Namespace != "other" {
			t.Errorf("notified of %v", got)
		}
	})
	source := func(version, uid string, generation int64, commit string) *v1alpha1.Source {
		return &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid), ResourceVersion: version, Generation: generation}, Status: v1alpha1.SourceStatus{Commit: commit}}
	}
	for i, c := range []struct {
		put      *v1alpha1.Source
		notified int
		commit   string
	}{
		{source("5", "a", 1, "one"), 1, "one"}, {source("6", "a", 1, "two"), 1, "two"}, {source("5", "a", 1, "one"), 1, "two"},
		{source("7", "a", 2, "two"), 2, "two"}, {source("8", "b", 2, ""), 3, ""},
	} {
		sources.Put(c.put)
		if got, ok := sources.Get(key); !ok || got.Status.Commit != c.commit || notified != c.notified {
			t.Errorf("step %d: %+v, notified %d times", i, got, notified)
		}
	}
	if changed != 4 {
		t.Errorf("%d changes, want 4: those of a status, too, and no older version", changed)
	}
	sources.removeObject(source("9", "a", 2, ""))
	if _, ok := sources.Get(key); !ok {
		t.Error("the deletion of a former Source removed the present one")
	}
	sources.removeObject(source("9", "b", 2, ""))
	if _, ok := sources.Get(key); ok || notified != 5 {
		t.Errorf("after the deletion: there %v, notified %d times", ok, notified)
	}
	for _, name := range []string{"b", "a"} {
		sources.Put(&v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name}})
	}
	var names []string
	for _, s := range slices.Concat(sources.InNamespace("other"), sources.InNamespace("shop"), sources.InNamespace("")) {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "a", "b"}) {
		t.Errorf("%v", names)
	}
}

// A request of a git server wakes the subscribers of its Repository once. Other news of a status wake none.
func TestARequestOfAGitServerWakesSubscribers(t *testing.T) {
	repositories, _ := newSourceTables()
	notified := 0
	repositories.Subscribe(func(types.NamespacedName) { notified++ })
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later := metav1.NewMicroTime(at.Add(time.Millisecond))
	for i, c := range []struct {
		version  string
		observed int64
		request  *metav1.MicroTime
		notified int
	}{
		{"1", 0, nil, 1}, {"2", 1, nil, 1}, {"3", 1, &at, 2}, {"4", 2, &at, 2}, {"5", 2, &later, 3}, {"4", 2, &at, 3},
	} {
		repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "r", ResourceVersion: c.version, Generation: 1}}
		repo.Status.ObservedGeneration, repo.Status.WebhookTime = c.observed, c.request
		repositories.Put(repo)
		if notified != c.notified {
			t.Errorf("step %d: notified %d times, want %d", i, notified, c.notified)
		}
	}
}
