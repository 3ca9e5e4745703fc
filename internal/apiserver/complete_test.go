package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

const complete = atoll.LabelComplete + "=true"

// TestACompleteListLacksNothing: it fails instead, and names the disconnected clusters.
func TestACompleteListLacksNothing(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("complete")
	fleet.joinMembers(t, ns, "hamar", "kobe")
	fleet.put("hamar", watch.Added, newPod(ns, "a", map[string]string{"app": "web"}))
	fleet.put("kobe", watch.Added, newPod(ns, "b", map[string]string{"app": "db"}))
	pods := u.kube.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), newTemplate(ns, "stored"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := func(selector string, want ...string) {
		t.Helper()
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil || !slices.Equal(podNames(list), want) {
			t.Errorf("%s: %v, %v; wanted %v", selector, podNames(list), err, want)
		}
	}
	want(complete, "a.hamar", "b.kobe", "stored")
	want(complete+",app=web", "a.hamar")
	fleet.removeMember("kobe")
	_, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: complete})
	if _, waits := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || waits || !strings.Contains(err.Error(), "cluster kobe cannot be reached") {
		t.Errorf("with a cluster away: %v", err)
	}
	if _, err := pods.Watch(t.Context(), metav1.ListOptions{LabelSelector: complete}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a watch that begins with what is there: %v", err)
	}
	if text := warned.takeText(); text != "" {
		t.Errorf("warned of %s", text)
	}
	want(complete+","+atoll.LabelCluster+"!=kobe", "a.hamar", "stored")
	want("", "a.hamar", "stored")
	for _, selector := range []string{atoll.LabelComplete, atoll.LabelComplete + "=false", "!" + atoll.LabelComplete, atoll.LabelComplete + " in (true,false)"} {
		if _, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: selector}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", selector, err)
		}
	}
	if list, err := newUser(t, hub.LoopbackConfig()).kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}); err != nil || !slices.Equal(podNames(list), []string{"stored"}) {
		t.Errorf("the hub itself sees %v, %v", podNames(list), err)
	}
}

// TestACompleteInformerTakesNobodyForGone: one that has to list again while a cluster is away
// keeps what it knew of it, and hears what happened there when it is back.
func TestACompleteInformerTakesNobodyForGone(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("complete")
	fleet.joinMembers(t, ns, "voss", "ueno")
	fleet.put("voss", watch.Added, newPod(ns, "a", nil))
	fleet.put("ueno", watch.Added, newPod(ns, "b", nil))
	factory := informers.NewSharedInformerFactoryWithOptions(u.kube, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = complete }))
	informer := factory.Core().V1().Pods().Informer()
	gone := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		gone <- fmt.Sprint(name, err)
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	fleet.takeRequests()
	fleet.removeMember("ueno")
	// It has to list again, for what it does not receive.
	fleet.removeMember("voss")
	fleet.withAgent("voss", func(a *agent) { a.oldest, a.away = a.version+1, false })
	testwait.Until(t, "it lists again", func(context.Context) (bool, string) {
		asked := fleet.takeRequests()
		return slices.ContainsFunc(asked, func(r string) bool { return strings.HasPrefix(r, "uid-voss GET") && !strings.Contains(r, "watch=true") }), fmt.Sprint(asked)
	})
	fleet.withAgent("ueno", func(a *agent) { a.put(watch.Added, newPod(ns, "c", nil)); a.away = false })
	testwait.Until(t, "it has all", func(context.Context) (bool, string) {
		var got []string
		for _, obj := range informer.GetStore().List() {
			got = append(got, obj.(*corev1.Pod).Name)
		}
		slices.Sort(got)
		return slices.Equal(got, []string{"a.voss", "b.ueno", "c.ueno"}), fmt.Sprint(got)
	})
	if len(gone) > 0 {
		t.Errorf("%s was taken for gone", <-gone)
	}
}
