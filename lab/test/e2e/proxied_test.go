package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// proxiedHub is a hub whose address is none of the loopback device's, which no proxy is for, and
// members whose agents dial it through proxies.
type proxiedHub struct {
	hub    *sharedHub
	lab    *lab.Lab
	invite tokenInvitation
}

// proxyProgram is a product that runs.
type proxyProgram struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	args []string
	dir  string
	port string
	said *bytes.Buffer
}

// TestMembersBehindAnHTTPProxy: agents join through the installed products, configured as
// in docs/reach.md, by name and password. They receive their content, and people reach the
// member and its containers. After a kill and restart of the proxy all of this works again.
// Hosts in NO_PROXY are dialled directly.
func TestMembersBehindAnHTTPProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hub")
	}
	if !hasGlobalAddress(t) {
		t.Skip("not tried: this machine has no address that a proxy would be used for")
	}
	p := newProxied(t, "squid", "tinyproxy")
	for i, product := range []string{"squid", "tinyproxy"} {
		t.Run(product, func(t *testing.T) {
			run, err := exec.LookPath(product)
			if err != nil {
				t.Skipf("not tried: %v", err)
			}
			p.checkBehind(t, startProxy(t, p, product, run), "member"+strconv.Itoa(i+1))
		})
	}
}

// hasGlobalAddress reports whether other machines reach this one by IPv4.
func hasGlobalAddress(t *testing.T) bool {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil
	})
}

func newProxied(t *testing.T, members ...string) *proxiedHub {
	t.Helper()
	p := &proxiedHub{}
	dir := t.TempDir()
	up := make(chan error, 1)
	var coming sync.WaitGroup
	coming.Go(func() {
		var err error
		p.lab, err = lab.BringUp(t.Context(), lab.Options{EndsWithStarter: true, Dir: filepath.Join(dir, "lab"), Members: len(members), Nodes: 1, Hubless: true, RealNodes: lab.MissingContainerRequirements() == nil})
		up <- err
	})
	t.Cleanup(func() {
		coming.Wait() // also if the test has failed in between
		if l, err := lab.OpenExisting(filepath.Join(dir, "lab")); err == nil {
			if err := l.StopAll(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	p.hub = &sharedHub{dir: filepath.Join(dir, "hub")}
	p.hub.kubeconfig = filepath.Join(p.hub.dir, "hub.kubeconfig")
	p.hub.testProgram = runProgram(t, filepath.Join(dir, "hub.log"), "atoll-hub", "--data-dir", p.hub.dir, "--bind-address", "0.0.0.0",
		"--port", strconv.Itoa(freePort(t)), "--gateway-port", strconv.Itoa(freePort(t)))
	p.hub.awaitReady(t)
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "a token", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, builtBinary("atoll"), "--kubeconfig", p.hub.kubeconfig, "token", "create", "--auto-accept", "--uses", strconv.Itoa(len(members)), "-o", "json").Output()
		if err != nil || json.Unmarshal(out, &p.invite) != nil {
			return errors.New("the output is: " + string(out))
		}
		return nil
	})
	if host, _, err := net.SplitHostPort(p.invite.Hub); err != nil || net.ParseIP(host).IsLoopback() {
		t.Fatalf("agents dial a hub that listens on all addresses at %q (%v)", p.invite.Hub, err)
	}
	return p
}

// startProxy configured as documented.
func startProxy(t *testing.T, p *proxiedHub, product, path string) *proxyProgram {
	t.Helper()
	host, gateway, err := net.SplitHostPort(p.invite.Hub)
	if err != nil {
		t.Fatal(err)
	}
	// Not below the test's own directory, which its user alone may read: squid does not run as root.
	dir, err := os.MkdirTemp("", "atoll-proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	x := &proxyProgram{t: t, name: product, dir: dir, port: strconv.Itoa(freePort(t)), said: &bytes.Buffer{}}
	conf := strings.NewReplacer("3128", x.port, "hub.example", host, "6444", gateway, "/etc/squid/", dir+"/", "10.0.0.0/8", "127.0.0.0/8").Replace(documentedConfig(t, product))
	files := map[string]string{"conf": conf}
	switch product {
	case "squid":
		conf += "pid_filename none\naccess_log none\ncache_log /dev/null\ncache deny all\npinger_enable off\ncoredump_dir " + dir + "\n"
		files = map[string]string{"conf": conf, "agents": "edge:$apr1$atollagt$0uREv3HkWVjzohSUxbQSv/\n"}
		x.args = []string{path, "-N", "-f", "conf"}
	case "tinyproxy":
		x.args = []string{path, "-d", "-c", "conf"}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	x.start()
	t.Cleanup(x.killProxy)
	return x
}

func (x *proxyProgram) start() {
	x.t.Helper()
	x.cmd = exec.Command(x.args[0], x.args[1:]...)
	x.cmd.Dir, x.cmd.Stdout, x.cmd.Stderr = x.dir, x.said, x.said
	if os.Geteuid() == 0 {
		x.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	endWithTest(x.cmd)
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	testwait.UntilNil(x.t, x.name+" listens", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", x.port))
		if err != nil {
			return err
		}
		conn.Close()
		return nil
	})
}

func (x *proxyProgram) killProxy() {
	_ = x.cmd.Process.Kill() // it may have ended
	_ = x.cmd.Wait()         // as it was killed
	if x.t.Failed() {
		x.t.Logf("%s says:\n%s", x.name, x.said)
	}
}

// proxyURL returns the URL of the proxy, with a user and its password.
func (x *proxyProgram) proxyURL(user *url.Userinfo) string {
	return (&url.URL{Scheme: "http", User: user, Host: net.JoinHostPort("127.0.0.1", x.port)}).String()
}

// startAgent starts the agent of the member, with the proxies in its environment.
func (p *proxiedHub) startAgent(t *testing.T, member, url, noProxy string) (log func() string, stop func()) {
	t.Helper()
	for name, value := range map[string]string{"HTTPS_PROXY": url, "NO_PROXY": noProxy} {
		t.Setenv(name, value)
		defer os.Unsetenv(name) // nothing else is to use it; how it was comes back with the test's end
	}
	return start(t, "atoll", "agent", "--name", member, "--hub", p.invite.Hub, "--ca-hash", p.invite.CAHash, "--token", p.invite.Token, "--kubeconfig", p.lab.KubeconfigPath(member))
}

func (p *proxiedHub) checkBehind(t *testing.T, x *proxyProgram, member string) {
	t.Helper()
	log, stop := p.startAgent(t, member, x.proxyURL(nil), "")
	testwait.UntilNil(t, "without a password it says what is wrong", logSays(log, "through the proxy http://127.0.0.1:"+x.port, "give it a name and a password in the URL"))
	stop()
	log, stop = p.startAgent(t, member, x.proxyURL(url.UserPassword("edge", "secret")), "")
	testwait.UntilNil(t, "it joins", logSays(log, "joined"))
	// The taint marks an unreviewed cluster.
	if out := kubectlAt(t, p.hub.kubeconfig, "", `patch cluster `+member+` --type merge -p {"spec":{"taints":null}}`); !strings.Contains(out, "patched") {
		t.Fatal(out)
	}
	host, _, _ := net.SplitHostPort(p.invite.Hub)
	testwait.UntilNil(t, "its profile says where others reach the hub, too", func(context.Context) error {
		if out := kubectlAt(t, p.hub.kubeconfig, "", "get clusterprofile -n atoll-inventory "+member+" -o jsonpath={.status.accessProviders[0].cluster.server}"); !strings.HasPrefix(out, "https://"+host+":") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if text := log(); strings.Contains(text, "secret@") {
		t.Errorf("the agent logs the password:\n%s", text)
	}
	ns := "proxied-" + member
	p.hub.apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	p.hub.apply(t, ns, strings.ReplaceAll(shellDeployment, "clusters: member1", "clusters: "+member))
	direct := p.lab.KubeconfigPath(member)
	if out := kubectlAt(t, direct, "", "create clusterrolebinding reach --clusterrole cluster-admin --group atoll:masters"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	via := filepath.Join(t.TempDir(), "via")
	if err := os.WriteFile(via, runCommand(t, "atoll", "--kubeconfig", p.hub.kubeconfig, "kubeconfig", "--cluster", member), 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "what is placed runs", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get deploy shell -n "+ns+" -o jsonpath={.status.readyReplicas}"); out != "1" {
			return errors.New("ready: " + out)
		}
		return nil
	})
	if lab.MissingContainerRequirements() == nil {
		expectOutput(t, "logs", kubectlAt(t, via, "", "logs deploy/shell -n "+ns), "begun\nline 1\n")
		expectOutput(t, "exec", kubectlAt(t, via, "across\n", "exec -i deploy/shell -n "+ns+" -- cat"), "across\n")
	}

	x.killProxy()
	testwait.UntilNil(t, "the answer is that it is disconnected", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get namespaces --request-timeout 30s"); !strings.Contains(out, "its agent is not connected") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	x.start()
	p.isBack(t, via, member, "red")

	stop()
	x.killProxy()
	_, stop = p.startAgent(t, member, x.proxyURL(nil), "elsewhere.example,"+host)
	defer stop()
	p.isBack(t, via, member, "green")
}

// isBack waits until the member is reached, and gets what is edited.
func (p *proxiedHub) isBack(t *testing.T, via, member, value string) {
	t.Helper()
	ns := "proxied-" + member
	testwait.UntilNil(t, "it is reached again", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get namespaces"); !strings.Contains(out, "kube-system") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	p.hub.apply(t, ns, "{apiVersion: v1, kind: ConfigMap, metadata: {name: colour, namespace: $NS, annotations: {atoll.dev/clusters: "+member+"}}, data: {colour: "+value+"}}")
	testwait.UntilNil(t, "an edit arrives", func(context.Context) error {
		if out := kubectlAt(t, p.lab.KubeconfigPath(member), "", "get configmap -n "+ns+" colour -o jsonpath={.data.colour}"); out != value {
			return errors.New("it has: " + out)
		}
		return nil
	})
}
