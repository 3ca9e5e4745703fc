package apiserver_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/keys"
)

// TestAStopEndsOpenWatches: clients of both protocols see the end of a watch, as they do at its timeout.
func TestAStopEndsOpenWatches(t *testing.T) {
	t.Parallel()
	s, err := tryStart(t, testOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	u := newAdmin(t, s)
	watch, err := u.kube.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	config := rest.CopyConfig(u.config)
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(config.Host + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 1 {
		t.Fatalf("the watch answers %s %s", response.Proto, response.Status)
	}

	if err := stop(s); err != nil {
		t.Errorf("stop: %v", err)
	}
	for range watch.ResultChan() {
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("the watch over HTTP/1.1 is cut, and does not end: %v", err)
	}
}

// TestAStartForbidsNothingThatIsAllowed asks from before the start until the server is ready.
func TestAStartForbidsNothingThatIsAllowed(t *testing.T) {
	t.Parallel()
	o := testOptions(t.TempDir())
	s, err := tryStart(t, o)
	if err != nil {
		t.Fatal(err)
	}
	reader := bindReader(t, s)
	if err := stop(s); err != nil {
		t.Fatal(err)
	}

	started, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		for answered := 0; answered < 20; {
			_, err := reader.kube.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
			switch {
			case t.Context().Err() != nil:
				return
			case apierrors.IsForbidden(err):
				t.Errorf("a right that the user has is refused at a start: %v", err)
				return
			case err == nil:
				answered++
			}
			select {
			case <-started:
				if err != nil {
					t.Errorf("after the start: %v", err)
					return
				}
			default:
			}
		}
	}()
	start(t, o)
	close(started)
	<-finished
}

// bindReader returns a user of the server by a certificate, with a binding to read ConfigMaps, for this start and
// later ones.
func bindReader(t *testing.T, s *apiserver.Server) *user {
	t.Helper()
	u, ctx, name := newAdmin(t, s), t.Context(), metav1.ObjectMeta{Namespace: "default", Name: "reader"}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := u.kube.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
	}
	if _, err := u.kube.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cert, key, err := s.CurrentAuthorities().Cluster.IssueCertificate(keys.Request{CommonName: "reader", NotBefore: time.Now(), Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(u.config)
	config.CertData, config.KeyData = cert, key
	return newUser(t, config)
}
