package live

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(agenttest.RunTestsWithMember(m)) }

// book of what was applied.
type book struct {
	mu  sync.Mutex
	uid map[atoll.ItemKey]string
	// claimTemplates of StatefulSets.
	claimTemplates map[atoll.ItemKey][]string
	// foreign objects by namespace.
	foreign map[string]atoll.ForeignObjects
}

func (b *book) ClaimTemplateNames(key atoll.ItemKey) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claimTemplates[key]
}

func (b *book) ForeignObjects(_ context.Context, namespace string) atoll.ForeignObjects {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.foreign[namespace]
}

func (b *book) AppliedUID(key atoll.ItemKey) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, ok := b.uid[key]
	return uid, ok
}

func (b *book) NamespacesWithRecords() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.uid {
		if !slices.Contains(out, key.Namespace) {
			out = append(out, key.Namespace)
		}
	}
	slices.Sort(out) // what was read of one is known when the next is
	return out
}

func (b *book) set(key atoll.ItemKey, uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uid[key] = uid
}

type world struct {
	t    *testing.T
	ns   string
	kube *kubernetes.Clientset
	book *book
	http *httptest.Server
	// watches is the memory of the server's watches.
	watches *watchMemory
}

func newWorld(t *testing.T, ns string) *world {
	t.Helper()
	agenttest.SkipIfShort(t)
	config := agenttest.StartedMemberConfig()
	config.QPS = -1
	w := &world{t: t, ns: ns, book: &book{uid: map[atoll.ItemKey]string{}}}
	var err error
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	client, err := member.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: config, Transport: transport, Client: client, Records: w.book, Foreign: w.book, WatchMemory: 32 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.watches = s.watches
	w.http = httptest.NewServer(s)
	t.Cleanup(w.http.Close)
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// createDeployment that runs two pods, and how it is recorded.
func (w *world) createDeployment(name string) (atoll.ItemKey, string) {
	w.t.Helper()
	app := map[string]string{"app": name}
	d, err := w.kube.AppsV1().Deployments(w.ns).Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: w.ns, Name: name}, string(d.UID)
}

// waitForPods waits for that many pods of a deployment.
func (w *world) waitForPods(name string, want int) []corev1.Pod {
	w.t.Helper()
	var pods []corev1.Pod
	for end := time.Now().Add(testwait.HangLimit); ; {
		list, err := w.kube.CoreV1().Pods(w.ns).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			w.t.Fatal(err)
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		if len(pods) == want && len(list.Items) == want {
			return pods
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s runs %d pods", name, len(pods))
		}
	}
}

// waitForAbsence waits until a Deployment is.
func (w *world) waitForAbsence(name string) {
	w.t.Helper()
	for end := time.Now().Add(testwait.HangLimit); ; {
		_, err := w.kube.AppsV1().Deployments(w.ns).Get(w.t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return
		case err != nil:
			w.t.Fatal(err)
		case time.Now().After(end):
			w.t.Fatalf("the Deployment %s is still there", name)
		}
	}
}

func (w *world) sendRequest(method, path string) (int, http.Header, []byte) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.http.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.http.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, body
}

// list returns the names, sorted, and the version.
func (w *world) list(path string) (names []string, version string) {
	w.t.Helper()
	code, _, body := w.sendRequest(http.MethodGet, path)
	obj, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil || code != http.StatusOK {
		w.t.Fatalf("%s: %d %v, %v", path, code, obj, err)
	}
	err = meta.EachListItem(obj, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			names = append(names, m.GetName())
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(names)
	return names, obj.(metav1.ListInterface).GetResourceVersion()
}

func namesOf(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

func TestOnlyWhatIsPlacedIsTold(t *testing.T) {
	w := newWorld(t, "live-lists")
	w.book.set(w.createDeployment("web"))
	w.createDeployment("other")
	web, other := w.waitForPods("web", 2), w.waitForPods("other", 2)
	at := "/api/v1/namespaces/" + w.ns
	single := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		p, err := w.kube.CoreV1().Pods(w.ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kind": "single"}, OwnerReferences: owners},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	applied := single("applied")
	w.book.set(atoll.ItemKey{Kind: "Pod", Namespace: w.ns, Name: "applied"}, string(applied.UID))
	single("alone")
	w.book.set(atoll.ItemKey{Kind: "Pod", Namespace: w.ns, Name: "intended"}, "")
	single("intended")
	w.book.set(atoll.ItemKey{Kind: "Pod", Namespace: w.ns, Name: "created-again"}, "of-an-older-one")
	single("created-again")
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: w.ns, Name: "web"}
	uid, _ := w.book.AppliedUID(key)
	single("no-controller", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "another"})

	for _, c := range []struct {
		what, path string
		want       []string
	}{
		{"pods", at + "/pods", append(namesOf(web), "applied")},
		{"pods by a label", at + "/pods?labelSelector=app%3Dweb", namesOf(web)},
		{"pods by a field", at + "/pods?fieldSelector=metadata.name%3Dapplied", []string{"applied"}},
		{"pods of all namespaces", "/api/v1/pods", append(namesOf(web), "applied")},
		{"pods of another namespace", "/api/v1/namespaces/default/pods", nil},
		{"replicasets", "/apis/apps/v1/namespaces/" + w.ns + "/replicasets", []string{web[0].OwnerReferences[0].Name}},
	} {
		got, version := w.list(c.path)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) || version == "" {
			t.Errorf("%s: %v at version %q, wanted %v", c.what, got, version, c.want)
		}
	}
	events, _ := w.list(at + "/events")
	for _, name := range events {
		if strings.HasPrefix(name, "other") || strings.HasPrefix(name, "alone") {
			t.Errorf("an Event is visible: %s", name)
		}
	}
	if !slices.ContainsFunc(events, func(n string) bool { return strings.HasPrefix(n, web[0].Name) }) ||
		!slices.ContainsFunc(events, func(n string) bool { return strings.HasPrefix(n, "web.") }) {
		t.Errorf("Events about a placed Deployment and its pods are missing: %v", events)
	}
	for path, want := range map[string]int{
		at + "/pods/" + web[0].Name:              http.StatusOK,
		at + "/pods/" + other[0].Name:            http.StatusNotFound,
		at + "/pods/" + other[0].Name + "/log":   http.StatusNotFound,
		at + "/pods/none":                        http.StatusNotFound,
		at + "/pods/" + web[0].Name + "/exec":    http.StatusNotFound,
		at + "/secrets":                          http.StatusNotFound,
		at + "/pods/../secrets":                  http.StatusNotFound,
		at + "/pods/" + web[0].Name + "/log/..":  http.StatusNotFound,
		"/api/v1/pods/" + web[0].Name:            http.StatusNotFound,
		"/api/v1/namespaces//pods":               http.StatusNotFound,
		"/apis/apps/v1/namespaces/x/deployments": http.StatusNotFound,
		"/":                                      http.StatusNotFound,
		at + "/pods?watch=true":                  http.StatusBadRequest,
	} {
		if code, _, body := w.sendRequest(http.MethodGet, path); code != want {
			t.Errorf("%s: %d %q, wanted %d", path, code, body, want)
		}
	}
	if code, _, _ := w.sendRequest(http.MethodDelete, at+"/pods/"+web[0].Name); code != http.StatusMethodNotAllowed {
		t.Errorf("a delete: %d", code)
	}
	// The API server asks a kubelet that is not there: what it says of that is handed on.
	if code, _, body := w.sendRequest(http.MethodGet, at+"/pods/"+web[0].Name+"/log?container=c"); code != http.StatusInternalServerError || !strings.Contains(string(body), "containerLogs") {
		t.Errorf("the log: %d %s", code, body)
	}
	w.book.set(key, "")
	if got, _ := w.list(at + "/pods"); !slices.Equal(got, []string{"applied"}) {
		t.Errorf("pods of an intended object are visible: %v", got)
	}
	w.book.set(key, uid)
}

// watchEvents of a watch from a version on, until the test ends.
func (w *world) watchEvents(path, version string) func() (watch.EventType, metav1.Object, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testwait.HangLimit)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.http.URL+path+"?watch=true&resourceVersion="+version, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.http.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		w.t.Fatalf("the watch: %s", answer.Status)
	}
	frames := protobuf.StreamSerializer.Framer.NewFrameReader(answer.Body)
	decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, protobuf.StreamSerializer.Serializer), clientscheme.Codecs.UniversalDeserializer())
	return func() (watch.EventType, metav1.Object, error) {
		event, obj, err := decoder.Decode()
		if err != nil {
			return event, nil, err
		}
		if s, failed := obj.(*metav1.Status); failed {
			return event, nil, fmt.Errorf("%d %s", s.Code, s.Message)
		}
		m, err := meta.Accessor(obj)
		return event, m, err
	}
}

func (w *world) scaleDeployment(name string, replicas int32) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := w.kube.AppsV1().Deployments(w.ns).Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func TestWatchesTellOfWhatIsPlaced(t *testing.T) {
	w := newWorld(t, "live-watches")
	w.book.set(w.createDeployment("web"))
	w.createDeployment("other")
	w.waitForPods("web", 2)
	w.waitForPods("other", 2)
	at := "/api/v1/namespaces/" + w.ns + "/pods"
	_, version := w.list(at)
	next := w.watchEvents(at, version)
	w.scaleDeployment("other", 3)
	w.scaleDeployment("web", 3)
	seen := map[string]watch.EventType{}
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			event, m, err := next()
			if err != nil {
				t.Fatalf("%s: %v; seen %v", what, err, seen)
			}
			if event == watch.Bookmark {
				continue
			}
			if !strings.HasPrefix(m.GetName(), "web-") && !strings.HasPrefix(m.GetName(), "late-") {
				t.Fatalf("%s: %s of %s is visible", what, event, m.GetName())
			}
			seen[m.GetName()] = event
		}
	}
	until("a pod more", func() bool { return len(seen) == 1 })
	w.scaleDeployment("web", 0)
	until("all go", func() bool {
		gone := 0
		for _, event := range seen {
			if event == watch.Deleted {
				gone++
			}
		}
		return gone == 3
	})
	// An object that is recorded with its UID a moment after it runs is visible from then on.
	key, uid := w.createDeployment("late")
	w.book.set(key, "")
	w.waitForPods("late", 2)
	w.book.set(key, uid)
	until("what is recorded late", func() bool { return len(seen) == 5 })
	// An orphaned object is no longer placed.
	late := w.waitForPods("late", 2)
	w.book.mu.Lock()
	delete(w.book.uid, key)
	w.book.mu.Unlock()
	for _, p := range late {
		p.Labels["touched"] = "yes"
		if _, err := w.kube.CoreV1().Pods(w.ns).Update(t.Context(), &p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until("what is orphaned", func() bool { return seen[late[0].Name] == watch.Deleted && seen[late[1].Name] == watch.Deleted })
}

// TestWhatWentWithItsOwners: without a watch at that time. The owners of such objects are unknown.
func TestWhatWentWithItsOwners(t *testing.T) {
	w := newWorld(t, "live-gone")
	w.book.set(w.createDeployment("web"))
	w.waitForPods("web", 2)
	at := "/api/v1/namespaces/" + w.ns + "/pods"
	_, version := w.list(at)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	w.waitForPods("web", 0)
	w.waitForAbsence("web") // its owners go after it, and tell of it as long as they are there
	next := w.watchEvents(at, version)
	for {
		_, m, err := next()
		if err == nil {
			if strings.HasPrefix(m.GetName(), "web-") {
				continue // its owner was still to be decided
			}
			t.Fatalf("reported %s", m.GetName())
		}
		if !strings.HasPrefix(err.Error(), "410 ") {
			t.Errorf("the watch ended with %v", err)
		}
		break
	}
}

// TestWhatGetsAnotherOwnerIsToldOf: a Deployment that is deleted without its pods, and created
// again, adopts them.
func TestWhatGetsAnotherOwnerIsToldOf(t *testing.T) {
	w := newWorld(t, "live-adopted")
	w.book.set(w.createDeployment("web"))
	pods := w.waitForPods("web", 2)
	at := "/api/v1/namespaces/" + w.ns + "/pods"
	_, version := w.list(at)
	next := w.watchEvents(at, version)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	w.waitForAbsence("web")
	key, uid := w.createDeployment("web")
	for end := time.Now().Add(testwait.HangLimit); ; {
		set, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(t.Context(), pods[0].OwnerReferences[0].Name, metav1.GetOptions{})
		if c := metav1.GetControllerOf(set); err == nil && c != nil && string(c.UID) == uid {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the ReplicaSet is not taken up: %v, %v", set, err)
		}
	}
	w.book.set(key, uid)
	w.touchPod(w.ns, pods[0].Name)
	for {
		event, m, err := next()
		if err != nil || event == watch.Deleted {
			t.Fatalf("%s of %v, %v", event, m, err)
		}
		if event == watch.Modified && m.GetName() == pods[0].Name && m.GetAnnotations()["touched"] != "" {
			return
		}
	}
}
