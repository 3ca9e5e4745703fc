package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"atoll.dev/atoll/lab"
)

// MemberOptions describe the cluster to run.
type MemberOptions struct {
	// Dir holds all files of the cluster; created if missing.
	Dir string
	// Name is the cluster's name in the kubeconfig's context.
	Name string
	// Port is the API server's loopback port; it must be free.
	Port int
	// Nodes is the number of fake nodes to create, node-1 to node-N. Existing nodes are
	// kept, also those above N. With 0 there are none, and nothing simulates a kubelet: a
	// node that joins by itself (package realnode) is real.
	Nodes int
	// Region labels the nodes; their zones are Region + a, b, c in turn.
	Region string
	// NodeCPU and NodeMemory are each node's capacity as quantities, NodePods is its
	// number of pods.
	NodeCPU, NodeMemory string
	NodePods            int
	// Services is the range of Services' addresses; the API server has the first one. The
	// zero value means 10.96.0.0/16.
	Services netip.Prefix
	// AuditLog is the absolute path of the API server's audit log; "" means none.
	AuditLog string
	// RuntimeConfig is what the API server gets as --runtime-config, such as "autoscaling/v2=false"; "" means nothing.
	RuntimeConfig string
}

// validate reports the first option that cannot work, by its flag's name.
func (o MemberOptions) validate() error {
	if o.Dir == "" {
		return errors.New("--dir must name the member's directory")
	}
	if o.Port < 1 || o.Port > 65535 {
		return fmt.Errorf("--port %d is not a port number", o.Port)
	}
	if o.Nodes < 0 || o.NodePods < 0 {
		return errors.New("--nodes and --node-pods must not be negative")
	}
	if o.AuditLog != "" && !filepath.IsAbs(o.AuditLog) {
		return fmt.Errorf("--audit-log %s is not an absolute path", o.AuditLog)
	}
	for flag, value := range map[string]string{"--node-cpu": o.NodeCPU, "--node-memory": o.NodeMemory} {
		if _, err := resource.ParseQuantity(value); err != nil {
			return fmt.Errorf("%s %q is not a quantity such as 8 or 32Gi", flag, value)
		}
	}
	return nil
}

// RunMember runs the cluster until ctx ends (then it returns nil) or a component
// fails. It blocks, and may be called once per process.
func RunMember(ctx context.Context, o MemberOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// Several members share a machine: half the garbage for a little CPU.
		debug.SetGCPercent(50)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("member directory: %w", err)
	}
	o.Dir = dir
	if !o.Services.IsValid() {
		o.Services = netip.MustParsePrefix("10.96.0.0/16")
	}
	if err := enterDataDir(dir); err != nil {
		return fmt.Errorf("member directory: %w", err)
	}
	keys, err := ensurePKI(filepath.Join(dir, "pki"), o.Services.Masked().Addr().Next().AsSlice())
	if err != nil {
		return fmt.Errorf("certificates in %s: %w", dir, err)
	}
	kubeconfig := filepath.Join(dir, lab.MemberKubeconfig)
	if err := writeKubeconfig(kubeconfig, o, keys); err != nil {
		return err
	}
	plane, err := newControlPlane(o, keys, kubeconfig)
	if err != nil {
		return err
	}
	store, err := startEtcd(ctx, dir)
	if err != nil {
		return err
	}
	defer store.Close()
	return runAboveEtcd(ctx, o, plane, kubeconfig)
}

// runAboveEtcd runs everything above etcd. The API server outlives the rest, so
// that controllers stop against a server that answers.
func runAboveEtcd(ctx context.Context, o MemberOptions, plane *controlPlane, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	apiCtx, stopAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPI()
	apiDone := make(chan error, 1)
	go func() { apiDone <- plane.runAPIServer(apiCtx) }()

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case err := <-apiDone:
			apiDone <- err
			return fmt.Errorf("kube-apiserver stopped: %w", err)
		case <-groupCtx.Done():
			return nil
		}
	})
	group.Go(func() error { return runAboveAPI(groupCtx, group, o, plane, client, kubeconfig) })
	err = group.Wait()
	stopAPI()
	select {
	case <-apiDone:
	case <-time.After(5 * time.Second):
		klog.Warning("kube-apiserver did not stop within 5s; leaving it")
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runAboveAPI waits for the API, creates its objects and starts the other components in
// group. It returns when all of them work.
func runAboveAPI(ctx context.Context, group *errgroup.Group, o MemberOptions, plane *controlPlane, client kubernetes.Interface, kubeconfig string) error {
	begin := time.Now()
	if err := waitForAPI(ctx, client); err != nil {
		return err
	}
	klog.InfoS("API is served", "after", time.Since(begin))
	if err := ensureNodes(ctx, client, o); err != nil {
		return err
	}
	if err := ensureStorageClass(ctx, client); err != nil {
		return err
	}
	if err := deleteNodeLeases(ctx, client); err != nil {
		return err
	}
	group.Go(func() error { return plane.runControllerManager(ctx) })
	group.Go(func() error { return plane.runScheduler(ctx) })
	if o.Nodes > 0 {
		if err := startKwok(ctx, kubeconfig); err != nil {
			return err
		}
	}
	startFakeCloud(ctx, client)
	if err := waitForReadyMember(ctx, client, begin, o.Nodes); err != nil {
		return err
	}
	klog.InfoS("Member is ready", "after", time.Since(begin))
	return writeFile(filepath.Join(o.Dir, lab.MemberReady), []byte(strconv.Itoa(os.Getpid())))
}

// waitForAPI returns when the API server is ready.
func waitForAPI(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("kube-apiserver did not get ready, its messages are above: %w", err)
	}
	return nil
}

// waitForReadyMember returns when nodes and controllers show work of this process:
// leases renewed since begin, and the service account that pods need.
func waitForReadyMember(ctx context.Context, client kubernetes.Interface, begin time.Time, nodes int) error {
	var missing string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		missing = firstMissingPart(ctx, client, begin, nodes)
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("member did not get ready, still missing: %s: %w", missing, err)
	}
	return nil
}

// firstMissingPart names the first part that the cluster still lacks; "" when it lacks none.
func firstMissingPart(ctx context.Context, client kubernetes.Interface, begin time.Time, nodes int) string {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return "service account default/default"
	}
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i+1)
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "node " + name
		}
		if !nodeReady(node) {
			return "readiness of node " + name
		}
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(begin.Truncate(time.Microsecond)) {
			return "lease of node " + name
		}
	}
	return ""
}

// nodeReady is true for a node that accepts pods.
func nodeReady(node *corev1.Node) bool {
	if len(node.Spec.Taints) > 0 {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// writeKubeconfig writes the admin's kubeconfig with its keys inside.
func writeKubeconfig(file string, o MemberOptions, keys *pki) error {
	name := o.Name
	if name == "" {
		name = "member"
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://127.0.0.1:" + strconv.Itoa(o.Port),
		CertificateAuthorityData: keys.caPEM,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: keys.adminCertPEM, ClientKeyData: keys.adminKeyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return writeFile(file, data)
}
