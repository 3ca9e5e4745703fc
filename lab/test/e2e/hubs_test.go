package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// testProgram is a process that a test started; it ends with the test.
type testProgram struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// run starts a built binary, whose output goes to a file.
func runProgram(t *testing.T, log, name string, args ...string) *testProgram {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &testProgram{cmd: exec.Command(builtBinary(name), args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	endWithTest(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state shows how it ended
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // no error matters: it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%s ended with:\n%s", log, fileTail(log))
		}
	})
	return p
}

func builtBinary(name string) string { return filepath.Join(os.Getenv(lab.BinDirVariable), name) }

func fileTail(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-6000):])
}

func (p *testProgram) sendSignal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v to %s: %v", s, p.log, err)
	}
}

// waitExit waits for a program to end and returns its exit code.
func (p *testProgram) waitExit(t *testing.T) int {
	t.Helper()
	testwait.Receive(t, p.log+" ends", p.done)
	return p.cmd.ProcessState.ExitCode()
}

// waitForLog waits until the program has logged the words.
func (p *testProgram) waitForLog(t *testing.T, words string) {
	t.Helper()
	testwait.UntilNil(t, fmt.Sprintf("%s says %q", filepath.Base(p.log), words), func(context.Context) error {
		raw, err := os.ReadFile(p.log)
		if err == nil && bytes.Contains(raw, []byte(words)) {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it ended without it")
		default:
			return errors.New("it does not")
		}
	})
}

// freePort returns a port without a listener, below those of outgoing connections. Other
// processes search for theirs at the same time.
func freePort(t *testing.T) int {
	t.Helper()
	takenPorts.Lock()
	defer takenPorts.Unlock()
	for range 1000 {
		port := 14000 + rand.IntN(4000)
		if takenPorts.ports[port] {
			continue
		}
		if l, err := net.Listen("tcp", loopbackPort(port)); err == nil {
			l.Close()
			takenPorts.ports[port] = true
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

var takenPorts = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

func loopbackPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// sharedHub is one of the hubs on an etcd.
type sharedHub struct {
	*testProgram
	dir, kubeconfig, gateway string
	client                   client.Client
}

// hubPair on one etcd, with member clusters of their own.
type hubPair struct {
	dir    string
	etcd   []string // flags with which a hub uses it
	more   []string // further flags of hubs
	doors  []string // gateways of all
	a, b   *sharedHub
	lab    *lab.Lab
	at     map[string]client.Client // members
	agents map[string]*testProgram  // by Cluster, of those that joined
}

// newHubs brings up an etcd.
func newHubs(t *testing.T) *hubPair {
	t.Helper()
	h := &hubPair{dir: t.TempDir(), at: map[string]client.Client{}, agents: map[string]*testProgram{}}
	h.startEtcd(t)
	h.doors = []string{loopbackPort(freePort(t)), loopbackPort(freePort(t))}
	return h
}

// twoHubs brings up two hubs, of which a leads, and two members that know both.
func twoHubs(t *testing.T) *hubPair {
	t.Helper()
	h := hubsAndMembers(t)
	h.joinMembers(t, "member1", "member2")
	return h
}

// hubsAndMembers are two hubs, of which a leads, and two members that know neither.
func hubsAndMembers(t *testing.T) *hubPair {
	t.Helper()
	h := newHubs(t)
	members := make(chan error, 1)
	var up sync.WaitGroup
	up.Go(func() {
		var err error
		h.lab, err = lab.BringUp(t.Context(), lab.Options{EndsWithStarter: true, Dir: filepath.Join(h.dir, "lab"), Members: 2, Nodes: 1, Hubless: true})
		members <- err
	})
	t.Cleanup(func() {
		up.Wait() // also if the test has failed in between
		if l, err := lab.OpenExisting(filepath.Join(h.dir, "lab")); err == nil {
			if err := l.StopAll(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	h.startBoth(t)
	if err := <-members; err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"member1", "member2"} {
		cfg, err := clientcmd.BuildConfigFromFlags("", h.lab.KubeconfigPath(name))
		if err != nil {
			t.Fatal(err)
		}
		cfg.QPS = -1
		if h.at[name], err = client.New(cfg, client.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// startBoth starts two hubs with one key set, of which a leads.
func (h *hubPair) startBoth(t *testing.T) {
	t.Helper()
	h.a = h.startHub(t, "a", h.doors[0])
	h.a.awaitReady(t)
	h.a.waitForLog(t, "this hub leads")
	keys := filepath.Join(h.dir, "keys.tar")
	runCommand(t, "atoll-hub", "backup", "--data-dir", h.a.dir, "--file", keys)
	runCommand(t, "atoll-hub", "restore", "--data-dir", filepath.Join(h.dir, "b"), "--file", keys)
	h.b = h.startHub(t, "b", h.doors[1])
	h.b.awaitReady(t)
	h.b.waitForLog(t, "another hub leads")
}

func (h *hubPair) startEtcd(t *testing.T) {
	t.Helper()
	dir, port := filepath.Join(h.dir, "store"), freePort(t)
	runProgram(t, filepath.Join(h.dir, "store.log"), "atoll-lab", "etcd", "--dir", dir, "--port", strconv.Itoa(port))
	testwait.UntilNil(t, "etcd", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(dir, lab.MemberReady)); err != nil {
			return err
		}
		return nil
	})
	h.etcd = []string{
		"--etcd-servers", "https://" + loopbackPort(port), "--etcd-cafile", filepath.Join(dir, "ca.crt"),
		"--etcd-certfile", filepath.Join(dir, "client.crt"), "--etcd-keyfile", filepath.Join(dir, "client.key"),
	}
}

// etcdClient is a client of the etcd.
func (h *hubPair) etcdClient(t *testing.T) *clientv3.Client {
	t.Helper()
	info := transport.TLSInfo{TrustedCAFile: h.etcd[3], CertFile: h.etcd[5], KeyFile: h.etcd[7]}
	tls, err := info.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{h.etcd[1]}, TLS: tls, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// startHub starts a hub, or starts one that ended again.
func (h *hubPair) startHub(t *testing.T, name, door string) *sharedHub {
	t.Helper()
	s := &sharedHub{dir: filepath.Join(h.dir, name), gateway: door}
	s.kubeconfig = filepath.Join(s.dir, "hub.kubeconfig")
	_, port, err := net.SplitHostPort(door)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"--data-dir", s.dir, "--gateway-port", port, "--gateway-address", strings.Join(h.doors, ","), "--push-allowed-cidrs", "127.0.0.0/8",
	}, append(h.etcd, h.more...)...)
	if _, err := os.Stat(filepath.Join(s.dir, "port")); err != nil {
		args = append(args, "--port", strconv.Itoa(freePort(t)))
	}
	s.testProgram = runProgram(t, filepath.Join(h.dir, name+".log"), "atoll-hub", args...)
	return s
}

func (s *sharedHub) awaitReady(t *testing.T) {
	t.Helper()
	testwait.UntilNilWithin(t, 3*testwait.HangLimit, s.log+" is ready", func(ctx context.Context) error {
		cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			return err
		}
		cfg.QPS = -1
		if s.client, err = client.New(cfg, client.Options{}); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, builtBinary("atoll-lab"), "kubectl", "--kubeconfig", s.kubeconfig, "get", "--raw", "/readyz").CombinedOutput()
		if err != nil {
			return errors.New("the output is: " + string(out))
		}
		return nil
	})
}

// joinMembers both members, whose agents know both hubs.
func (h *hubPair) joinMembers(t *testing.T, names ...string) {
	t.Helper()
	var made struct{ Token, Hub, CAHash string }
	out := runCommand(t, "atoll", "--kubeconfig", h.b.kubeconfig, "token", "create", "--ttl", "1h", "--uses", strconv.Itoa(len(names)), "-o", "json")
	if err := json.Unmarshal(out, &made); err != nil || made.Hub != strings.Join(h.doors, ",") {
		t.Fatalf("token %s: %v", out, err)
	}
	for _, name := range names {
		kubeconfig := h.lab.KubeconfigPath(name)
		// Which of them is dialled first is by the name.
		h.agents[name] = runProgram(t, filepath.Join(h.dir, "agent-"+name+".log"), "atoll", "agent", "--name", name,
			"--hub", h.doors[1], "--hub", h.doors[0], "--ca-hash", made.CAHash, "--token", made.Token, "--kubeconfig", kubeconfig)
	}
	for _, name := range names {
		testwait.UntilNil(t, "accept "+name, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, builtBinary("atoll"), "--kubeconfig", h.a.kubeconfig, "accept", name).CombinedOutput()
			if err != nil {
				return errors.New("the output is: " + string(out))
			}
			return nil
		})
	}
}

// runCommand runs a built binary that is to succeed, and gives what it printed.
func runCommand(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var failed *exec.ExitError
	out, err := exec.CommandContext(t.Context(), builtBinary(name), args...).Output()
	if errors.As(err, &failed) {
		t.Fatalf("%s %s: %v\n%s", name, args[0], err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply YAML to the hub as a user.
func (s *sharedHub) apply(t *testing.T, ns, text string) {
	t.Helper()
	for _, o := range decodeObjects(t, ns, text) {
		if err := s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func (s *sharedHub) patch(t *testing.T, o *unstructured.Unstructured, json string) {
	t.Helper()
	if err := s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(json))); err != nil {
		t.Fatalf("patch %s: %v", o.GetName(), err)
	}
}

// getIfExists reads an object; nil when it is not there.
func getIfExists(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(o), found)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil, nil
	}
	return found, err
}
