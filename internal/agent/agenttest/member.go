// Package agenttest starts a real member cluster for tests of the agent.
//
// Contract: Main runs a package's tests with one member that all of them share;
// tests keep apart by their own namespaces. The member is the lab's binary, from
// ATOLL_BIN_DIR if that is set, else built for the run. It is killed at the end.
package agenttest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var config *rest.Config

// Config of the member that Main started; a copy.
func Config() *rest.Config { return rest.CopyConfig(config) }

// Kubeconfig file of the member that Main started.
var Kubeconfig string

// Main starts the member and runs the tests; its value is for os.Exit. With
// -short there is no member, and tests that need one must call Need.
func Main(m *testing.M) int {
	if isShort() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "atoll-agent-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// Need skips the test in short runs.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real member, which -short leaves out")
	}
}

func isShort() bool {
	for _, a := range os.Args {
		if a == "-test.short" || a == "-test.short=true" {
			return true
		}
	}
	return false
}

func start(dir string) (stop func(), err error) {
	binary, err := lab(dir)
	if err != nil {
		return nil, err
	}
	port, held, err := freePort()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "member")
	logs, err := os.Create(filepath.Join(dir, "member.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "member", "--dir", home, "--port", strconv.Itoa(port), "--name", "member")
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a member: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = logs.Close()
		_ = held.Close()
	}
	err = wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(home, "ready"))
		return err == nil, nil
	})
	if err == nil {
		Kubeconfig = filepath.Join(home, "kubeconfig")
		config, err = clientcmd.BuildConfigFromFlags("", Kubeconfig)
	}
	if err != nil {
		tail, _ := os.ReadFile(logs.Name())
		stop()
		return nil, fmt.Errorf("the member did not get ready: %w\n%s", err, tail[max(0, len(tail)-4000):])
	}
	config.QPS = -1
	return stop, nil
}

// lab gives the path of the lab's binary.
func lab(dir string) (string, error) {
	if at := os.Getenv("ATOLL_BIN_DIR"); at != "" {
		return filepath.Join(at, "atoll-lab"), nil
	}
	binary := filepath.Join(dir, "atoll-lab")
	build := exec.Command("go", "build", "-o", binary, "atoll.dev/atoll/cmd/atoll-lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the lab: %w\n%s", err, out)
	}
	return binary, nil
}

// freePort is one that nobody listens on, below those that outgoing connections and
// listeners that do not care get, so that it is still free when the member takes it.
// Other tests that look for one do not get it either, until held is closed.
func freePort() (port int, held io.Closer, err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("atoll-agent-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, nil, err
	}
	for range 100 {
		port = 10000 + rand.IntN(4000)
		var hold *os.File
		if hold, err = os.Create(filepath.Join(dir, strconv.Itoa(port))); err != nil {
			return 0, nil, err
		}
		if err = syscall.Flock(int(hold.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
				return port, hold, l.Close()
			}
		}
		_ = hold.Close()
	}
	return 0, nil, fmt.Errorf("found no free port: %w", err)
}
