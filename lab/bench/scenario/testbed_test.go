package scenario

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/lab/bench/progress"
	"atoll.dev/atoll/lab/process"
)

// TestAHubIsReadWhereItListens: a hub whose port was taken while it was down listens
// elsewhere. Measurements read it there, not at its old port.
func TestAHubIsReadWhereItListens(t *testing.T) {
	dir := t.TempDir()
	next := filepath.Join(dir, "next")
	listens := func(name string) {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "identity{name=%q} 1\n", name)
		}))
		t.Cleanup(server.Close)
		config := clientcmdapi.NewConfig()
		config.Clusters["hub"] = &clientcmdapi.Cluster{
			Server:                   server.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}
		config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
		config.CurrentContext = "hub"
		if err := clientcmd.WriteToFile(*config, next); err != nil {
			t.Fatal(err)
		}
	}
	hubs := []*hubProcess{{dir: filepath.Join(dir, "a")}, {dir: filepath.Join(dir, "b")}}
	for _, h := range hubs {
		if err := os.Mkdir(h.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.ProcessSpec = process.ProcessSpec{
			Name: "hub", Owner: dir, Log: h.dir + ".log", Identity: h.dir + ".process",
			Command: []string{"/bin/sh", "-c", fmt.Sprintf("cp %q %[2]q.new && mv %[2]q.new %[2]q && exec sleep 600", next, filepath.Join(h.dir, "hub.kubeconfig"))},
		}
		t.Cleanup(func() {
			if err := h.KillProcess(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	s := &testbed{Options: Options{Dir: dir, Progress: progress.NewProgressBar(io.Discard)}, hubs: hubs}
	start := func(h *hubProcess, where, user string) {
		t.Helper()
		listens(where)
		if err := h.KillProcess(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.startHubProcess(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if m, ok := metricsOf(t.Context(), h); !ok || m.SumSeries("identity", "name", where) != 1 {
			t.Errorf("the hub that listens at %s is asked elsewhere", where)
		}
		raw, err := s.kube.Discovery().RESTClient().Get().AbsPath("/").Do(t.Context()).Raw()
		if want := fmt.Sprintf("identity{name=%q} 1\n", user); err != nil || string(raw) != want {
			t.Errorf("the user talks to %q, %v; want %q", raw, err, want)
		}
	}
	start(hubs[0], "first", "first")
	start(hubs[1], "second", "first")
	start(hubs[1], "third", "first")
	start(hubs[0], "fourth", "fourth")
}
