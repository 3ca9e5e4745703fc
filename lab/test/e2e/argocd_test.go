package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// TestAMemberAsAnArgoCDCluster: docs/reach.md describes the setup for Argo CD, a
// ServiceAccount of the hub with a lasting token and a cluster Secret. The setup is enough
// for Argo CD's work in a cluster: it discovers, lists and watches all served kinds, and
// applies server-side. In another member the same token does nothing.
func TestAMemberAsAnArgoCDCluster(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "argocd")
	apply(t, ns, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: argocd, namespace: $NS}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: argocd-token, namespace: $NS, annotations: {kubernetes.io/service-account.name: argocd}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $NS-reach}
rules: [{apiGroups: [atoll.dev], resources: [clusters/proxy], resourceNames: [member1], verbs: [get, create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $NS-reach}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $NS-reach}
subjects: [{kind: ServiceAccount, namespace: $NS, name: argocd}]
`)
	kubectlAtEnd(t, "hub", "delete clusterrole,clusterrolebinding "+ns+"-reach")
	for _, m := range []string{"member1", "member2"} {
		grantRole(t, m, ns, "--clusterrole cluster-admin --user atoll:serviceaccount:"+ns+":argocd")
	}
	var token corev1.Secret
	testwait.UntilNil(t, "the token is made", func(ctx context.Context) error {
		if err := hubClient().Get(ctx, client.ObjectKey{Namespace: ns, Name: "argocd-token"}, &token); err != nil || len(token.Data["token"]) == 0 || len(token.Data["ca.crt"]) == 0 {
			return errors.New("no token")
		}
		return nil
	})
	door, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	// The Secret's fields, as Argo CD reads them.
	secret := func(member string) map[string]string {
		config, err := json.Marshal(map[string]any{"bearerToken": string(token.Data["token"]), "tlsClientConfig": map[string]any{"caData": token.Data["ca.crt"]}})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"name": member, "server": door.Host + vocabulary.ClusterProxyPath(member), "config": string(config)}
	}
	reaches := func(member string) *rest.Config {
		var config struct {
			BearerToken     string
			TLSClientConfig struct{ CAData []byte }
		}
		s := secret(member)
		if err := json.Unmarshal([]byte(s["config"]), &config); err != nil {
			t.Fatal(err)
		}
		return &rest.Config{Host: s["server"], BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: config.TLSClientConfig.CAData}, QPS: 50, Burst: 100}
	}

	config := reaches("member1")
	all := dynamic.NewForConfigOrDie(config)
	if kinds := listsAndWatchesAll(t, config, all); kinds < 40 {
		t.Errorf("%d kinds are listed and watched", kinds)
	}
	at := all.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	w, err := at.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + ns})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": ns}, "data": map[string]any{"by": "argocd"}}}
	if _, err := at.Apply(t.Context(), ns, o, metav1.ApplyOptions{FieldManager: "argocd-controller", Force: true}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("what was applied comes as %v", e)
	}
	if err := at.Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	_, err = dynamic.NewForConfigOrDie(reaches("member2")).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("in a member that its role does not name it may list: %v", err)
	}
}

// listsAndWatchesAll lists and watches all served kinds, like a controller with a whole
// cluster in its cache, and returns the number of kinds. The watches continue until the
// test ends.
func listsAndWatchesAll(t *testing.T, config *rest.Config, all dynamic.Interface) (kinds int) {
	t.Helper()
	var served []*metav1.APIResourceList
	testwait.UntilNil(t, "the member is discovered", func(context.Context) error {
		found, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
		if err != nil {
			return err
		}
		served = found
		return nil
	})
	for _, list := range served {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(gv.Group, "example") {
			continue // other tests' own kinds come and go at the same time
		}
		for _, r := range list.APIResources {
			if verbs := strings.Join(r.Verbs, " "); !strings.Contains(verbs, "list") || !strings.Contains(verbs, "watch") {
				continue
			}
			found, err := all.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Errorf("list %s of %s: %v", r.Name, gv, err)
				continue
			}
			w, err := all.Resource(gv.WithResource(r.Name)).Watch(t.Context(), metav1.ListOptions{ResourceVersion: found.GetResourceVersion()})
			if err != nil {
				t.Errorf("watch %s of %s: %v", r.Name, gv, err)
				continue
			}
			t.Cleanup(w.Stop)
			kinds++
		}
	}
	return kinds
}
