package e2e

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// useCode uses a one-time code of the console at a hub, as the page does, and returns the status and the answer.
func (s *sharedHub) useCode(t *testing.T, code string) (int, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// A browser has no certificate of the administrator.
	browser := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust.RootCAs}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/console/session/code", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", config.Host)
	r.Header.Set("X-Atoll-Console", "1")
	answer, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestHubsTakeTheCodesOfEachOther: behind one address, the browser may reach another hub than the command.
func TestHubsTakeTheCodesOfEachOther(t *testing.T) {
	t.Parallel()
	h := newHubs(t)
	h.startBoth(t)
	makeCode := func(s *sharedHub) string {
		_, code, _ := strings.Cut(strings.TrimSpace(string(runCommand(t, "atoll", "console", "--no-browser", "--kubeconfig", s.kubeconfig))), "#code=")
		return code
	}
	for name, pair := range map[string][2]*sharedHub{"of the leader": {h.a, h.b}, "of the other one": {h.b, h.a}} {
		code := makeCode(pair[0])
		if status, text := pair[1].useCode(t, code); status != http.StatusOK || !strings.Contains(text, `"user":`) {
			t.Errorf("a code %s: %d %s", name, status, text)
		}
		for _, s := range pair {
			if status, text := s.useCode(t, code); status != http.StatusUnauthorized || !strings.Contains(text, "used before") {
				t.Errorf("a used code %s: %d %s", name, status, text)
			}
		}
	}
}
