package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/lab/relay"
)

// The orchestration is tested with programs that keep the contract of
// components.go and do nothing else, so that it does not wait for API servers.
// They are this test binary under the programs' names.

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch name := filepath.Base(os.Args[0]); {
	case name == "atoll-hub":
		err = fakeHub(ctx, parseArguments())
	case name == "atoll" && os.Args[1] == "agent":
		err = fakeAgent(ctx, parseArguments())
	case name == "atoll":
		err = fakeCLI(ctx, os.Args[1:])
	case name == "atoll-lab" && os.Args[1] == "relay":
		err = fakeRelay(ctx, os.Args[2:])
	case name == "atoll-lab":
		err = fakeMember(ctx, parseArguments())
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeBinaries makes the programs and returns their paths.
func fakeBinaries(t *testing.T) Binaries {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"atoll-hub", "atoll", "atoll-lab"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return Binaries{Lab: filepath.Join(dir, "atoll-lab"), Hub: filepath.Join(dir, "atoll-hub"), Atoll: filepath.Join(dir, "atoll")}
}

// parseArguments reads "--name value" pairs.
func parseArguments() map[string]string {
	args := map[string]string{}
	for i, arg := range os.Args {
		if name, isFlag := strings.CutPrefix(arg, "--"); isFlag && i+1 < len(os.Args) {
			args[name] = os.Args[i+1]
		}
	}
	return args
}

// writeFakeKubeconfig leads to a server without TLS.
func writeFakeKubeconfig(file, port string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"x","cluster":{"server":"http://127.0.0.1:%s"}}],
"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`, port), 0o600)
}

func fakeMember(ctx context.Context, args map[string]string) error {
	dir := args["dir"]
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "break-"+args["name"])); err == nil {
		return errors.New("broken on purpose")
	}
	_ = os.Remove(filepath.Join(dir, MemberReady))
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	if err := writeFakeKubeconfig(filepath.Join(dir, MemberKubeconfig), args["port"]); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, MemberReady), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		return err
	}
	return serveHTTP(ctx, args["port"], mux)
}

func serveHTTP(ctx context.Context, port string, handler http.Handler) error {
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: handler}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func fakeRelay(ctx context.Context, args []string) error {
	var specs []relay.Spec
	for i, arg := range args {
		if arg == "--link" {
			name, addresses, _ := strings.Cut(args[i+1], "=")
			listen, target, _ := strings.Cut(addresses, ",")
			specs = append(specs, relay.Spec{Name: name, Listen: listen, Target: target})
		}
	}
	return relay.ServeLinks(ctx, args[1], specs)
}

// fakeHubServer keeps clusters: they ask by connecting to the gateway, are accepted by
// POST, and Ready while connected.
type fakeHubServer struct {
	mu           sync.Mutex
	dataDir      string
	joinRequests map[string]bool
	connected    map[string]int
}

func fakeHub(ctx context.Context, args map[string]string) error {
	h := &fakeHubServer{dataDir: args["data-dir"], joinRequests: map[string]bool{}, connected: map[string]int{}}
	if err := os.MkdirAll(h.dataDir, 0o700); err != nil {
		return err
	}
	if err := writeFakeKubeconfig(filepath.Join(h.dataDir, "hub.kubeconfig"), args["port"]); err != nil {
		return err
	}
	gateway, err := net.Listen("tcp", "127.0.0.1:"+args["gateway-port"])
	if err != nil {
		return err
	}
	defer gateway.Close()
	go h.serveGateway(gateway)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /accept/{name}", h.acceptCluster)
	mux.HandleFunc("/apis/atoll.dev/v1alpha1/clusters/{name}", h.serveCluster)
	return serveHTTP(ctx, args["port"], mux)
}

func (h *fakeHubServer) serveGateway(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			name, err := bufio.NewReader(c).ReadString('\n')
			if err != nil {
				return
			}
			name = strings.TrimSpace(name)
			h.countConnected(name, 1)
			defer h.countConnected(name, -1)
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

func (h *fakeHubServer) countConnected(name string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joinRequests[name] = true
	h.connected[name] += n
}

func (h *fakeHubServer) acceptCluster(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := r.PathValue("name")
	if !h.joinRequests[name] {
		http.Error(w, "there is no join request of that name", http.StatusNotFound)
		return
	}
	if err := os.WriteFile(filepath.Join(h.dataDir, name), []byte("{}"), 0o600); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (h *fakeHubServer) serveCluster(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	file := filepath.Join(h.dataDir, r.PathValue("name"))
	stored, err := os.ReadFile(file)
	if err != nil {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound"}`, http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPatch {
		stored, _ = io.ReadAll(r.Body)
		if err := os.WriteFile(file, stored, 0o600); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	cluster := map[string]any{}
	_ = json.Unmarshal(stored, &cluster)
	ready := "Unknown"
	if h.connected[r.PathValue("name")] > 0 {
		ready = "True"
	}
	cluster["apiVersion"], cluster["kind"] = "atoll.dev/v1alpha1", "Cluster"
	cluster["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": "Stream", "message": "as the stream is"}}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(cluster)
}

// fakeAgent holds one connection to the hub whenever it can.
func fakeAgent(ctx context.Context, args map[string]string) error {
	token, err := os.ReadFile(args["token-file"])
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(token)) != "sesame" || args["ca-hash"] != "sha256:0" {
		return errors.New("wrong token")
	}
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		c, err := net.Dial("tcp", args["hub"])
		if err != nil {
			return false, nil
		}
		defer c.Close()
		fmt.Fprintln(c, args["name"])
		_, _ = io.Copy(io.Discard, c)
		return false, nil
	})
}

// fakeCLI is called as: --kubeconfig FILE VERB ...
func fakeCLI(ctx context.Context, args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", args[1])
	if err != nil {
		return err
	}
	switch args[2] {
	case "token":
		_, err := fmt.Println(`{"token":"sesame","hub":"ignored","caHash":"sha256:0"}`)
		return err
	case "accept":
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, config.Host+"/accept/"+args[3], nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
	return fmt.Errorf("unknown verb %s", args[2])
}
