package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// These tests need what only a kubelet gives: they run where the lab's nodes are real, in
// a part of their own, and say why where they cannot.

// shellDeployment is a workload that can be asked things, and echoes what comes to its port.
const shellDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shell, namespace: $NS, annotations: {atoll.dev/clusters: member1}}
spec:
  replicas: 1
  selector: {matchLabels: {app: shell}}
  template:
    metadata: {labels: {app: shell}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: shell
        image: lab.atoll.dev/busybox:1
        command: [sh, -c, "echo begun; nc -ll -p 7777 -e cat & i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done"]
        readinessProbe: {tcpSocket: {port: 7777}, periodSeconds: 1}
`

// runsContainers skips the test where nodes are made up, and returns why they are.
func runsContainers(t *testing.T) {
	t.Helper()
	if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "get nodes -l lab.atoll.dev/real=true -o name"); strings.Contains(out, "node/") {
		return
	}
	if err := lab.MissingContainerRequirements(); err != nil {
		t.Skipf("no container can run here: %v", err)
	}
	t.Skipf("the nodes of this lab are made up: run this with %s=containers", partVariable)
}

// aShell runs in member1, placed from the hub, in a namespace of its own. The kubeconfig
// is one by which the hub's admin reaches that member through the hub.
func aShell(t *testing.T) (ns, via string) {
	t.Helper()
	runsContainers(t)
	ns = createNamespace(t, strings.ToLower(t.Name()))
	kubectlAtEnd(t, "hub", "delete namespace "+ns+" --wait=false")
	grantRole(t, "member1", ns, "--clusterrole cluster-admin --group atoll:masters")
	apply(t, ns, shellDeployment)
	mustKubectl(t, "", "rollout status deploy/shell --timeout 60s -n "+ns)
	return ns, proxiedKubeconfig(t, "member1")
}

// inShell returns what a script prints in the container, and how it ended.
func inShell(t *testing.T, via, ns, script string) string {
	t.Helper()
	return binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", via, "exec", "deploy/shell", "-c", "shell", "-n", ns, "--", "sh", "-c", script)
}

// backgroundKubectl runs kubectl until the test ends, or sooner.
type backgroundKubectl struct {
	cmd   *exec.Cmd
	out   string // the file of all that it prints
	ended chan struct{}
}

// runKubectl starts it; a last argument may have blanks, as a script has.
func runKubectl(t *testing.T, kubeconfig, args string, script ...string) *backgroundKubectl {
	t.Helper()
	b := &backgroundKubectl{out: filepath.Join(t.TempDir(), "out"), ended: make(chan struct{})}
	file, err := os.Create(b.out)
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command(builtBinary("atoll-lab"), slices.Concat([]string{"kubectl", "--kubeconfig", kubeconfig}, strings.Fields(args), script)...)
	b.cmd.Stdout, b.cmd.Stderr = file, file
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.ended)
		defer file.Close()
		_ = b.cmd.Wait() // its output is in the file
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill() // it may have ended
		<-b.ended
	})
	return b
}

// waitForOutput waits until kubectl has printed the words.
func (b *backgroundKubectl) waitForOutput(t *testing.T, words string) {
	t.Helper()
	testwait.UntilNil(t, "kubectl prints "+words, func(context.Context) error {
		data, err := os.ReadFile(b.out)
		if err != nil || !bytes.Contains(data, []byte(words)) {
			return fmt.Errorf("it printed %q (%v)", fileTail(b.out), err)
		}
		return nil
	})
}

// endsBadly waits until kubectl has ended, which must not be a success.
func (b *backgroundKubectl) endsBadly(t *testing.T, why string) {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(testwait.HangLimit):
		t.Fatalf("kubectl goes on although %s: %s", why, fileTail(b.out))
	}
	if b.cmd.ProcessState.Success() {
		t.Errorf("kubectl takes it for a success that %s: %s", why, fileTail(b.out))
	}
}

// TestContainersThroughTheHub: people's work with containers, through the hub.
func TestContainersThroughTheHub(t *testing.T) {
	ns, via := aShell(t)
	expectOutput(t, "logs", kubectlAt(t, via, "", "logs deploy/shell -n "+ns), "begun\nline 1\n")
	follow := runKubectl(t, via, "logs -f --tail 1 deploy/shell -n "+ns)
	follow.waitForOutput(t, "line ")

	expectOutput(t, "exec with input", kubectlAt(t, via, "across\n", "exec -i deploy/shell -n "+ns+" -- cat"), "across\n")
	if out := inShell(t, via, ns, "exit 42"); !strings.Contains(out, "exit status 42") {
		t.Errorf("the exit code of what was run is lost:\n%s", out)
	}
	pod := kubectlAt(t, via, "", "get pods -o jsonpath={.items[0].metadata.name} -n "+ns)
	checkDebug(t, via, ns, pod)
	checkCopy(t, via, ns, pod, 20<<20)
	checkPortForward(t, via, ns)
	bySPDY(t, via, ns)

	before := fileTail(follow.out)
	testwait.UntilNil(t, "what is logged comes on", func(context.Context) error {
		if now := fileTail(follow.out); now == before {
			return errors.New("no line since: " + now)
		}
		return nil
	})
}

// checkDebug looks at the container from another one that is added to its pod.
func checkDebug(t *testing.T, via, ns, pod string) {
	t.Helper()
	runKubectl(t, via, "debug "+pod+" -n "+ns+" --image lab.atoll.dev/busybox:1 --target shell -c looks -- ps")
	testwait.UntilNil(t, "a debugging container sees the other's processes", func(context.Context) error {
		if out := kubectlAt(t, via, "", "logs "+pod+" -c looks -n "+ns); !strings.Contains(out, "nc -ll") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// bySPDY does what upgrades connections by the protocol that WebSocket replaces.
func bySPDY(t *testing.T, via, ns string) {
	t.Helper()
	for _, feature := range []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"} {
		t.Setenv(feature, "false")
		defer os.Unsetenv(feature) // which is how it was: the test goes on with WebSockets
	}
	expectOutput(t, "exec by SPDY", kubectlAt(t, via, "across\n", "exec -i deploy/shell -n "+ns+" -- cat"), "across\n")
	runKubectl(t, via, "attach deploy/shell -n "+ns).waitForOutput(t, "line ")
	checkPortForward(t, via, ns)
}

// checkCopy copies that many bytes there and back.
func checkCopy(t *testing.T, via, ns, pod string, size int) {
	t.Helper()
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	content := bytes.Repeat([]byte("atoll copies \x00\xff\n"), size/16)
	if err := os.WriteFile(there, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := kubectlAt(t, via, "", "cp -n "+ns+" "+there+" "+pod+":/tmp/there"); strings.Contains(out, "exit status") {
		t.Fatalf("cp to the container: %s", out)
	}
	// A kubelet closes once it has written all, and resets the connection at the next heartbeat of
	// kubectl, five seconds later. A client that has not read all by then fails, on a plain cluster
	// too. So a slow machine may need several tries, but none may end well with less than all.
	testwait.UntilNil(t, "the file is copied back", func(context.Context) error {
		if out := kubectlAt(t, via, "", "cp -n "+ns+" "+pod+":/tmp/there "+back); strings.Contains(out, "exit status") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back of %d, or others (%v)", len(got), len(content), err)
	}
}

// checkPortForward speaks with the container by TCP, in several connections at once.
func checkPortForward(t *testing.T, via, ns string) {
	t.Helper()
	port := freePort(t)
	runKubectl(t, via, fmt.Sprintf("port-forward deploy/shell %d:7777 -n %s", port, ns)).waitForOutput(t, "Forwarding from 127.0.0.1")
	for i := range 3 {
		conn, err := net.Dial("tcp", loopbackPort(port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		said := fmt.Appendf(nil, "hello %d\n", i)
		if _, err := conn.Write(said); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, len(said))
		if err := conn.SetReadDeadline(time.Now().Add(testwait.HangLimit)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, heard); err != nil || !bytes.Equal(heard, said) {
			t.Errorf("the echo is %q (%v), said was %q", heard, err, said)
		}
	}
}

// TestATerminalThroughTheHub: a shell in a terminal whose size changes, by the proxy, and by what
// the hub shows.
func TestATerminalThroughTheHub(t *testing.T) {
	ns, via := aShell(t)
	checkTerminal(t, via, ns)
	checkTerminal(t, sharedWorld.lab.KubeconfigPath("hub"), ns)
}

func checkTerminal(t *testing.T, via, ns string) {
	t.Helper()
	cmd := exec.Command(builtBinary("atoll-lab"), "kubectl", "--kubeconfig", via, "exec", "-it", "deploy/shell", "-n", ns, "--", "sh")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	seen := make(chan string)
	go func() {
		defer close(seen)
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			if n > 0 {
				seen <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	var all strings.Builder
	// ask types a line repeatedly until the answer appears: the arrival of a size change
	// is not reported.
	ask := func(line, want string) {
		t.Helper()
		deadline := time.After(testwait.HangLimit)
		again := time.NewTicker(500 * time.Millisecond)
		defer again.Stop()
		for !strings.Contains(all.String(), want) {
			select {
			case text, ok := <-seen:
				if !ok {
					t.Fatalf("the shell has ended: %q", all.String())
				}
				all.WriteString(text)
			case <-again.C:
				if _, err := io.WriteString(terminal, line+"\n"); err != nil {
					t.Fatal(err)
				}
			case <-deadline:
				t.Fatalf("%s does not answer %q: %q", line, want, all.String())
			}
		}
	}
	ask("stty size", "33 99")
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 44, Cols: 111}); err != nil {
		t.Fatal(err)
	}
	ask("stty size", "44 111")
	ask("tty", "/dev/pts/")
	if _, err := io.WriteString(terminal, "exit 7\n"); err != nil {
		t.Fatal(err)
	}
	for text := range seen {
		all.WriteString(text)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the shell ended with %v, not with its own exit code: %q", err, all.String())
	}
}

// TestTheAgentIsKilledDuringExec: the client gets an error, by the proxy and on the hub,
// and can continue when the agent is back. The hub keeps nothing of it.
func TestTheAgentIsKilledDuringExec(t *testing.T) {
	ns, via := aShell(t)
	back := func(ctx context.Context) {
		if err := sharedWorld.lab.StartComponent(ctx, "agent/member1"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { back(context.WithoutCancel(t.Context())) })
	// A leak grows with each round. A new hub adds goroutines by itself, once: of its
	// controllers, and of the storage of kinds at their first request.
	const rounds = 3
	for round := range rounds {
		left := killDuringExec(t, ns, via)
		back(t.Context())
		testwait.UntilNil(t, "the container can be reached again", func(context.Context) error {
			if out := inShell(t, via, ns, "echo again"); out != "again\n" {
				return errors.New("the output is: " + out)
			}
			return nil
		})
		if left == "" {
			return
		}
		t.Logf("round %d of %d: %s", round+1, rounds, left)
	}
	t.Errorf("the hub keeps something of what ended, each of %d times", rounds)
}

// killDuringExec kills the agent of member1 under forty logs and some commands. It
// describes what the hub still keeps of them after a while; empty for nothing.
func killDuringExec(t *testing.T, ns, via string) (left string) {
	t.Helper()
	hub := sharedWorld.lab.KubeconfigPath("hub")
	before := hubGoroutines(t)
	follow := followLogs(t, ns, 40)
	// Connections of earlier tests may have ended in the meantime: without the 40 there
	// are 40 less.
	before = min(before, hubGoroutines(t)-40)
	var looking []*backgroundKubectl
	for _, kubeconfig := range []string{via, hub} {
		exec := runKubectl(t, kubeconfig, "exec deploy/shell -n "+ns+" -- sh -c", "echo begun; sleep 600")
		exec.waitForOutput(t, "begun")
		logs := runKubectl(t, kubeconfig, "logs -f --tail 1 deploy/shell -n "+ns)
		logs.waitForOutput(t, "line ")
		looking = append(looking, exec, logs)
	}
	if err := sharedWorld.lab.KillComponent(t.Context(), "agent/member1"); err != nil {
		t.Fatal(err)
	}
	for _, one := range looking {
		one.endsBadly(t, "its agent was killed")
	}
	for range 40 {
		select {
		case err := <-follow:
			if err == nil {
				t.Fatal("a log ends as if that were all, although its cluster has gone")
			}
		case <-time.After(testwait.HangLimit):
			t.Fatal("a log goes on although its cluster has gone")
		}
	}
	expectOutput(t, "the cluster without its agent", kubectlAt(t, via, "", "get pods -n "+ns), "cannot be reached: its agent is not connected")
	for until := time.Now().Add(testwait.HangLimit / 2); ; <-time.After(time.Second) {
		after := hubGoroutines(t)
		if after <= before+20 {
			return ""
		}
		left = fmt.Sprintf("it has %d goroutines, and had %d", after, before)
		if time.Now().After(until) {
			return left
		}
	}
}

// followLogs follows the logs of the shell on the hub that many times, and returns how each
// ends.
func followLogs(t *testing.T, ns string, times int) <-chan error {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "get pods -o jsonpath={.items[0].metadata.name} -n "+ns)
	ended := make(chan error, times)
	for range times {
		log, err := kube.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](1)}).Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer log.Close()
			_, err := io.Copy(io.Discard, log)
			ended <- err
		}()
	}
	return ended
}

var goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// hubGoroutines counts the goroutines of the hub.
func hubGoroutines(t *testing.T) (n int) {
	t.Helper()
	m := goroutinesLine.FindStringSubmatch(mustKubectl(t, "", "get --raw /metrics"))
	if m == nil {
		t.Fatal("the hub does not report its number of goroutines")
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTheLinkIsCutDuringACopy: an incomplete copy is no success.
func TestTheLinkIsCutDuringACopy(t *testing.T) {
	ns, via := aShell(t)
	pod := kubectlAt(t, via, "", "get pods -o jsonpath={.items[0].metadata.name} -n "+ns)
	// It never ends, so that it is under way when the link goes.
	copying := runKubectl(t, via, "exec deploy/shell -n "+ns+" -- sh -c",
		"echo begun; while dd if=/dev/zero bs=64k count=1 2>/dev/null; do sleep 0.01; done")
	copying.waitForOutput(t, "begun")
	t.Cleanup(func() { _ = sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member1") })
	if err := sharedWorld.lab.CutLink(t.Context(), "member1"); err != nil {
		t.Fatal(err)
	}
	copying.endsBadly(t, "the link was cut")
	if err := sharedWorld.lab.HealLink(t.Context(), "member1"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the member is back", func(context.Context) error {
		if out := inShell(t, via, ns, "echo again"); out != "again\n" {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	checkCopy(t, via, ns, pod, 20<<20)
}

// TestTheHubIsKilledDuringLogsAndWatches: they end, and the same kubeconfig serves when it is back.
func TestTheHubIsKilledDuringLogsAndWatches(t *testing.T) {
	ns, via := aShell(t)
	follow := runKubectl(t, via, "logs -f --tail 1 deploy/shell -n "+ns)
	follow.waitForOutput(t, "line ")
	under := map[string]*backgroundKubectl{
		"logs": follow, "a watch of a member": runKubectl(t, via, "get pods -w -o name -n "+ns), "a watch of all": runKubectl(t, sharedWorld.lab.KubeconfigPath("hub"), "get pods -w -o name -n "+ns),
	}
	for what, b := range under {
		if what != "logs" {
			b.waitForOutput(t, "pod/shell-")
		}
	}
	t.Cleanup(func() { _ = sharedWorld.lab.StartComponent(context.WithoutCancel(t.Context()), "hub") })
	if err := sharedWorld.lab.KillComponent(t.Context(), "hub"); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(t.Context(), testwait.HangLimit)
	defer cancel()
	for what, b := range under {
		select {
		case <-b.ended:
		case <-late.Done():
			t.Errorf("kubectl goes on without the hub, with %s: %s", what, fileTail(b.out))
		}
	}
	if err := sharedWorld.lab.StartComponent(t.Context(), "hub"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "logs are there again", func(context.Context) error {
		if out := kubectlAt(t, via, "", "logs --tail 1 deploy/shell -c shell -n "+ns); !strings.HasPrefix(out, "line ") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}
