package charts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/tools/images"
)

// installation is a lab of two clusters that run containers: one for the hub of the chart,
// one for its agent.
type installation struct {
	t                     *testing.T
	bin, dir              string
	hub, member1, member2 string // kubeconfigs
}

// run runs a built program with an input and returns its standard output.
func (i *installation) run(stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(i.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(i.bin, program), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, out, exit.Stderr)
	}
	return string(out), err
}

func (i *installation) mustRun(stdin, program string, args ...string) string {
	i.t.Helper()
	out, err := i.run(stdin, program, args...)
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// runKubectl runs kubectl; arguments are separated by blanks.
func (i *installation) runKubectl(kubeconfig, stdin, args string) string {
	i.t.Helper()
	return i.mustRun(stdin, "atoll-lab", append([]string{"kubectl", "--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
}

// runAtoll runs atoll against the hub.
func (i *installation) runAtoll(args string) string {
	i.t.Helper()
	return i.mustRun("", "atoll", append([]string{"--kubeconfig", i.hub}, strings.Fields(args)...)...)
}

// newInstallation starts the lab, with images of the built programs, the agent's under two
// tags.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, bin: os.Getenv("ATOLL_BIN_DIR"), dir: t.TempDir()}
	if i.bin == "" || testing.Short() {
		t.Skip("ATOLL_BIN_DIR does not say where the built binaries are")
	}
	lab := filepath.Join(i.dir, "lab")
	up := []string{"up", "--dir", lab, "--hubless", "--members", "2", "--real-nodes"}
	for _, p := range images.Programs {
		for _, tag := range []string{"this", "next"} {
			binary, err := os.ReadFile(filepath.Join(i.bin, p.Name))
			if err != nil {
				t.Fatal(err)
			}
			about := images.BuildInfo{Version: tag, Time: time.Unix(1_700_000_000, 0)}
			img, err := images.NewImage(p, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, binary, about)
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(i.dir, tag, p.Name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := images.WriteImageLayout(at, about, []v1.Image{img}); err != nil {
				t.Fatal(err)
			}
			if tag == "this" || p.Name == "atoll" {
				up = append(up, "--image", at)
			}
		}
	}
	if _, err := i.run("", "atoll-lab", up...); err != nil && strings.Contains(err.Error(), "real nodes need") {
		t.Skipf("no container can run here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out, err := exec.Command(filepath.Join(i.bin, "atoll-lab"), "down", "--dir", lab).CombinedOutput()
		if err != nil {
			t.Errorf("end the lab: %v: %s", err, out)
		}
	})
	i.hub = filepath.Join(i.dir, "hub.kubeconfig")
	i.member1, i.member2 = filepath.Join(lab, "member1.kubeconfig"), filepath.Join(lab, "member2.kubeconfig")
	return i
}

// startBalancer forwards connections to a port of the hub Service's present ready pods, and
// returns its port on the machine. Labs have no load balancers.
func (i *installation) startBalancer(service, port string) string {
	i.t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				var server net.Conn
				if wait.PollUntilContextTimeout(i.t.Context(), 100*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
					ip, err := i.readyAddress(service)
					if err == nil {
						server, err = net.DialTimeout("tcp", net.JoinHostPort(ip, port), 5*time.Second)
					}
					return err == nil, nil
				}) != nil {
					return
				}
				defer server.Close()
				go func() { defer client.Close(); _, _ = io.Copy(client, server) }()
				_, _ = io.Copy(server, client)
			}()
		}
	}()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// readyAddress returns the address of one ready pod of a Service of the hub.
func (i *installation) readyAddress(service string) (string, error) {
	out, err := i.run("", "atoll-lab", "kubectl", "--kubeconfig", i.member1, "get", "endpointslices", "-n", "atoll", "-l", "kubernetes.io/service-name="+service,
		"-o", "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}")
	ips := strings.Fields(out)
	if err != nil || len(ips) == 0 {
		return "", fmt.Errorf("no pod is ready for %s: %w", service, err)
	}
	return ips[rand.IntN(len(ips))], nil
}

// installHub installs a hub of the chart in member1, with more values, and waits until it
// serves.
func (i *installation) installHub(address, gateway, more string) {
	i.t.Helper()
	text, err := renderChart(i.t, "atoll-hub", "atoll", fmt.Sprintf("{gatewayAddress: '%s:%s', tlsSANs: ['%s'], persistence: {storageClass: disk}, image: {tag: this}%s}", address, gateway, address, more))
	if err != nil {
		i.t.Fatal(err)
	}
	i.runKubectl(i.member1, text, "apply --server-side -f -")
	i.runKubectl(i.member1, "", "rollout status -n atoll sts/atoll-hub --timeout 90s")
}

const diskManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: atoll}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: disk
  local: {path: "%s"}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}
`

// makeDisk makes a volume for a hub in member1, which has no provisioner.
func (i *installation) makeDisk(name string) {
	i.t.Helper()
	volume := filepath.Join(i.dir, name)
	if err := os.Mkdir(volume, 0o755); err != nil {
		i.t.Fatal(err)
	}
	i.runKubectl(i.member1, fmt.Sprintf(diskManifests, name, volume), "apply -f -")
}

const shopManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {atoll.dev/clusters: two}}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: "lab.atoll.dev/busybox:1"}]
`

// runningInShop returns the names and UIDs of the shop's pods and Deployment in member2.
func (i *installation) runningInShop() string {
	i.t.Helper()
	return i.runKubectl(i.member2, "", "get pods,deploy -n shop -o jsonpath={range.items[*]}{.kind}/{.metadata.uid}/{.status.containerStatuses[0].restartCount}{end}")
}

// TestTheImagesRun: a hub of its chart in one cluster, the agent of `atoll join --print` in
// another, from the images, with the charts' own settings alone. Restarts and another image
// of both do not affect the shop.
func TestTheImagesRun(t *testing.T) {
	i := newInstallation(t)
	i.makeDisk("disk")
	address := i.runKubectl(i.member1, "", "get nodes -o jsonpath={.items[0].status.addresses[0].address}")
	api, gateway := i.startBalancer("atoll-hub", "6443"), i.startBalancer("atoll-hub-gateway", "6444")
	i.installHub(address, gateway, "")
	login := func() { t.Helper(); i.logIn(address, api) }
	login()
	i.isConfined("member1", "/atoll-hub", 512)

	join := func(image string) {
		t.Helper()
		var said struct{ Hub, CAHash, Token string }
		if err := yaml.Unmarshal([]byte(i.runAtoll("token create -o json")), &said); err != nil {
			t.Fatal(err)
		}
		manifest := i.runAtoll("join two --print --image " + image + " --hub " + said.Hub + " --ca-hash " + said.CAHash + " --token " + said.Token)
		i.runKubectl(i.member2, manifest, "apply --server-side -f -")
		i.runKubectl(i.member2, "", "rollout status -n atoll-system deploy/atoll-agent --timeout 60s")
	}
	join("atoll:this")
	waitUntil(t, "the cluster asks to be let in", func(context.Context) error {
		_, err := i.run("", "atoll", "--kubeconfig", i.hub, "accept", "two")
		return err
	})
	i.runKubectl(i.hub, "", "wait --for=condition=Ready cluster/two --timeout 60s")
	i.runKubectl(i.hub, fmt.Sprintf(shopManifests, 1), "apply --server-side -f -")
	i.runKubectl(i.hub, "", "rollout status -n shop deploy/web --timeout 60s")
	i.isConfined("member2", "/atoll", 48)
	i.removesToken()
	before, cluster := i.runningInShop(), i.runKubectl(i.hub, "", "get cluster two -o jsonpath={.status.uid}")

	i.runKubectl(i.member1, "", "delete pod -n atoll atoll-hub-0 --grace-period 0 --force --wait=false")
	i.runKubectl(i.member2, "", "delete pod -n atoll-system -l app.kubernetes.io/name=atoll-agent")
	i.comesBack(cluster, before)

	join("atoll:next")
	i.removesToken()
	i.runKubectl(i.member1, i.runKubectl(i.member1, "", inHub+" keys --data-dir /var/lib/atoll/hub"), "apply -n atoll -f -")
	i.installHub(address, gateway, ", keys: {existingSecret: hub-keys}")
	i.comesBack(cluster, before)
	i.runAtoll("ca rotate")
	login()
	waitUntil(t, "the CAs are rotated", func(context.Context) error {
		_, err := i.run("", "atoll", "--kubeconfig", i.hub, "ca", "finish")
		return err
	})
	i.runKubectl(i.hub, fmt.Sprintf(shopManifests, 2), "apply --server-side -f -")
	waitUntil(t, "there are two", func(context.Context) error {
		if now := i.runningInShop(); strings.Count(now, "Pod/") != 2 {
			return fmt.Errorf("in the cluster run: %s", now)
		}
		return nil
	})
	left := i.runningInShop()
	i.runAtoll("remove two --orphan --timeout 60s")
	if now := i.runningInShop(); now != left {
		t.Errorf("a cluster that left the fleet ran %s, and now %s", left, now)
	}
}

// removesToken waits until the agent, with the rights of its ServiceAccount, has removed the token
// from its Secret, whose other keys stay.
func (i *installation) removesToken() {
	i.t.Helper()
	waitUntil(i.t, "the agent removes its join token", func(context.Context) error {
		out := i.runKubectl(i.member2, "", "get secret atoll-agent-join -n atoll-system -o go-template={{.data.name|base64decode}}:{{with.data.token}}{{.}}{{end}}")
		if out != "two:" {
			return fmt.Errorf("name and token are %q", out)
		}
		return nil
	})
}

// inHub runs a command in the first pod of the hub.
const inHub = "exec -n atoll atoll-hub-0 -- atoll-hub"

// logIn logs in at the hub as its administrator, by the balancer before its API.
func (i *installation) logIn(address, api string) {
	i.t.Helper()
	kubeconfig := i.runKubectl(i.member1, "", inHub+" kubeconfig --data-dir /var/lib/atoll/hub --server https://"+address+":"+api)
	if err := os.WriteFile(i.hub, []byte(kubeconfig), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// comesBack waits until the hub reaches the cluster, whose pods must be unchanged.
func (i *installation) comesBack(cluster, before string) {
	i.t.Helper()
	waitUntil(i.t, "the hub and its cluster are back", func(context.Context) error {
		out, err := i.run("", "atoll-lab", "kubectl", "--kubeconfig", i.hub, "get", "cluster", "two", "-o", "jsonpath={.status.uid}")
		if err == nil && out != cluster {
			err = fmt.Errorf("the Cluster has the UID %q, want %q", out, cluster)
		}
		return err
	})
	i.runKubectl(i.hub, "", "wait --for=condition=Ready cluster/two --timeout 60s")
	i.runKubectl(i.hub, "", "rollout status -n shop deploy/web --timeout 60s")
	if now := i.runningInShop(); now != before {
		i.t.Errorf("in the cluster ran %s, and now %s", before, now)
	}
}

// isConfined checks that the program of a pod in the member runs as an unprivileged user,
// cannot become another one, and uses no more memory than its chart requests, in MiB.
func (i *installation) isConfined(member, program string, request int) {
	i.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		i.t.Fatal(err)
	}
	// The kubelet's mounts in containers name their pod.
	node := strings.TrimPrefix(filepath.Join(i.dir, "lab", member, "node"), os.TempDir())
	found := 0
	for _, file := range all {
		command, _ := os.ReadFile(file) // many of them end in between
		mounts, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "mountinfo"))
		if !strings.HasPrefix(string(command), program+"\x00") || !strings.Contains(string(mounts), node) {
			continue
		}
		found++
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			i.t.Fatal(err)
		}
		for _, want := range []string{`Uid:\s+65532\s`, `CapEff:\s+0+\n`, `CapBnd:\s+0+\n`, `NoNewPrivs:\s+1\n`, `Seccomp:\s+2\n`} {
			if !regexp.MustCompile(want).Match(status) {
				i.t.Errorf("%s runs without %s:\n%s", program, want, status)
			}
		}
		resident := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
		if resident == nil {
			i.t.Fatalf("%s", status)
		}
		kB, err := strconv.Atoi(string(resident[1]))
		if i.t.Logf("%s: %d kB resident", program, kB); err != nil || kB > request<<10 {
			i.t.Errorf("%s has more than the %d MiB that its chart requests: %d kB (%v)", program, request, kB, err)
		}
	}
	if found != 1 {
		i.t.Errorf("%d processes of %s run in the pods", found, program)
	}
}
