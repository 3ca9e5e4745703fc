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
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var config *rest.Config

// StartedMemberConfig returns a copy of the configuration of the member that Main started.
func StartedMemberConfig() *rest.Config { return rest.CopyConfig(config) }

// Kubeconfig file of the member that Main started.
var Kubeconfig string

// RunTestsWithMember starts the member and runs the tests; its value is for os.Exit. With -short
// there is no member, and tests that need one must call SkipIfShort. With -short there is no
// member, and tests that need one must call Need.
func RunTestsWithMember(m *testing.M) int {
	if isShortTestRun() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "atoll-agent-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := startMember(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// SkipIfShort skips the test in short runs.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real member, which -short leaves out")
	}
}

func isShortTestRun() bool {
	for _, a := range os.Args {
		if a == "-test.short" || a == "-test.short=true" {
			return true
		}
	}
	return false
}

func startMember(dir string) (stop func(), err error) {
	binary, err := ensureLabBinary(dir)
	if err != nil {
		return nil, err
	}
	port, held, err := reserveFreePort()
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

// ensureLabBinary returns the path of the lab's binary.
func ensureLabBinary(dir string) (string, error) {
	if at := os.Getenv("ATOLL_BIN_DIR"); at != "" {
		return filepath.Join(at, "atoll-lab"), nil
	}
	binary := filepath.Join(dir, "atoll-lab")
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/atoll-lab")
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the lab: %w\n%s", err, out)
	}
	return binary, nil
}

// reserveFreePort returns an unused port below the range of outgoing connections and of listeners without
// a fixed port, so that it is still free when the member takes it. Other tests do not get it
// either, until held is closed.
func reserveFreePort() (port int, held io.Closer, err error) {
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
