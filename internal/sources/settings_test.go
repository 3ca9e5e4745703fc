package sources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

func TestPlacementAndTargetNamespace(t *testing.T) {
	h := newHub(t, "{repository: repo, ref: {tag: v1}, targetNamespace: other, force: true, placement: {clusterAffinity: {clusterNames: [tokyo]}}}")
	h.setCommit("c1", "a=1")
	h.commit.Objects = append(h.commit.Objects,
		render.Object{Fields: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "namespace": "shop"}}},
		render.Object{Fields: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "n", "namespace": "wrong"}}})
	h.runCheck()
	if a, n := h.objects["configmaps/a"], h.objects["namespaces/n"]; a.GetNamespace() != "other" || n.GetNamespace() != "" {
		t.Errorf("%v, %v", a.Object, n.Object)
	}
	policy := h.objects["propagationpolicies/source-web"]
	var p v1alpha1.PropagationPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(policy.Object, &p); err != nil {
		t.Fatal(err)
	}
	if got := p.Spec.Placement.ClusterAffinity.ClusterNames; !slices.Equal(got, []string{"tokyo"}) {
		t.Errorf("the policy places on %v", got)
	}
	// The namespace that the Source does not place in, and cluster-scoped objects, are of other policies.
	if rs := p.Spec.ResourceSelectors; len(rs) != 1 || rs[0].APIVersion != "v1" || rs[0].Kind != "Secret" || rs[0].LabelSelector.MatchLabels[v1alpha1.LabelSource] != "web" {
		t.Errorf("the policy selects %+v", rs)
	}
	if got := h.requests[0].Wants[0].Ref; got != "refs/tags/v1" {
		t.Error(got)
	}
	h.editSource(func(s *v1alpha1.SourceSpec) {
		s.Placement, s.PlacementRef = nil, &v1alpha1.PlacementRef{Name: "edge"}
		s.Ref = v1alpha1.SourceRef{Commit: strings.Repeat("a", 40)}
	})
	h.expectCheck("placementRef", "apply source-web", "Applied=True/Applied")
	if name, _, _ := unstructured.NestedString(h.objects["propagationpolicies/source-web"].Object, "spec", "placementRef", "name"); name != "edge" {
		t.Errorf("%v", h.objects["propagationpolicies/source-web"].Object)
	}
	if got := h.requests[len(h.requests)-1].Wants[0].Ref; got != strings.Repeat("a", 40) {
		t.Error(got)
	}
}

func TestCredentials(t *testing.T) {
	h := newHub(t, branch)
	set := func(secret string) {
		var repo v1alpha1.Repository
		if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
			t.Fatal(err)
		}
		repo.Spec.Git.SecretRef, repo.Spec.Git.CABundle = &v1alpha1.RepositorySecretRef{Name: secret}, "pem"
		repo.Generation++
		if err := h.r.Client.Update(t.Context(), &repo); err != nil {
			t.Fatal(err)
		}
		h.refreshTables()
	}
	h.setCommit("c1", "a=1")
	set("token")
	h.expectCheck("a token", "apply a", good)
	if r := h.requests[0]; r.URL != "https://git.example.com/shop.git" || r.Username != "git" || r.Password != "hush" || r.CABundle != "pem" {
		t.Errorf("%+v", r)
	}
	set("absent")
	h.runCheck()
	repo, _ := h.tables.Repositories.Get(repoKey)
	if c := meta.FindStatusCondition(repo.Status.Conditions, v1alpha1.RepositoryReachable); c.Reason != "CredentialsMissing" {
		t.Errorf("%+v", c)
	}
}

// The token host of a registry goes to the fetch with the credentials.
func TestTokenHostOfARegistry(t *testing.T) {
	h := newHub(t, branch)
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
		t.Fatal(err)
	}
	secret := &v1alpha1.RepositorySecretRef{Name: "token"}
	for name, spec := range map[string]v1alpha1.RepositorySpec{
		fetch.TypeOCI:  {OCI: &v1alpha1.OCIRepository{URL: "oci://registry.example.com/a", SecretRef: secret, TokenHost: "auth.example.com"}},
		fetch.TypeHelm: {Helm: &v1alpha1.HelmRepository{URL: "oci://registry.example.com/a", SecretRef: secret, TokenHost: "auth.example.com"}},
	} {
		repo.Spec = spec
		r, err := h.r.newRequest(t.Context(), &repo)
		if err != nil || r.Type != name || r.TokenHost != "auth.example.com" || r.Password != "hush" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// A repository over SSH is read by a key and known hosts, under the names of Flux.
func TestCredentialsOfSSH(t *testing.T) {
	h := newHub(t, branch)
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
		t.Fatal(err)
	}
	repo.Spec.Git.URL, repo.Spec.Git.SecretRef = "ssh://git@git.example.com/shop.git", &v1alpha1.RepositorySecretRef{Name: "deploy-key"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: repoKey.Namespace, Name: "deploy-key"}}
	if err := h.r.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"nothing":        {nil, "the Secret deploy-key has no identity"},
		"no known hosts": {map[string][]byte{"identity": []byte("hush")}, "the Secret deploy-key has no known_hosts"},
		"a password":     {map[string][]byte{"username": []byte("git"), "password": []byte("hush")}, "the Secret deploy-key has no identity"},
		"a key":          {map[string][]byte{"identity": []byte("hush"), "identity.pub": []byte("ignored"), "known_hosts": []byte("h ssh-ed25519 A"), "password": []byte("p")}, ""},
	} {
		secret.Data = c.data
		if err := h.r.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		request, err := h.r.newRequest(t.Context(), &repo)
		if c.want == "" {
			want := fetch.SSHCredentials{Identity: "hush", Passphrase: "p", KnownHosts: "h ssh-ed25519 A"}
			if err != nil || request.SSH == nil || *request.SSH != want || request.Username+request.Password != "" {
				t.Errorf("%s: %+v, %v", name, request, err)
			}
			continue
		}
		var failure *fetch.Failure
		if !errors.As(err, &failure) || failure.Reason != atoll.ReasonCredentialsMalformed || !strings.Contains(failure.Message, c.want) || strings.Contains(failure.Message, "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadinessFollowsBundles(t *testing.T) {
	h := newHub(t, branch)
	h.bundles["a"] = []policymatch.BundleID{{Namespace: "shop", Name: "web"}}
	put := func(version, waits string, ready int32) {
		b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "b", ResourceVersion: version}}
		b.Status = v1alpha1.BundleStatus{Revision: "r", WaitsFor: waits, Clusters: v1alpha1.BundleClusters{Desired: 2, Ready: ready}}
		h.tables.Bundles.Put(b)
		if got := h.r.bundles.sourcesOf("b", policymatch.BundleID{Namespace: "shop", Name: "web"}); len(got) != 1 && version != "1" {
			t.Errorf("a change of the Bundle concerns %v", got)
		}
		if err := h.r.updateSource(t.Context(), h.readSource(), func(*v1alpha1.Source) {}); err != nil {
			t.Fatal(err)
		}
	}
	put("1", "tokyo", 1)
	h.setCommit("c1", "a=1")
	h.expectCheck("one cluster of two", "apply a", "Applied=True/Applied Ready=False/Progressing Rendered=True/Rendered")
	if s := h.readSource(); s.Status.WaitsFor != "tokyo" || s.Status.Clusters != (v1alpha1.SourceClusters{Desired: 2, Ready: 1, Summary: "1/2"}) {
		t.Errorf("%+v", s.Status)
	}
	put("2", "", 2)
	if s := h.readSource(); s.Status.WaitsFor != "" || s.Status.Clusters.Summary != "2/2" || !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.SourceReady) {
		t.Errorf("%+v", s.Status)
	}
	if got := h.r.bundles.sourcesOf("b", policymatch.BundleID{}); len(got) != 1 {
		t.Errorf("a Bundle that is gone concerns %v", got)
	}
	h.r.bundles.dropSource(sourceKey)
	if b := h.r.bundles; len(b.byBundle)+len(b.bySource)+len(b.incomplete)+len(b.ids) != 0 {
		t.Errorf("subscriptions are left: %+v", b)
	}
}

func TestIntervals(t *testing.T) {
	repo := &v1alpha1.Repository{}
	if intervalOf(repo) != v1alpha1.DefaultRepositoryInterval {
		t.Error(intervalOf(repo))
	}
	repo.Spec.Interval = &metav1.Duration{Duration: 2 * firstRetry}
	interval := intervalOf(repo)
	for _, c := range []struct{ failures, times int }{{0, 2}, {1, 1}, {2, 2}, {9, 2}, {100, 2}} {
		most := firstRetry * (1 << (c.times - 1))
		if got := nextCheck(interval, c.failures); got > most || got < most*9/10 {
			t.Errorf("after %d failures: %s", c.failures, got)
		}
	}
}

// A policy of a file with the name of the Source's own would be applied in turns with it.
func TestAPolicyWithTheNameOfTheSourcesOwnIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec, namespace string
		refused         bool
	}{
		"with a placement":        {"{repository: repo, ref: {branch: main}, placement: {}}", "shop", true},
		"by the Source's default": {"{repository: repo, ref: {branch: main}, placement: {}}", "", true},
		"in another namespace":    {"{repository: repo, ref: {branch: main}, placement: {}}", "other", false},
		"without a placement":     {branch, "shop", false},
	} {
		h := newHub(t, c.spec)
		h.setCommit("c1", "a=1")
		policy := map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "PropagationPolicy", "metadata": map[string]any{"name": "source-web"}}
		if c.namespace != "" {
			policy["metadata"].(map[string]any)["namespace"] = c.namespace
		}
		h.commit.Objects = append(h.commit.Objects, render.Object{File: "p.yaml", Line: 3, Fields: policy})
		h.runCheck()
		if got := h.listConditions(); strings.Contains(got, "Rendered=False/ContentInvalid") != c.refused {
			t.Errorf("%s: %s", name, got)
		}
		if e := h.readSource().Status.Errors; c.refused && (len(e) != 1 || e[0].File != "p.yaml" || e[0].Line != 3 || !strings.Contains(e[0].Message, "source-web")) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// Content whose inventory the store would not take is refused before anything of it is applied.
func TestTooLongNamesAreRefused(t *testing.T) {
	h := newHub(t, branch)
	var objects []string
	for i := range 1990 {
		objects = append(objects, fmt.Sprintf("%s%04d=1", strings.Repeat("x", 400), i))
	}
	h.setCommit("c1", objects...)
	h.expectCheck("long names", "", "Applied=False/NotRendered Ready=False/NotRendered Rendered=False/ContentTooLarge")
}

// An error of the hub at one Source leaves the other Sources of the Repository theirs.
func TestAnErrorOfOneSourceDelaysNoOther(t *testing.T) {
	h := newHub(t, branch)
	first := h.readStoredSource()
	first.Name, first.UID, first.ResourceVersion = "another", "another", ""
	first.Spec.ServiceAccountName = "unread"
	if err := h.r.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.tables.Sources.Put(first)
	h.r.Client = interceptor.NewClient(h.r.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == "unread" {
			return errors.New("the store is busy")
		}
		return c.Get(ctx, key, o, opts...)
	}})
	h.setCommit("c1", "a=1")
	if err := h.r.checkRepository(t.Context(), repoKey); err == nil || !strings.Contains(err.Error(), "Source another: ") {
		t.Errorf("the check ends with %v", err)
	}
	if got := h.listConditions(); got != good {
		t.Error(got)
	}
}

// A Repository is checked by the workers for its state, and never by two at the same time.
func TestLanes(t *testing.T) {
	h := newHub(t, branch)
	if h.r.laneOf(repoKey) != h.r.healthy {
		t.Error("a new Repository is not checked by the healthy lane")
	}
	h.fails = &fetch.Failure{Reason: atoll.ReasonFetchTimedOut}
	h.runCheck()
	if h.r.laneOf(repoKey) != h.r.failing {
		t.Error("a Repository that failed is not in the lane of failures")
	}
	if !h.r.beginCheck(repoKey) || h.r.beginCheck(repoKey) {
		t.Error("two workers check a Repository")
	}
	n := len(h.requests)
	h.runCheck()
	if len(h.requests) != n {
		t.Error("a check ran beside another")
	}
	h.r.endCheck(repoKey)
	h.fails = nil
	h.setCommit("c1", "a=1")
	h.runCheck()
	if h.r.laneOf(repoKey) != h.r.healthy {
		t.Error("a Repository that is back stays in the lane of failures")
	}
}

// The API server sees the ServiceAccount of the Source. A request without one is not sent.
func TestRequestsAreOfTheServiceAccount(t *testing.T) {
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen = req.Header
		http.NotFound(w, req)
	}))
	t.Cleanup(server.Close)
	c, err := NewTemplateClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	configMaps := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("shop")
	if _, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); err == nil || seen != nil {
		t.Errorf("a request without an account: %v, %v", err, seen)
	}
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1alpha1.SourceSpec{ServiceAccountName: "deployer"}}
	if _, err := configMaps.Get((&Reconciler{}).withAccountOf(t.Context(), s), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if user, groups := seen.Get("Impersonate-User"), seen["Impersonate-Group"]; user != "system:serviceaccount:shop:deployer" || !slices.Equal(groups, []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) {
		t.Errorf("%s of %v", user, groups)
	}
}

func TestTheTokenOfAWebhook(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	expect := func(name string, webhook *v1alpha1.RepositoryWebhook, want string) {
		t.Helper()
		var repo v1alpha1.Repository
		if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
			t.Fatal(err)
		}
		repo.Spec.Webhook = webhook
		repo.Generation++
		if err := h.r.Client.Update(t.Context(), &repo); err != nil {
			t.Fatal(err)
		}
		h.refreshTables()
		h.runCheck()
		read, _ := h.tables.Repositories.Get(repoKey)
		got := ""
		if c := meta.FindStatusCondition(read.Status.Conditions, v1alpha1.RepositoryWebhookReady); c != nil {
			got = string(c.Status) + " " + c.Reason
		}
		if got != want {
			t.Errorf("%s: the condition is %q, want %q", name, got, want)
		}
	}
	of := func(secret string) *v1alpha1.RepositoryWebhook {
		return &v1alpha1.RepositoryWebhook{SecretRef: v1alpha1.RepositorySecretRef{Name: secret}}
	}
	long := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "long"}, Data: map[string][]byte{"token": []byte("0123456789abcdef\n")}}
	if err := h.r.Client.Create(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	expect("no webhook", nil, "")
	expect("no Secret", of("absent"), "False WebhookTokenMissing")
	expect("a short token", of("token"), "False WebhookTokenMissing")
	expect("a token", of("long"), "True WebhookReady")
	expect("no webhook any more", nil, "")
}
