package live

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/atoll"
)

// createForgedPod pods claim the ReplicaSet of a placed Deployment for their controller: by its UID,
// with something else about it that is not so. They stay, whatever garbage collection thinks
// of their owners.
func (w *world) createForgedPod(namespace, name string, owner metav1.OwnerReference) {
	w.t.Helper()
	owner.Controller = ptr.To(true)
	_, err := w.kube.CoreV1().Pods(namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{owner}, Finalizers: []string{"test.atoll.dev/stays"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// touchPod a pod, so that a watch may tell of it.
func (w *world) touchPod(namespace, name string) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`)
	if _, err := w.kube.CoreV1().Pods(namespace).Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestAUIDAloneOwnsNothing: a writer of pods or Events in the member can put any UID into them.
func TestAUIDAloneOwnsNothing(t *testing.T) {
	w := newWorld(t, "live-forged-a")
	key, uid := w.createDeployment("web")
	w.book.set(key, uid)
	web := namesOf(w.waitForPods("web", 2))
	pods, err := w.kube.CoreV1().Pods(w.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	real := *metav1.GetControllerOf(&pods.Items[0])

	// Something is placed in the other namespace too, so that it is read.
	other := "live-forged-b"
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.book.set(atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: other, Name: "none"}, "none")

	as := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		owner := real
		change(&owner)
		return owner
	}
	deployment := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: types.UID(uid)}
	forged := []struct {
		namespace, name string
		owner           metav1.OwnerReference
	}{
		{w.ns, "another-group", as(func(o *metav1.OwnerReference) { o.APIVersion = "example.dev/v1" })},
		{w.ns, "another-kind", as(func(o *metav1.OwnerReference) { o.APIVersion, o.Kind = "v1", "ConfigMap" })},
		{w.ns, "another-name", as(func(o *metav1.OwnerReference) { o.Name = "elsewhere" })},
		{other, "another-namespace", real},
		{other, "of-the-deployment", deployment},
	}
	for _, f := range forged {
		w.createForgedPod(f.namespace, f.name, f.owner)
	}
	// An Event names what it is about, as its writer likes.
	_, err = w.kube.CoreV1().Events(other).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "forged"},
		InvolvedObject: corev1.ObjectReference{APIVersion: real.APIVersion, Kind: real.Kind, Namespace: other, Name: real.Name, UID: real.UID},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	got, version := w.list("/api/v1/pods")
	if !slices.Equal(got, web) {
		t.Errorf("pods of all namespaces: %v, wanted %v", got, web)
	}
	if got, _ := w.list("/api/v1/events"); slices.Contains(got, "forged") {
		t.Errorf("an Event about nothing is visible: %v", got)
	}
	for _, f := range forged {
		if code, _, body := w.sendRequest(http.MethodGet, "/api/v1/namespaces/"+f.namespace+"/pods/"+f.name); code != http.StatusNotFound {
			t.Errorf("%s: %d %s", f.name, code, body)
		}
	}

	next := w.watchEvents("/api/v1/pods", version)
	for _, f := range forged {
		w.touchPod(f.namespace, f.name)
	}
	w.touchPod(w.ns, web[0])
	for {
		event, m, err := next()
		switch {
		case err != nil:
			t.Fatal(err)
		case event == watch.Bookmark:
		case !strings.HasPrefix(m.GetName(), "web-"):
			t.Errorf("%s of %s is visible", event, m.GetName())
		case m.GetAnnotations()["touched"] != "":
			return
		}
	}
}
