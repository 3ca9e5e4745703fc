package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab"
)

const (
	// getCount is the number of reads of an object, each way.
	getCount = 1000
	// warmingGets are not counted: they open connections and tunnels.
	warmingGets = 50
	// grantTimeout is the time in which a member must honour a new grant.
	grantTimeout  = time.Minute
	reachedObject = "reach"
	reachedPath   = "/api/v1/namespaces/default/configmaps/" + reachedObject
)

func proxyLatencyCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "reach", Short: "Measure what a GET of a member costs through the hub, beyond a direct one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			numbers, err := measureProxyLatencyAlone(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.writeNumbers(cmd.OutOrStdout(), numbers)
		},
	}
	o.addFormatFlags(cmd)
	return cmd
}

// measureProxyLatencyAlone measures in a lab of its own, with one member.
func measureProxyLatencyAlone(ctx context.Context, progress io.Writer) ([]benchNumber, error) {
	return withTemporaryDir(func(dir string) ([]benchNumber, error) {
		fmt.Fprintln(progress, "a hub and a member")
		o := lab.Options{Dir: filepath.Join(dir, "lab"), Members: 1, Nodes: 1, Progress: progress}
		return withLab(ctx, o, func(l *lab.Lab) ([]benchNumber, error) { return measureProxyLatency(ctx, l) })
	})
}

// measureLabProxyLatency measures in the lab of the other numbers.
func (b *labBench) measureLabProxyLatency(ctx context.Context, _ benchOptions) ([]benchNumber, error) {
	return measureProxyLatency(ctx, b.lab)
}

// measureProxyLatency measures GETs of a small object of the first member, directly and
// through the hub, in turn. Other load of the machine delays both alike.
func measureProxyLatency(ctx context.Context, l *lab.Lab) ([]benchNumber, error) {
	member, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath(memberNames[0]))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", memberNames[0], err)
	}
	hub, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath("hub"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the hub: %w", err)
	}
	if err := createProxyTestObject(ctx, member); err != nil {
		return nil, err
	}
	direct, err := newRepeatedGetter(member, reachedPath)
	if err != nil {
		return nil, err
	}
	tunnelled, err := newRepeatedGetter(hub, atoll.ClusterProxyPath(memberNames[0])+reachedPath)
	if err != nil {
		return nil, err
	}
	if err := tunnelled.getUntilGranted(ctx); err != nil {
		return nil, err
	}
	if _, _, err := getInTurn(ctx, direct, tunnelled, warmingGets); err != nil {
		return nil, err
	}
	one, other, err := getInTurn(ctx, direct, tunnelled, getCount)
	if err != nil {
		return nil, err
	}
	how := fmt.Sprintf("%d of a small ConfigMap, in turn with the other way, each by one connection of HTTP/2 and a client certificate", getCount)
	return []benchNumber{
		{What: "GET of a member, p50", Value: percentileMillis(one, 50), Unit: "ms", How: how},
		{What: "GET of a member through the hub, p50", Value: percentileMillis(other, 50), Unit: "ms", How: how},
		{What: "GET through the hub, beyond a direct one, p50", Value: percentileMillis(other, 50) - percentileMillis(one, 50), Unit: "ms", Goal: "< 2 ms", How: "the difference of the two",
			Detail: fmt.Sprintf("p10 is %.2f ms beyond %.2f, p95 %.2f beyond %.2f", percentileMillis(other, 10)-percentileMillis(one, 10), percentileMillis(one, 10),
				percentileMillis(other, 95)-percentileMillis(one, 95), percentileMillis(one, 95))},
	}, nil
}

// createProxyTestObject creates the object in a member, and lets the hub's administrators read it.
func createProxyTestObject(ctx context.Context, member *rest.Config) error {
	c, err := kubernetes.NewForConfig(member)
	if err != nil {
		return fmt.Errorf("client of the member: %w", err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: reachedObject}, Data: map[string]string{"key": "value"}}
	if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the ConfigMap in the member: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reachedObject},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "atoll:masters"}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let the hub's administrators read the member: %w", err)
	}
	return nil
}

// repeatedGetter reads one object repeatedly by one connection.
type repeatedGetter struct {
	httpClient *http.Client
	requestURL string
}

func newRepeatedGetter(config *rest.Config, path string) (*repeatedGetter, error) {
	// A client would wait for its rate limits; a transport has none.
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &repeatedGetter{httpClient: &http.Client{Transport: transport}, requestURL: config.Host + path}, nil
}

// get reads the object and returns the time until its last byte.
func (g *repeatedGetter) get(ctx context.Context) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.requestURL, nil)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	answer, err := g.httpClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", g.requestURL, err)
	}
	took := time.Since(begun)
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s: %s", g.requestURL, answer.Status, said)
	}
	return took, nil
}

// getUntilGranted reads until it succeeds: a member receives a new grant a moment later.
func (g *repeatedGetter) getUntilGranted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	for {
		_, err := g.get(ctx)
		if err == nil {
			return nil
		}
		if lab.PauseFor(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// getInTurn reads by one and by the other, n times each; the first reader changes.
func getInTurn(ctx context.Context, one, other *repeatedGetter, n int) (ones, others []time.Duration, err error) {
	for i := range n {
		first, second := one, other
		if i%2 == 1 {
			first, second = other, one
		}
		took, err := first.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		then, err := second.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		if i%2 == 1 {
			took, then = then, took
		}
		ones, others = append(ones, took), append(others, then)
	}
	return ones, others, nil
}

// percentileMillis returns a percentile in milliseconds.
func percentileMillis(took []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return float64(sorted[min(len(sorted)-1, len(sorted)*percent/100)].Microseconds()) / 1000
}
