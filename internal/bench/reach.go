package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	"atoll.dev/atoll/internal/lab"
)

const (
	// gets of an object, each way.
	gets = 1000
	// warmingGets are not counted: connections and tunnels are made by them.
	warmingGets = 50
	// letInTimeout is how long a member may take to honour who may read it.
	letInTimeout = time.Minute
	reached      = "reach"
	reachedPath  = "/api/v1/namespaces/default/configmaps/" + reached
)

func reachCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "reach", Short: "Measure what a GET of a member costs through the hub, beyond a direct one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			numbers, err := reachAlone(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.tell(cmd.OutOrStdout(), numbers)
		},
	}
	o.addFormats(cmd)
	return cmd
}

// reachAlone measures in a lab of its own, with one member.
func reachAlone(ctx context.Context, progress io.Writer) (numbers []number, err error) {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(progress, "a hub and a member")
	l, err := lab.Up(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Members: 1, Nodes: 1, Progress: progress})
	defer func() {
		if opened, openErr := lab.Open(filepath.Join(dir, "lab")); openErr == nil {
			err = errors.Join(err, opened.Delete(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return nil, err
	}
	return reach(ctx, l)
}

// reach measures that in the lab of the other numbers.
func (b *bench) reach(ctx context.Context, _ options) ([]number, error) { return reach(ctx, b.lab) }

// reach measures GETs of a small object of the first member, directly and through the hub, in
// turn: whatever else the machine does delays both alike.
func reach(ctx context.Context, l *lab.Lab) ([]number, error) {
	member, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig(members[0]))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", members[0], err)
	}
	hub, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig("hub"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the hub: %w", err)
	}
	if err := beReached(ctx, member); err != nil {
		return nil, err
	}
	direct, err := getterOf(member, reachedPath)
	if err != nil {
		return nil, err
	}
	tunnelled, err := getterOf(hub, atoll.ProxyPath(members[0])+reachedPath)
	if err != nil {
		return nil, err
	}
	if err := tunnelled.untilLetIn(ctx); err != nil {
		return nil, err
	}
	if _, _, err := inTurn(ctx, direct, tunnelled, warmingGets); err != nil {
		return nil, err
	}
	one, other, err := inTurn(ctx, direct, tunnelled, gets)
	if err != nil {
		return nil, err
	}
	how := fmt.Sprintf("%d of a small ConfigMap, in turn with the other way, each by one connection of HTTP/2 and a client certificate", gets)
	return []number{
		{What: "GET of a member, p50", Value: milliseconds(one, 50), Unit: "ms", How: how},
		{What: "GET of a member through the hub, p50", Value: milliseconds(other, 50), Unit: "ms", How: how},
		{What: "GET through the hub, beyond a direct one, p50", Value: milliseconds(other, 50) - milliseconds(one, 50), Unit: "ms", Goal: "< 2 ms", How: "the difference of the two",
			Detail: fmt.Sprintf("p10 is %.2f ms beyond %.2f, p95 %.2f beyond %.2f", milliseconds(other, 10)-milliseconds(one, 10), milliseconds(one, 10),
				milliseconds(other, 95)-milliseconds(one, 95), milliseconds(one, 95))},
	}, nil
}

// beReached makes the object in a member, and lets the hub's administrators read it.
func beReached(ctx context.Context, member *rest.Config) error {
	c, err := kubernetes.NewForConfig(member)
	if err != nil {
		return fmt.Errorf("client of the member: %w", err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: reached}, Data: map[string]string{"key": "value"}}
	if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the ConfigMap in the member: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reached},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "atoll:masters"}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let the hub's administrators read the member: %w", err)
	}
	return nil
}

// getter gets one thing again and again, by one connection.
type getter struct {
	by *http.Client
	at string
}

func getterOf(config *rest.Config, path string) (*getter, error) {
	// Who reads the limits of a client would wait for them; a transport has none.
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &getter{by: &http.Client{Transport: transport}, at: config.Host + path}, nil
}

// get it; the time is that until all of it is there.
func (g *getter) get(ctx context.Context) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.at, nil)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	answer, err := g.by.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", g.at, err)
	}
	took := time.Since(begun)
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s: %s", g.at, answer.Status, said)
	}
	return took, nil
}

// untilLetIn gets until that succeeds: a member hears of who may read it a moment later.
func (g *getter) untilLetIn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, letInTimeout)
	defer cancel()
	for {
		_, err := g.get(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// inTurn gets by one and by the other, n times each; who begins changes.
func inTurn(ctx context.Context, one, other *getter, n int) (ones, others []time.Duration, err error) {
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

// milliseconds of what so many percent were done in.
func milliseconds(took []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return float64(sorted[min(len(sorted)-1, len(sorted)*percent/100)].Microseconds()) / 1000
}
