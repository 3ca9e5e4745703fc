package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/testwait"
)

func TestClientsInside(t *testing.T) {
	config := hub.LoopbackConfig()
	u := newUser(t, config)
	ns := u.createNamespace("inside")
	t.Run("a requester is known by its token", func(t *testing.T) { insideIdentity(t, config) })
	t.Run("writes", func(t *testing.T) { insideWrites(t, u, ns) })
	t.Run("a watch", func(t *testing.T) { insideWatch(t, u, ns) })
	t.Run("a watch by a connection", func(t *testing.T) { insideWatch(t, newUser(t, hub.ConnectionConfig()), ns) })
	t.Run("a list", func(t *testing.T) { insideList(t, u, ns) })
	t.Run("no connection to take over", func(t *testing.T) { insideExec(t, config, ns) })
}

func insideIdentity(t *testing.T, config *rest.Config) {
	whoAmI := func(c *rest.Config) (string, error) {
		review, err := newUser(t, c).kube.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return review.Status.UserInfo.Username, nil
	}
	if name, err := whoAmI(config); err != nil || name != apiserver.HubUser {
		t.Errorf("it is %q: %v", name, err)
	}
	stranger := rest.CopyConfig(config)
	stranger.BearerToken = "made up"
	if name, err := whoAmI(stranger); !apierrors.IsUnauthorized(err) {
		t.Errorf("with an invalid token it is %q: %v", name, err)
	}
	stranger.BearerToken = ""
	if _, err := newUser(t, stranger).kube.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a token it lists Secrets: %v", err)
	}
	stranger.BearerToken, stranger.Impersonate.UserName = config.BearerToken, "jane"
	if _, err := newUser(t, stranger).kube.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("as a user without rights it lists Secrets: %v", err)
	}
}

func insideWrites(t *testing.T, u *user, ns string) {
	maps := u.kube.CoreV1().ConfigMaps(ns)
	created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.createConfigMap(ns, "one"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	created.Data = map[string]string{"k": "v"}
	if _, err := maps.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
	if err := u.createConfigMap(ns, "No Such Name"); !apierrors.IsInvalid(err) {
		t.Errorf("a name that cannot be: %v", err)
	}
}

func insideWatch(t *testing.T, u *user, ns string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	maps := u.kube.CoreV1().ConfigMaps(ns)
	w, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=seen"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := u.createConfigMap(ns, "seen"); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "seen", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if event := next(t, w); event.Type != want || event.Object.(*corev1.ConfigMap).Name != "seen" {
			t.Errorf("got %v, want %s", event, want)
		}
	}
	cancel()
	// client-go may tell the end of its context as an error of the stream.
	if event := next(t, w); event.Type != "" && (event.Type != watch.Error || next(t, w).Type != "") {
		t.Errorf("after it was cancelled it tells %v", event)
	}
}

// next event of a watch; none when it has ended.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		return event
	case <-time.After(testwait.HangLimit):
		t.Fatal("a watch neither tells nor ends")
		return watch.Event{}
	}
}

// insideList reads more than a handler writes ahead, and than is worth compressing.
func insideList(t *testing.T, u *user, ns string) {
	maps := u.kube.CoreV1().ConfigMaps(ns)
	large := strings.Repeat("reef ", 100_000)
	for _, name := range []string{"large-1", "large-2", "large-3"} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"size": "large"}}, Data: map[string]string{"k": large}}
		if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "size=large"})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("listed %d: %v", len(list.Items), err)
	}
	for i := range list.Items {
		if list.Items[i].Data["k"] != large {
			t.Errorf("%s came with %d bytes", list.Items[i].Name, len(list.Items[i].Data["k"]))
		}
	}
}

func insideExec(t *testing.T, config *rest.Config, ns string) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces/"+ns+"/pods/web/exec?command=sh", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	if _, err := client.Do(r); err == nil || !strings.Contains(err.Error(), "has no connection that could become one of SPDY/3.1") {
		t.Errorf("a request for a connection ends with %v", err)
	}
}

func TestStopEndsClientsInside(t *testing.T) {
	t.Parallel()
	s, err := tryStart(t, testOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	maps := newUser(t, s.LoopbackConfig()).kube.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=none"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := stop(s); err != nil {
		t.Fatalf("a watch holds the server up: %v", err)
	}
	if event := next(t, w); event.Type != "" {
		t.Errorf("a watch of a server that stopped tells %v", event)
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("asked after that, it says: %v", err)
	}
}

// newCluster is as small as one that joins.
func newCluster(name string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "edge", "env": "prod"}}}
	c.Spec.Accepted, c.Spec.Region = true, "asia"
	return c
}

// BenchmarkClusterWrites creates and updates a Cluster by the API, inside of the process
// and by a connection: CPU time is of the whole process, which is both ends, and etcd.
func BenchmarkClusterWrites(b *testing.B) {
	s, err := apiserver.StartAPIServer(b.Context(), testOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(s) })
	u := newAdmin(b, s)
	manifest, err := crds.Files.ReadFile("atoll.dev_clusters.yaml")
	if err != nil {
		b.Fatal(err)
	}
	u.createDefinition(string(manifest), "clusters.atoll.dev")
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"inside": s.LoopbackConfig(), "by-connection": s.ConnectionConfig()} {
		b.Run(name, func(b *testing.B) {
			config.QPS = -1
			c, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			begin := cpuTime(b)
			for b.Loop() {
				object := newCluster("c-" + rand.String(10))
				if err := c.Create(b.Context(), object); err != nil {
					b.Fatal(err)
				}
				object.Spec.Zone = "a"
				if err := c.Update(b.Context(), object); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}
