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

	"atoll.dev/atoll/lab/process"
	"atoll.dev/atoll/lab/realnode"
	"atoll.dev/atoll/lab/relay"
)

// This file alone contains command lines: how a component is started, and how its state is
// checked.

// Names in a member's directory, for the starter of "atoll-lab member".
const (
	// MemberKubeconfig gives cluster admin rights.
	MemberKubeconfig = "kubeconfig"
	// MemberReady exists while the cluster works and holds the id of its process; a start
	// removes it first.
	MemberReady = "ready"
)

// Annotations of pods that change the behaviour of fake nodes.
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
	// nodeName is the name of the one real node of a member.
	nodeName = "node-1"

	// startTimeout is generous: the last of ten clusters needs more than a minute to start
	// on two cores.
	startTimeout = 3 * time.Minute
)

// component is one process of the lab.
type component struct {
	name    string
	process process.ProcessSpec
	// port is the port that it serves; 0 if it only dials.
	port int
	// ready returns nil when the component works, else the missing part.
	ready   func(context.Context) error
	timeout time.Duration
	// publish is a pair of paths, from and to: a link at from leads to the kubeconfig that
	// a hub writes.
	publish [2]string
	// graceful components receive SIGTERM before they are killed.
	graceful bool
}

// linkPublishedFile finishes the first start of the component after it is ready.
func (c component) linkPublishedFile() error {
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

// newComponent describes a component. Its log and identity are in DIR/logs and DIR/run
// under the component's name, with / as -.
func (r *labRecord) newComponent(name string, command ...string) component {
	file := strings.ReplaceAll(name, "/", "-")
	return component{
		name:    name,
		timeout: startTimeout,
		process: process.ProcessSpec{
			Name:     name,
			Owner:    r.dir,
			Command:  command,
			Log:      filepath.Join(r.dir, "logs", file+".log"),
			Identity: filepath.Join(r.dir, "run", file+".json"),
		},
	}
}

// allComponents lists all components, in the order of dependence.
func (r *labRecord) allComponents() []component {
	var all []component
	if r.EtcdPort > 0 {
		all = append(all, r.etcdComponent())
	}
	for _, name := range r.hubNames() {
		all = append(all, r.hubNamed(name))
	}
	if !r.Hubless {
		all = append(all, r.relayComponent())
	}
	for i := range r.Members {
		all = append(all, r.memberAndNode(&r.Members[i])...)
	}
	if !r.Hubless {
		for i := range r.Members {
			all = append(all, r.agentComponent(&r.Members[i]))
		}
	}
	return all
}

// find returns the component of that name; the error lists the names.
func (r *labRecord) find(name string) (component, error) {
	var names []string
	for _, c := range r.allComponents() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return component{}, fmt.Errorf("this lab has no component %q; it has %s", name, strings.Join(names, ", "))
}

func (r *labRecord) relayComponent() component {
	command := []string{r.Binaries.Lab, "relay", "--dir", r.dir}
	for _, m := range r.Members {
		for i, port := range m.linkPorts() {
			command = append(command, "--link", fmt.Sprintf("%s=%s,%s", linkName(m.Name, i), loopbackAddress(port), loopbackAddress(r.gatewayPorts()[i])))
		}
	}
	c := r.newComponent(relayName, command...)
	c.ready = func(ctx context.Context) error {
		_, err := relay.LinkClient{Dir: r.dir}.ReadStatus(ctx)
		return err
	}
	return c
}

func (r *labRecord) memberComponent(m *memberRecord) component {
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
	if m.RuntimeConfig != "" {
		command = append(command, "--runtime-config", m.RuntimeConfig)
	}
	if r.RealNodes {
		command = append(command, "--services", realnode.MemberServiceRange(m.Port).String())
	}
	c := r.newComponent(m.Name, command...)
	kubeconfig := filepath.Join(dir, MemberKubeconfig)
	c.port = m.Port
	c.ready = func(ctx context.Context) error {
		// The file may come from an earlier process; a start removes it.
		_, pid := c.process.CurrentState()
		data, err := os.ReadFile(filepath.Join(dir, MemberReady))
		if err != nil || string(data) != strconv.Itoa(pid) {
			return errors.New("it is not ready yet")
		}
		return checkAPIReady(ctx, kubeconfig)
	}
	c.publish = [2]string{kubeconfig, r.kubeconfigPath(m.Name)}
	return c
}

// memberAndNode returns a member and its real node, if it has one.
func (r *labRecord) memberAndNode(m *memberRecord) []component {
	if !r.RealNodes {
		return []component{r.memberComponent(m)}
	}
	return []component{r.memberComponent(m), r.nodeComponent(m)}
}

// nodeComponent describes the member's real node. The node ends with its process in every
// case.
func (r *labRecord) nodeComponent(m *memberRecord) component {
	command := []string{
		r.Binaries.Lab, "node",
		"--dir", filepath.Join(r.dir, m.Name, "node"),
		"--name", nodeName,
		"--kubeconfig", r.kubeconfigPath(m.Name),
		"--ca", filepath.Join(r.dir, m.Name, "pki", "ca.crt"),
		"--port", strconv.Itoa(m.Port),
		"--programs", r.Binaries.nodeProgramDir(),
		"--region", m.Region,
	}
	for _, image := range r.Images {
		command = append(command, "--image", image)
	}
	c := r.newComponent(nodePrefix+m.Name, command...)
	c.ready = func(ctx context.Context) error { return checkNodeReady(ctx, r.kubeconfigPath(m.Name), m.Port) }
	return c
}

// tokenFile returns the file with the join token of the agents.
func (r *labRecord) tokenFile() string { return filepath.Join(r.dir, "join-token") }

func (r *labRecord) agentComponent(m *memberRecord) component {
	command := []string{
		r.Binaries.Atoll, "agent",
		"--name", m.Name,
		"--token-file", r.tokenFile(),
		"--ca-hash", r.Invitation.CAHash,
		"--kubeconfig", r.kubeconfigPath(m.Name),
	}
	for _, port := range m.linkPorts() {
		command = append(command, "--hub", loopbackAddress(port))
	}
	c := r.newComponent(agentPrefix+m.Name, append(command, r.AgentArgs...)...)
	c.ready = func(ctx context.Context) error { return r.checkAgentReady(ctx, m) }
	c.graceful = true
	return c
}

// checkNodeReady returns nil when a member's real node takes pods. The API's answer may come
// from an earlier process, so the kubelet must listen as well.
func checkNodeReady(ctx context.Context, kubeconfig string, port int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", realnode.KubeletAddress(port))
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
	return errors.New("it has no condition Ready yet")
}

func (r *labRecord) kubeconfigPath(name string) string {
	return filepath.Join(r.dir, name+".kubeconfig")
}

func loopbackAddress(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// checkAPIReady checks /readyz of the API server in a kubeconfig.
func checkAPIReady(ctx context.Context, kubeconfig string) error {
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

// checkAgentReady checks that a started agent works. While all hubs, its member or the link are
// down, a running process is enough.
func (r *labRecord) checkAgentReady(ctx context.Context, m *memberRecord) error {
	if state, _ := r.memberComponent(m).process.CurrentState(); state != process.Running {
		return nil
	}
	hub, ok := r.runningHub()
	if !ok {
		return nil
	}
	links, err := relay.LinkClient{Dir: r.dir}.ReadStatus(ctx)
	if err != nil || links[m.Name].Mode != relay.Up {
		return nil
	}
	// The hub may show the connection of the previous agent for a moment, so its answer
	// alone is not enough.
	connections := 0
	for i := range m.linkPorts() {
		connections += links[linkName(m.Name, i)].Connections
	}
	if connections == 0 {
		return errors.New("it has no connection to the hub")
	}
	return checkClusterReady(ctx, r.kubeconfigPath(hub), m.Name)
}

// checkClusterReady returns nil when the hub shows the cluster as Ready.
func checkClusterReady(ctx context.Context, hubKubeconfig, name string) error {
	cluster, err := getHubCluster(ctx, hubKubeconfig, name)
	if err != nil {
		return err
	}
	return checkConditionTrue(cluster, "Ready")
}

// getHubCluster returns the hub's Cluster of that name.
func getHubCluster(ctx context.Context, hubKubeconfig, name string) (*unstructured.Unstructured, error) {
	clusters, err := newHubClustersClient(hubKubeconfig)
	if err != nil {
		return nil, err
	}
	cluster, err := clusters.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the hub has no such Cluster: %w", err)
	}
	return cluster, nil
}
