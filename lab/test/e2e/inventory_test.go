package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"atoll.dev/atoll/internal/testwait"
)

// A program finds clusters by the inventory of SIG Multicluster (KEP-5339), with nothing of
// Atoll's but the plugin that its configuration names. As a ServiceAccount of the hub it
// reads the profile, takes the server and the CA of the access provider that it has a
// plugin for, and works in the member with the rights that this gives that ServiceAccount.
func TestAProgramReachesAMemberByItsProfile(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "consumer")
	mustKubectl(t, "", "create serviceaccount finder -n "+ns)
	mustKubectl(t, "", "create rolebinding finder-"+ns+" -n atoll-inventory --clusterrole atoll:inventory-viewer --serviceaccount "+ns+":finder")
	apply(t, ns, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: finder}
rules: [{apiGroups: [atoll.dev], resources: [clusters/proxy], resourceNames: [member1], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: finder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: finder}
subjects: [{kind: ServiceAccount, namespace: $NS, name: finder}]
`)
	kubectlAtEnd(t, "hub", "delete clusterrole,clusterrolebinding finder")
	grantRole(t, "member1", "finders", "--clusterrole view --user atoll:serviceaccount:"+ns+":finder")

	// The configuration of the program.
	const providers = `{"providers": [{"name": "atoll", "execConfig": {
	  "apiVersion": "client.authentication.k8s.io/v1", "command": "atoll", "args": ["credential"],
	  "interactiveMode": "Never", "provideClusterInfo": true}}]}`
	var configured struct {
		Providers []struct {
			Name       string
			ExecConfig clientcmdv1.ExecConfig
		}
	}
	if err := json.Unmarshal([]byte(providers), &configured); err != nil {
		t.Fatal(err)
	}
	plugin := configured.Providers[0]
	hubConfig := sharedWorld.lab.KubeconfigPath("hub")

	list := func(ctx context.Context, member string) error {
		o, err := get(ctx, "hub", "multicluster.x-k8s.io/v1alpha1", "ClusterProfile", "atoll-inventory", member)
		if err != nil || o == nil {
			return errors.New("no profile")
		}
		raw, err := json.Marshal(o.Object["status"])
		if err != nil {
			return err
		}
		var status struct {
			AccessProviders []struct {
				Name    string
				Cluster clientcmdv1.Cluster
			}
		}
		if err := json.Unmarshal(raw, &status); err != nil {
			return err
		}
		for _, p := range status.AccessProviders {
			if p.Name != plugin.Name {
				continue
			}
			kube, err := kubernetes.NewForConfig(&rest.Config{
				Host: p.Cluster.Server, TLSClientConfig: rest.TLSClientConfig{CAData: p.Cluster.CertificateAuthorityData},
				ExecProvider: &clientcmdapi.ExecConfig{
					APIVersion: plugin.ExecConfig.APIVersion, Command: builtBinary(plugin.ExecConfig.Command),
					Args:               append(plugin.ExecConfig.Args, "--kubeconfig", hubConfig, "--service-account", ns+"/finder"),
					InteractiveMode:    clientcmdapi.ExecInteractiveMode(plugin.ExecConfig.InteractiveMode),
					ProvideClusterInfo: plugin.ExecConfig.ProvideClusterInfo,
				},
			})
			if err != nil {
				return err
			}
			found, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, one := range found.Items {
				if one.Name == "kube-system" {
					return nil
				}
			}
			return errors.New("no namespace kube-system")
		}
		return errors.New("no access provider")
	}
	expectOutput(t, "the profile, as the ServiceAccount", kubectlAt(t, hubConfig, "", "get clusterprofile member1 -n atoll-inventory -o name --as system:serviceaccount:"+ns+":finder"), "clusterprofile.multicluster.x-k8s.io/member1")
	testwait.UntilNil(t, "namespaces of the member are listed", func(ctx context.Context) error { return list(ctx, "member1") })
	if err := list(t.Context(), "member2"); err == nil || !strings.Contains(err.Error(), "clusters/proxy") {
		t.Errorf("a member that it may not reach: %v", err)
	}
}
