package console

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/internal/command/clienttest"
)

func TestTheAddressIsPrinted(t *testing.T) {
	asked := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the command asks for %s", r.URL) })
	out, err := clienttest.RunForOutput(t, asked, NewCommand)
	if err != nil || !strings.HasPrefix(out, "http://127.0.0.1:") || !strings.HasSuffix(out, "/console/\n") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAddresses(t *testing.T) {
	for hub, want := range map[string]string{
		"https://hub.example:6443": "https://hub.example:6443/console/", "https://hub.example": "https://hub.example/console/", "https://hub.example/": "https://hub.example/console/",
		"https://[::1]:6443": "https://[::1]:6443/console/", "": "", "hub": "", "://": "",
	} {
		if got, err := consoleAddress(hub); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", hub, got, err)
		}
	}
}

// The sentence follows from the kind of the credentials, and has none of them.
func TestHowToSignIn(t *testing.T) {
	for want, config := range map[string]rest.Config{
		"the token of this kubeconfig": {BearerToken: "secret"},
		"the program kubelogin":        {ExecProvider: &clientcmdapi.ExecConfig{Command: "kubelogin"}},
		"Create a token":               {TLSClientConfig: rest.TLSClientConfig{CertData: []byte("secret")}},
	} {
		if got := describeSignIn(&config); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%q is not about %s", got, want)
		}
	}
}
