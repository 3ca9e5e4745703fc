package join

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

func TestManifestHoldsTheJoinAndNothingElseChanges(t *testing.T) {
	o := &joinOptions{flags: &client.ConnectionFlags{}, name: "tokyo-1", hub: "hub:6444", caHash: "sha256:" + strings.Repeat("0", 64), token: trust.NewToken().RevealSecret(), image: "registry/atoll:1"}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join("testdata", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	o.balancerCA = filepath.Join("testdata", "ca.crt")
	objects, err := o.agentManifests()
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{}
	for _, u := range objects {
		kinds = append(kinds, u.GetKind())
		switch u.GetKind() {
		case "Secret":
			data, _, _ := unstructured.NestedStringMap(u.Object, "stringData")
			if data["name"] != o.name || data["hub"] != o.hub || data["caHash"] != o.caHash || data["token"] != o.token || data["balancerCA"] != string(ca) {
				t.Errorf("the join Secret holds %v", data)
			}
			if u.GetName() != secretName {
				t.Errorf("the Secret is named %s", u.GetName())
			}
		case "Deployment":
			if !strings.Contains(asYAML(t, u), "image: registry/atoll:1") {
				t.Error("the image was not set")
			}
			if !strings.Contains(asYAML(t, u), "key: balancerCA") {
				t.Error("the Deployment does not take the balancer's CA")
			}
			if strings.Contains(asYAML(t, u), o.token) {
				t.Error("the token is in the Deployment")
			}
			id := strings.Split(o.token, ".")[1]
			if !strings.Contains(asYAML(t, u), "agent.atoll.dev/join-token: "+id) || !strings.Contains(asYAML(t, u), "--token-secret="+secretName) {
				t.Errorf("a new token does not restart the agent, or is not read:\n%s", asYAML(t, u))
			}
			if u.GetName() != agentName {
				t.Errorf("the Deployment is named %s", u.GetName())
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "Namespace NetworkPolicy ServiceAccount Secret CustomResourceDefinition ClusterRole ClusterRole ClusterRole ClusterRoleBinding Role RoleBinding Deployment" {
		t.Errorf("the manifest has %s", got)
	}
}

// TestABalancersCAIsCertificatesAlone: what is no such is refused before anything is applied.
func TestABalancersCAIsCertificatesAlone(t *testing.T) {
	ca, err := os.ReadFile(filepath.Join("testdata", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"holds no certificate": "what is this",
		"private key":          string(ca) + "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
	} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := &joinOptions{flags: &client.ConnectionFlags{}, balancerCA: file}
		if _, err := o.agentManifests(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
	if _, err := (&joinOptions{flags: &client.ConnectionFlags{}, balancerCA: "nowhere"}).agentManifests(); err == nil {
		t.Error("a file that is not there")
	}
}

func asYAML(t *testing.T, u *unstructured.Unstructured) string {
	var b strings.Builder
	if err := printManifest(&b, []*unstructured.Unstructured{u}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatCannotWorkIsRefusedBeforeAnythingIsDialled(t *testing.T) {
	good := joinOptions{flags: &client.ConnectionFlags{}, name: "a", hub: "h:1", caHash: "sha256:" + strings.Repeat("0", 64), token: trust.NewToken().RevealSecret()}
	for name, spoil := range map[string]func(*joinOptions){
		"name":                 func(o *joinOptions) { o.name = "A_b" },
		"hash":                 func(o *joinOptions) { o.caHash = "sha256:12" },
		"token":                func(o *joinOptions) { o.token = "x" },
		"no hub":               func(o *joinOptions) { o.hub = "" },
		"a flag of push alone": func(o *joinOptions) { o.push.standby = true },
		"push and a token":     func(o *joinOptions) { o.push.on, o.flags.Kubeconfig = true, "member" },
		"push and a balancer": func(o *joinOptions) {
			*o = joinOptions{flags: &client.ConnectionFlags{Kubeconfig: "member"}, name: "a", balancerCA: "f", push: pushFlags{on: true}}
		},
		"push to nowhere": func(o *joinOptions) { *o = joinOptions{flags: o.flags, name: "a", push: pushFlags{on: true}} },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			o.flags = &client.ConnectionFlags{}
			spoil(&o)
			if err := o.validate(); err == nil {
				t.Error("it was let through")
			}
		})
	}
}

func TestHowTheHubReachesAMember(t *testing.T) {
	ca, err := os.ReadFile(filepath.Join("testdata", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	through := func(proxy string) func(*http.Request) (*url.URL, error) {
		u, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		return http.ProxyURL(u)
	}
	for name, c := range map[string]struct {
		config rest.Config
		server string // flag
		want   handshake.Credentials
		fails  string
	}{
		"as the kubeconfig": {
			config: rest.Config{Host: "https://10.0.0.1:6443/", TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "kube"}},
			want:   handshake.Credentials{Server: "https://10.0.0.1:6443", CA: string(ca), ServerName: "kube"},
		},
		"a CA in a file":   {config: rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "testdata/ca.crt"}}, want: handshake.Credentials{Server: "https://a", CA: string(ca)}},
		"a public CA":      {config: rest.Config{Host: "https://a/k8s/clusters/c-1"}, want: handshake.Credentials{Server: "https://a/k8s/clusters/c-1"}},
		"through a proxy":  {config: rest.Config{Host: "https://a", Proxy: through("http://proxy:3128")}, want: handshake.Credentials{Server: "https://a", ProxyURL: "http://proxy:3128"}},
		"at another place": {config: rest.Config{Host: "https://127.0.0.1:7443"}, server: "https://10.0.0.9:6443/", want: handshake.Credentials{Server: "https://10.0.0.9:6443"}},
		"unverified":       {config: rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, fails: "insecure-skip-tls-verify"},
		"in the clear":     {config: rest.Config{Host: "http://a"}, fails: "https://"},
		"no CA in the CA":  {config: rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, fails: "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &joinOptions{push: pushFlags{on: true, server: c.server}}
			got, err := o.memberCredentials(&c.config)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want one that says %q", err, c.fails)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("reached by %#v: %v", got, err)
			}
		})
	}
}

func TestAllowAddsWhatItNames(t *testing.T) {
	o := &joinOptions{name: "tokyo-1", image: "a"}
	few, err := o.agentManifests()
	if err != nil {
		t.Fatal(err)
	}
	o.allow = []string{"rbac", "cluster-admin"}
	more, err := o.agentManifests()
	if err != nil {
		t.Fatal(err)
	}
	added := ""
	for _, u := range more[len(few):] {
		added += u.GetKind() + "/" + u.GetName() + " "
	}
	if added != "ClusterRole/atoll-agent-rbac ClusterRoleBinding/atoll-agent-cluster-admin " {
		t.Errorf("--allow adds %s", added)
	}
	o.allow = []string{"rbac", "everything"}
	if _, err := o.agentManifests(); err == nil || !strings.Contains(err.Error(), `"everything" is none of crds, rbac, impersonate, all-kinds, cluster-admin`) {
		t.Errorf("an opt-in that does not exist: %v", err)
	}
	for _, u := range few {
		for _, rule := range rulesOf(u) {
			verbs, groups, resources := rule["verbs"].([]any), rule["apiGroups"], rule["resources"]
			if len(verbs) > 1 && (strings.Contains(fmt.Sprint(groups, resources), "*") || strings.Contains(fmt.Sprint(groups), "rbac")) {
				t.Errorf("%s %s lets the agent %v all of %v %v by default", u.GetKind(), u.GetName(), verbs, groups, resources)
			}
		}
	}
}

func rulesOf(u *unstructured.Unstructured) (out []map[string]any) {
	rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
	for _, r := range rules {
		out = append(out, r.(map[string]any))
	}
	return out
}
