package handshake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

func newAdmin(t *testing.T, names ...string) Admin {
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

func (a Admin) storeRequest(t *testing.T, cluster, uid string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := trust.NewCertificateRequest(key, cluster)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trust.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	csr := NewRequest(cluster, uid, "203.0.113.7:4711", r, 3600)
	u, err := toUnstructured(csr, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Hub.Resource(requests).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return csr.Name
}

// getStored reads an object of the hub into a typed one.
func (a Admin) getStored(t *testing.T, resource schema.GroupVersionResource, namespace, name string, into any) {
	t.Helper()
	u, err := a.Hub.Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		t.Fatal(err)
	}
}

func (a Admin) getDecision(t *testing.T, name string) Decision {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	a.getStored(t, requests, "", name, &csr)
	return DecisionOn(&csr)
}

func (a Admin) isAccepted(t *testing.T, name string) bool {
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
	a := newAdmin(t, "tokyo")
	mine, stale := a.storeRequest(t, "tokyo", "uid-of-tokyo"), a.storeRequest(t, "tokyo", "uid-of-before")
	other := a.storeRequest(t, "oslo", "uid-of-oslo")
	keys, err := a.AcceptCluster(t.Context(), "tokyo")
	if err != nil || len(keys) != 1 || !trust.IsValidKeyHash(keys[0]) || !a.isAccepted(t, "tokyo") {
		t.Fatalf("accepted %v, %v", keys, err)
	}
	if a.getDecision(t, mine) != Approved || a.getDecision(t, stale) != Undecided || a.getDecision(t, other) != Undecided {
		t.Errorf("decisions %q, %q, %q", a.getDecision(t, mine), a.getDecision(t, stale), a.getDecision(t, other))
	}
	if keys, err := a.AcceptCluster(t.Context(), "tokyo"); err != nil || len(keys) != 0 {
		t.Errorf("accepted again: %v, %v", keys, err)
	}
	later := a.storeRequest(t, "tokyo", "uid-of-tokyo")
	if err := a.DenyCluster(t.Context(), "tokyo"); err != nil || a.isAccepted(t, "tokyo") || a.getDecision(t, later) != Denied || a.getDecision(t, mine) != Approved {
		t.Errorf("denied: %v, %q, %q", err, a.getDecision(t, later), a.getDecision(t, mine))
	}
	if _, err := a.AcceptCluster(t.Context(), "nowhere"); err == nil {
		t.Error("accepted a cluster that does not exist")
	}
}

// TestNothingElseIsApprovedWithACluster: only requests of that Cluster's agents to this signer
// are approved. Otherwise a user that can create requests could have others signed by their
// label.
func TestNothingElseIsApprovedWithACluster(t *testing.T) {
	a := newAdmin(t, "tokyo")
	mine, strange := a.storeRequest(t, "tokyo", "uid-of-tokyo"), a.storeRequest(t, "oslo", "uid-of-tokyo")
	foreign := a.storeRequest(t, "tokyo", "uid-of-tokyo")
	u, err := a.Hub.Resource(requests).Get(t.Context(), foreign, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, certificatesv1.KubeAPIServerClientSignerName, "spec", "signerName"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Hub.Resource(requests).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	keys, err := a.AcceptCluster(t.Context(), "tokyo")
	if err != nil || len(keys) != 1 || a.getDecision(t, mine) != Approved {
		t.Errorf("accepted %v, %v", keys, err)
	}
	if a.getDecision(t, foreign) != Undecided || a.getDecision(t, strange) != Undecided {
		t.Errorf("a request of another signer is %q, one of another cluster %q", a.getDecision(t, foreign), a.getDecision(t, strange))
	}
}

// TestAcceptedIsWhatWasRead: a Cluster is accepted as it was read, and before its agent's
// request is approved. It is disconnected even when deciding on requests fails.
func TestAcceptedIsWhatWasRead(t *testing.T) {
	a := newAdmin(t, "tokyo")
	hub := a.Hub.(*dynamicfake.FakeDynamicClient)
	var patches []map[string]any
	changed := false
	hub.PrependReactor("patch", "clusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var patch map[string]any
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			t.Error(err)
		}
		patches = append(patches, patch)
		if changed {
			return true, nil, apierrors.NewConflict(clusters.GroupResource(), "tokyo", errors.New("it has changed"))
		}
		return false, nil, nil
	})
	waiting := a.storeRequest(t, "tokyo", "uid-of-tokyo")
	changed = true
	if _, err := a.AcceptCluster(t.Context(), "tokyo"); err == nil || a.getDecision(t, waiting) != Undecided {
		t.Errorf("of a Cluster that has changed: %v, the request is %q", err, a.getDecision(t, waiting))
	}
	for range 2 { // of which the second has nothing to write
		changed = false
		if _, err := a.AcceptCluster(t.Context(), "tokyo"); err != nil {
			t.Fatal(err)
		}
	}
	if len(patches) != 2 {
		t.Fatalf("written: %v", patches)
	}
	of, _ := patches[1]["metadata"].(map[string]any)
	if version, has := of["resourceVersion"]; of["uid"] != "uid-of-tokyo" || !has {
		t.Errorf("written over UID %v, version %v", of["uid"], version)
	}

	hub.PrependReactor("update", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(requests.GroupResource(), waiting, errors.New("no rule"))
	})
	a.storeRequest(t, "tokyo", "uid-of-tokyo")
	if _, err := a.AcceptCluster(t.Context(), "tokyo"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without the right to approve gets: %v", err)
	}
	hub.PrependReactor("list", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(requests.GroupResource(), "", errors.New("no rule"))
	})
	if err := a.DenyCluster(t.Context(), "tokyo"); err == nil || a.isAccepted(t, "tokyo") {
		t.Errorf("a user without the right to list requests has not cut the agent off: %v", err)
	}
}

// TestOnlyATokensSecretAllows: a Secret is a token by its type, name and hash; any other Secret
// allows nothing.
func TestOnlyATokensSecretAllows(t *testing.T) {
	token := trust.NewToken()
	for name, damage := range map[string]func(*corev1.Secret){
		"of another type":          func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"under another token's ID": func(s *corev1.Secret) { s.Labels[LabelToken] = trust.NewToken().ID },
		"without a hash":           func(s *corev1.Secret) { delete(s.Data, dataHash) },
		"without an end":           func(s *corev1.Secret) { delete(s.Data, dataExpires) },
		"without labels":           func(s *corev1.Secret) { delete(s.Data, dataLabels) },
		"that checks in never":     func(s *corev1.Secret) { s.Data[dataCheckIn] = []byte("never") },
	} {
		s, err := NewTokenSecret(token, TokenSpec{Lifetime: time.Hour, Uses: 3}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseTokenSecret(s); err != nil {
			t.Fatal(err)
		}
		damage(s)
		if got, err := ParseTokenSecret(s); err == nil || got.UsesLeft != 0 || got.Hash != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTokens(t *testing.T) {
	a := newAdmin(t)
	now := time.Now()
	token, err := a.CreateToken(t.Context(), TokenSpec{Lifetime: time.Hour, Uses: 3, NamePattern: "shop-*", Labels: map[string]string{"env": "prod"}, Set: "edge", AutoAccept: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	a.getStored(t, secrets, atoll.SystemNamespace, TokenSecretName(token.ID), secret)
	for k, v := range secret.Data {
		if strings.Contains(string(v), strings.Split(token.RevealSecret(), ".")[2]) {
			t.Errorf("%s holds the token's secret", k)
		}
	}
	list, err := a.ListTokens(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	got := list[0]
	if !token.MatchesHash(got.Hash) || got.UsesLeft != 3 || got.Labels["env"] != "prod" || got.Set != "edge" || !got.AutoAccept ||
		!got.AllowsCluster("shop-1") || got.AllowsCluster("bank") || got.Expires.Sub(now).Round(time.Minute) != time.Hour {
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
	if list, err := a.ListTokens(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the delete: %v, %v", list, err)
	}
	for name, bad := range map[string]TokenSpec{
		"no lifetime": {Uses: 1},
		"no uses":     {Lifetime: time.Hour},
		"pattern":     {Lifetime: time.Hour, Uses: 1, NamePattern: "["},
		"label":       {Lifetime: time.Hour, Uses: 1, Labels: map[string]string{"a b": "c"}},
		"set":         {Lifetime: time.Hour, Uses: 1, Set: "a b"},
		"too often":   {Lifetime: time.Hour, Uses: 1, CheckIn: time.Second},
		"too rarely":  {Lifetime: time.Hour, Uses: 1, CheckIn: 10000 * time.Hour},
	} {
		if _, err := a.CreateToken(t.Context(), bad, now); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}
