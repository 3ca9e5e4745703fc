package handshake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

func admin(t *testing.T, names ...string) Admin {
	t.Helper()
	var objects []runtime.Object
	for _, n := range names {
		c := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster", "spec": map[string]any{}}}
		c.SetName(n)
		c.SetUID(types.UID("uid-of-" + n))
		objects = append(objects, c)
	}
	return Admin{Hub: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		secrets: "SecretList", requests: "CertificateSigningRequestList",
	}, objects...)}
}

func (a Admin) request(t *testing.T, cluster, uid string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := trust.NewRequest(key, cluster)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trust.ParseRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	csr := NewRequest(cluster, uid, r, 3600)
	u, err := encoded(csr, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Hub.Resource(requests).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return csr.Name
}

// stored object of the hub, read into one of its type.
func (a Admin) stored(t *testing.T, resource schema.GroupVersionResource, namespace, name string, into any) {
	t.Helper()
	u, err := a.Hub.Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		t.Fatal(err)
	}
}

func (a Admin) decision(t *testing.T, name string) Decision {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	a.stored(t, requests, "", name, &csr)
	return DecisionOn(&csr)
}

func (a Admin) accepted(t *testing.T, name string) bool {
	t.Helper()
	c, err := a.Hub.Resource(clusters).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := unstructured.NestedBool(c.Object, "spec", "accepted")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAcceptAndDeny(t *testing.T) {
	a := admin(t, "tokyo")
	mine, stale := a.request(t, "tokyo", "uid-of-tokyo"), a.request(t, "tokyo", "uid-of-before")
	other := a.request(t, "oslo", "uid-of-oslo")
	keys, err := a.Accept(t.Context(), "tokyo")
	if err != nil || len(keys) != 1 || !trust.ValidHash(keys[0]) || !a.accepted(t, "tokyo") {
		t.Fatalf("accepted %v, %v", keys, err)
	}
	if a.decision(t, mine) != Approved || a.decision(t, stale) != Undecided || a.decision(t, other) != Undecided {
		t.Errorf("decisions %q, %q, %q", a.decision(t, mine), a.decision(t, stale), a.decision(t, other))
	}
	if keys, err := a.Accept(t.Context(), "tokyo"); err != nil || len(keys) != 0 {
		t.Errorf("accepted again: %v, %v", keys, err)
	}
	later := a.request(t, "tokyo", "uid-of-tokyo")
	if err := a.Deny(t.Context(), "tokyo"); err != nil || a.accepted(t, "tokyo") || a.decision(t, later) != Denied || a.decision(t, mine) != Approved {
		t.Errorf("denied: %v, %q, %q", err, a.decision(t, later), a.decision(t, mine))
	}
	if _, err := a.Accept(t.Context(), "nowhere"); err == nil {
		t.Error("accepted a cluster that does not exist")
	}
}

func TestTokens(t *testing.T) {
	a := admin(t)
	now := time.Now()
	token, err := a.CreateToken(t.Context(), TokenSpec{Lifetime: time.Hour, Uses: 3, NamePattern: "shop-*", Labels: map[string]string{"env": "prod"}, Set: "edge", AutoAccept: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	a.stored(t, secrets, atoll.SystemNamespace, TokenSecretName(token.ID), secret)
	for k, v := range secret.Data {
		if strings.Contains(string(v), strings.Split(token.Reveal(), ".")[2]) {
			t.Errorf("%s holds the token's secret", k)
		}
	}
	list, err := a.Tokens(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	got := list[0]
	if !token.Matches(got.Hash) || got.UsesLeft != 3 || got.Labels["env"] != "prod" || got.Set != "edge" || !got.AutoAccept ||
		!got.Allows("shop-1") || got.Allows("bank") || got.Expires.Sub(now).Round(time.Minute) != time.Hour {
		t.Errorf("stored %+v", got)
	}
	for key := range secret.Data {
		damaged := secret.DeepCopy()
		damaged.Data[key] = []byte("?")
		if s, err := ParseTokenSecret(damaged); err == nil && key != dataHash && key != dataPattern && key != dataSet {
			t.Errorf("damaged %s still allows %+v", key, s)
		}
	}
	if err := a.DeleteToken(t.Context(), token.ID); err != nil {
		t.Error(err)
	}
	if list, err := a.Tokens(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the delete: %v, %v", list, err)
	}
	for name, bad := range map[string]TokenSpec{
		"no lifetime": {Uses: 1},
		"no uses":     {Lifetime: time.Hour},
		"pattern":     {Lifetime: time.Hour, Uses: 1, NamePattern: "["},
		"label":       {Lifetime: time.Hour, Uses: 1, Labels: map[string]string{"a b": "c"}},
		"set":         {Lifetime: time.Hour, Uses: 1, Set: "a b"},
	} {
		if _, err := a.CreateToken(t.Context(), bad, now); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}
