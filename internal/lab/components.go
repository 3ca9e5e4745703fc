package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/lab/process"
	"atoll.dev/atoll/internal/lab/realnode"
	"atoll.dev/atoll/internal/lab/relay"
)

// This file is the only place that knows command lines: what a component is
// started with, and how one sees that it works.

// Names in a member's directory: what "atoll-lab member" promises to whoever
// started it.
const (
	// MemberKubeconfig gives cluster admin rights.
	MemberKubeconfig = "kubeconfig"
	// MemberReady exists while the cluster works and holds the id of the process
	// that says so; a start removes it first.
	MemberReady = "ready"
)

// Annotations of pods that bend what the made-up nodes of a member do.
const (
	// ReadyAfterAnnotation delays readiness; a Go duration, default 300ms.
	ReadyAfterAnnotation = "lab.atoll.dev/ready-after"
	// CompleteAfterAnnotation delays the success of a Job's pod, counted from
	// the start of its containers; a Go duration, default 2s.
	CompleteAfterAnnotation = "lab.atoll.dev/complete-after"
)

const (
	hubName     = "hub"
	relayName   = "relay"
	agentPrefix = "agent/"
	nodePrefix  = "node/"
	// nodeName of the one real node of a member.
	nodeName = "node-1"

	// startTimeout is generous: a machine of two cores that starts ten clusters
	// at once needs more than a minute for the last one.
	startTimeout = 3 * time.Minute
)

// component is one process of the lab.
type component struct {
	name    string
	process process.Spec
	// port is where it serves, 0 for one that only dials.
	port int
	// ready returns nil when the component works, else what is missing.
	ready   func(context.Context) error
	timeout time.Duration
	// publish leads from where people look for a kubeconfig to it, since a hub writes its own
	// anew: from, to.
	publish [2]string
	// graceful ones are asked to end before they are killed.
	graceful bool
}

// finish does what remains once the component is ready for the first time.
func (c component) finish() error {
	if c.publish[0] == "" {
		return nil
	}
	at := c.publish[1] + ".tmp"
	err := os.Remove(at)
	if err == nil || os.IsNotExist(err) {
		var from string
		if from, err = filepath.Rel(filepath.Dir(at), c.publish[0]); err == nil {
			err = os.Symlink(from, at)
		}
	}
	if err == nil {
		err = os.Rename(at, c.publish[1])
	}
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", c.name, err)
	}
	return nil
}

// component makes a component's description; logs and identities are kept in
// DIR/logs and DIR/run under the component's name, with / as -.
func (r *record) component(name string, command ...string) component {
	file := strings.ReplaceAll(name, "/", "-")
	return component{
		name:    name,
		timeout: startTimeout,
		process: process.Spec{
			Name:     name,
			Owner:    r.dir,
			Command:  command,
			Log:      filepath.Join(r.dir, "logs", file+".log"),
			Identity: filepath.Join(r.dir, "run", file+".json"),
		},
	}
}

// components lists all, in the order of dependence.
func (r *record) components() []component {
	var all []component
	if r.EtcdPort > 0 {
		all = append(all, r.etcd())
	}
	for _, name := range r.hubNames() {
		all = append(all, r.hubNamed(name))
	}
	if !r.Hubless {
		all = append(all, r.relay())
	}
	for i := range r.Members {
		all = append(all, r.memberAndNode(&r.Members[i])...)
	}
	if !r.Hubless {
		for i := range r.Members {
			all = append(all, r.agent(&r.Members[i]))
		}
	}
	return all
}

// find returns the component of that name; the error lists the names.
func (r *record) find(name string) (component, error) {
	var names []string
	for _, c := range r.components() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return component{}, fmt.Errorf("this lab has no component %q; it has %s", name, strings.Join(names, ", "))
}

func (r *record) relay() component {
	command := []string{r.Binaries.Lab, "relay", "--dir", r.dir}
	for _, m := range r.Members {
		for i, port := range m.links() {
			command = append(command, "--link", fmt.Sprintf("%s=%s,%s", linkName(m.Name, i), loopback(port), loopback(r.gateways()[i])))
		}
	}
	c := r.component(relayName, command...)
	c.ready = func(ctx context.Context) error {
		_, err := relay.Client{Dir: r.dir}.Status(ctx)
		return err
	}
	return c
}

func (r *record) member(m *memberRecord) component {
	dir := filepath.Join(r.dir, m.Name)
	command := []string{
		r.Binaries.Lab, "member",
		"--dir", dir,
		"--name", m.Name,
		"--port", strconv.Itoa(m.Port),
		"--nodes", strconv.Itoa(r.Nodes),
	}
	if m.Region != "" {
		command = append(command, "--region", m.Region)
	}
	if r.RealNodes {
		command = append(command, "--services", realnode.Services(m.Port).String())
	}
	c := r.component(m.Name, command...)
	kubeconfig := filepath.Join(dir, MemberKubeconfig)
	c.port = m.Port
	c.ready = func(ctx context.Context) error {
		// The file may be that of a process before; a starting one removes it.
		_, pid := c.process.State()
		data, err := os.ReadFile(filepath.Join(dir, MemberReady))
		if err != nil || string(data) != strconv.Itoa(pid) {
			return errors.New("it does not say that it is ready")
		}
		return apiReady(ctx, kubeconfig)
	}
	c.publish = [2]string{kubeconfig, r.kubeconfig(m.Name)}
	return c
}

// memberAndNode are a member and what it runs containers on, where that is real.
func (r *record) memberAndNode(m *memberRecord) []component {
	if !r.RealNodes {
		return []component{r.member(m)}
	}
	return []component{r.member(m), r.node(m)}
}

// node is the member's real node. It ends with its process, whatever ends that.
func (r *record) node(m *memberRecord) component {
	command := []string{
		r.Binaries.Lab, "node",
		"--dir", filepath.Join(r.dir, m.Name, "node"),
		"--name", nodeName,
		"--kubeconfig", r.kubeconfig(m.Name),
		"--ca", filepath.Join(r.dir, m.Name, "pki", "ca.crt"),
		"--port", strconv.Itoa(m.Port),
		"--programs", r.Binaries.nodePrograms(),
		"--region", m.Region,
	}
	for _, image := range r.Images {
		command = append(command, "--image", image)
	}
	c := r.component(nodePrefix+m.Name, command...)
	c.ready = func(ctx context.Context) error { return nodeReady(ctx, r.kubeconfig(m.Name), m.Port) }
	return c
}

func (r *record) agent(m *memberRecord) component {
	command := []string{
		r.Binaries.Atoll, "agent",
		"--name", m.Name,
		"--token", r.Invitation.Token,
		"--ca-hash", r.Invitation.CAHash,
		"--kubeconfig", r.kubeconfig(m.Name),
	}
	for _, port := range m.links() {
		command = append(command, "--hub", loopback(port))
	}
	c := r.component(agentPrefix+m.Name, append(command, r.AgentArgs...)...)
	c.ready = func(ctx context.Context) error { return r.agentReady(ctx, m) }
	c.graceful = true
	return c
}

// nodeReady returns nil when a member's real node takes pods. What the API says of it may
// be of a process before, so its kubelet has to listen as well.
func nodeReady(ctx context.Context, kubeconfig string, port int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", realnode.Kubelet(port))
	if err != nil {
		return fmt.Errorf("its kubelet does not listen: %w", err)
	}
	conn.Close()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("no kubeconfig yet: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("it has not joined its cluster: %w", err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		} else if c.Type == corev1.NodeReady {
			return fmt.Errorf("it is not ready: %s", c.Message)
		}
	}
	return errors.New("it does not say whether it is ready")
}

func (r *record) kubeconfig(name string) string {
	return filepath.Join(r.dir, name+".kubeconfig")
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// apiReady asks the API server that a kubeconfig leads to for /readyz.
func apiReady(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("no kubeconfig yet: %w", err)
	}
	config.Timeout = 5 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// agentReady says whether an agent that was just started did its work. While
// all hubs, its member or the link are down it cannot, and running is enough.
func (r *record) agentReady(ctx context.Context, m *memberRecord) error {
	if state, _ := r.member(m).process.State(); state != process.Running {
		return nil
	}
	hub, ok := r.runningHub()
	if !ok {
		return nil
	}
	links, err := relay.Client{Dir: r.dir}.Status(ctx)
	if err != nil || links[m.Name].Mode != relay.Up {
		return nil
	}
	// The hub may take a moment to see that the agent before this one is gone,
	// so its word alone is not enough.
	connections := 0
	for i := range m.links() {
		connections += links[linkName(m.Name, i)].Connections
	}
	if connections == 0 {
		return errors.New("it has no connection to the hub")
	}
	return clusterReady(ctx, r.kubeconfig(hub), m.Name)
}

// clusterReady returns nil when the hub shows the cluster as Ready.
func clusterReady(ctx context.Context, hubKubeconfig, name string) error {
	cluster, err := clusterOf(ctx, hubKubeconfig, name)
	if err != nil {
		return err
	}
	return conditionTrue(cluster, "Ready")
}

// clusterOf that name, as the hub has it.
func clusterOf(ctx context.Context, hubKubeconfig, name string) (*unstructured.Unstructured, error) {
	clusters, err := clusterClient(hubKubeconfig)
	if err != nil {
		return nil, err
	}
	cluster, err := clusters.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the hub does not know it: %w", err)
	}
	return cluster, nil
}
