package apiserver_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// holdOnly places a Pod's template in those clusters only, of those of its namespace.
func (m *members) holdOnly(t *testing.T, namespace, name string, clusters map[string]bool) {
	key := atoll.ItemKey{Kind: "Pod", Namespace: namespace, Name: name}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[key] = maps.Clone(clusters)
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.held, key)
	})
}

// execIn runs a command in a pod, over an upgraded connection.
func (u *user) execIn(t *testing.T, namespace, pod string) error {
	plain := rest.CopyConfig(u.config)
	plain.NextProtos = []string{"http/1.1"} // which connections are upgraded by
	return newUser(t, plain).kube.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		Param("command", "ls").SetHeader("Connection", "Upgrade").SetHeader("Upgrade", "SPDY/3.1").Do(t.Context()).Error()
}

// peopleAt returns the requests in a user's name that an agent got.
func (m *members) peopleAt(name string) (got []string) {
	m.withAgent(name, func(a *agent) { got, a.people = a.people, nil })
	return got
}

// TestOnlyAHolderSpeaksOfATemplate: a hostile agent that has a row of another Bundle in the same
// namespace answers for a Pod that is placed elsewhere. Neither its status nor its log is shown, and
// nothing is sent to it, even while the placed cluster is away.
func TestOnlyAHolderSpeaksOfATemplate(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("held")
	fleet.joinMembers(t, ns, "honest", "hostile")
	fleet.holdOnly(t, ns, "solo", map[string]bool{"honest": true})
	fleet.put("honest", watch.Added, newPod(ns, "solo", nil))
	poisoned := newPod(ns, "solo", nil)
	poisoned.Status.Phase, poisoned.Status.Reason = corev1.PodFailed, "Poisoned"
	poisoned.Status.Conditions = nil
	fleet.put("hostile", watch.Added, poisoned)
	pods := u.kube.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), newTemplate(ns, "solo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got, err := pods.Get(t.Context(), "solo", metav1.GetOptions{})
	if err != nil || got.Status.Phase != corev1.PodRunning {
		t.Errorf("the template has the status %v, %v", got.Status, err)
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(podNames(list), []string{"solo", "solo.hostile"}) || list.Items[0].Status.Phase != corev1.PodRunning {
		t.Errorf("the list has %v, %v", podNames(list), err)
	}
	for seen := map[string]bool{}; len(seen) < 2; {
		var e watch.Event
		select {
		case e = <-w.ResultChan():
		case <-time.After(testwait.HangLimit):
			t.Fatalf("the watch shows %v, and nothing more", seen)
		}
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch has %v", e)
		}
		seen[p.Name] = true
		if p.Name == "solo" && p.Status.Reason == "Poisoned" {
			t.Errorf("the watch shows the status of another cluster: %v", p.Status)
		}
	}
	if log, err := pods.GetLogs("solo", &corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil || !strings.HasPrefix(string(log), "log of solo") {
		t.Errorf("another cluster blocks the log: %q, %v", log, err)
	}
	fleet.takeRequests()
	if err := u.execIn(t, ns, "solo"); err != nil || len(fleet.peopleAt("honest")) != 1 {
		t.Errorf("the placed cluster did not get the exec: %v", err)
	}

	fleet.removeMember("honest")
	for what, err := range map[string]error{
		"exec": u.execIn(t, ns, "solo"),
		"log":  secondResult(pods.GetLogs("solo", &corev1.PodLogOptions{}).Stream(t.Context())),
	} {
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster honest cannot be reached") {
			t.Errorf("%s, with the placed cluster away: %v", what, err)
		}
	}
	if asked := fleet.peopleAt("hostile"); len(asked) > 0 {
		t.Errorf("another cluster got what is meant for the placed one: %q", asked)
	}
	for _, asked := range fleet.takeRequests() {
		if strings.HasPrefix(asked, "uid-hostile ") && strings.Contains(asked, "/pods/solo") {
			t.Errorf("another cluster was asked for the template: %q", asked)
		}
	}
}

// TestNoHolderStandsInForAnother: of two clusters that are to have a Pod, the one that is away may be
// the one that the user means. A cluster that the Pod leaves blocks nothing.
func TestNoHolderStandsInForAnother(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("held")
	fleet.joinMembers(t, ns, "gone", "here")
	fleet.put("here", watch.Added, newPod(ns, "solo", nil))
	fleet.removeMember("gone")
	if _, err := u.kube.CoreV1().Pods(ns).Create(t.Context(), newTemplate(ns, "solo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fleet.holdOnly(t, ns, "solo", map[string]bool{"gone": true, "here": true})
	if err := u.execIn(t, ns, "solo"); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster gone ") || len(fleet.peopleAt("here")) > 0 {
		t.Errorf("exec in a Pod of two clusters: %v", err)
	}
	if err := u.execIn(t, ns, "solo.here"); err != nil || len(fleet.peopleAt("here")) != 1 {
		t.Errorf("exec in a named cluster: %v", err)
	}
	fleet.holdOnly(t, ns, "solo", map[string]bool{"gone": false, "here": true})
	if err := u.execIn(t, ns, "solo"); err != nil || len(fleet.peopleAt("here")) != 1 {
		t.Errorf("exec in a Pod that has moved: %v", err)
	}
}
