package credential

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/internal/command/client"
)

// startHub answers token requests as the hub's API would.
func startHub(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/kueue-system/serviceaccounts/kueue/token" || r.Header.Get("Authorization") != "Bearer user" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"robot","expirationTimestamp":"2030-01-02T03:04:05Z"}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// The printed credentials, and their receivers.
func TestTheHubsCredentialsAreForTheHubAlone(t *testing.T) {
	s := startHub(t)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	kubeconfig := func(user clientcmdapi.AuthInfo) string {
		file := filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:  map[string]*clientcmdapi.Cluster{"hub": {Server: s.URL, CertificateAuthorityData: []byte(ca)}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{"me": &user}, CurrentContext: "hub",
			Contexts: map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "me"}},
		}, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := clientcmdapi.AuthInfo{Token: "user"}
	const hubs = "/clusters/tokyo/proxy"
	for _, tc := range []struct {
		name string
		user clientcmdapi.AuthInfo
		ca   string
		args []string
		want string // a token, or what the error shows
	}{
		{"an address that is said to be the hub's", token, ca, []string{"--server", "hub:443"}, "user"},
		{"the kubeconfig's token", token, ca, nil, "user"},
		{"a token in a file", clientcmdapi.AuthInfo{TokenFile: file}, ca, nil, "from a file"},
		{"a ServiceAccount's", token, ca + "\n", []string{"--service-account", "kueue-system/kueue"}, "robot"},
		{"no such right", clientcmdapi.AuthInfo{Token: "other"}, ca, []string{"--service-account", "kueue-system/kueue"}, "error: "},
		{"no ServiceAccount", token, ca, []string{"--service-account", "kueue"}, "error: --service-account kueue: it must be NAMESPACE/NAME"},
		{"another server", token, ca + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("another")})), nil, "error: " + s.URL + hubs + ": its ClusterProfile names another CA than the hub's kubeconfig"},
		{"a server that one of the hub's CAs signed", token, ca, nil, "error: https://hub/clusters/tokyo/proxy: the hub is at " + strings.TrimPrefix(s.URL, "https://")},
		{"an unverified server", token, "", nil, "error: " + s.URL + hubs + ": its ClusterProfile names no CA"},
		{"nothing to log in with", clientcmdapi.AuthInfo{Username: "a", Password: "b"}, ca, nil, "error: the kubeconfig logs in with neither"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := s.URL
			if slices.Contains(tc.args, "hub:443") || strings.Contains(tc.want, "https://hub/") {
				at = "https://hub"
			}
			info, err := json.Marshal(clientauthentication.ExecCredential{Spec: clientauthentication.ExecCredentialSpec{
				Cluster: &clientauthentication.Cluster{Server: at + hubs, CertificateAuthorityData: []byte(tc.ca)},
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("KUBERNETES_EXEC_INFO", strings.Replace(string(info), "{", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",`, 1))
			cmd := NewCommand(&client.ConnectionFlags{Kubeconfig: kubeconfig(tc.user)})
			out := new(bytes.Buffer)
			cmd.SetOut(out)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true // as the root does
			cmd.SetArgs(tc.args)
			var got clientauthentication.ExecCredential
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				if !strings.HasPrefix("error: "+err.Error(), tc.want) || strings.Contains(out.String(), "token") {
					t.Errorf("%v, want %s; printed %s", err, tc.want, out)
				}
				return
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Status == nil || got.Status.Token != tc.want {
				t.Errorf("printed %s (%v), want the token %s", out, err, tc.want)
			}
			if want := tc.want == "robot"; want != (got.Status.ExpirationTimestamp != nil) {
				t.Errorf("it ends at %v", got.Status.ExpirationTimestamp)
			}
		})
	}
}
