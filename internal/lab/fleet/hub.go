package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/lab/process"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	// hubStart is how long a hub may take to serve; one with a million rows is slow.
	hubStart = 5 * time.Minute
	// hubStop is how long a hub that was started here gets to end.
	hubStop = 10 * time.Second
	// tokenLife of the tokens by which the fleet joins.
	tokenLife = 24 * time.Hour
	// GroupLabel of simulated clusters.
	GroupLabel = "group"
)

// invitation is what a fleet needs to join.
type invitation struct {
	hubs   []string
	caHash string
	tokens []string // by group
}

// hubKubeconfig of the hub in a directory: a lab's, or that of a hub alone.
func hubKubeconfig(dir string) string {
	at := filepath.Join(dir, "hub.kubeconfig")
	if _, err := os.Stat(at); err == nil {
		return at
	}
	return filepath.Join(dir, "hub", "hub.kubeconfig")
}

// ensureHub sees that the hub in the directory serves, and starts one that does not.
// own is that one, nil where none had to be started.
func ensureHub(ctx context.Context, dir string, args []string) (config *rest.Config, own *ownHub, err error) {
	if config, err := answers(ctx, hubKubeconfig(dir)); err == nil {
		return config, nil, nil
	}
	if l, err := lab.Open(dir); err == nil {
		if err := l.Start(ctx, "hub"); err != nil {
			return nil, nil, err
		}
		config, err := answers(ctx, hubKubeconfig(dir))
		return config, nil, err
	}
	program, err := lab.Program("atoll-hub")
	if err != nil {
		return nil, nil, err
	}
	data := filepath.Join(dir, "hub")
	hub := process.Spec{
		Name: "hub", Owner: dir, Bound: true, Command: append([]string{program, "--data-dir", data}, args...),
		Log: filepath.Join(dir, "logs", "hub.log"), Identity: filepath.Join(dir, "run", "hub.json"),
	}
	// The file says where the hub listens; an old one would say it too early.
	if err := os.Remove(filepath.Join(data, "hub.kubeconfig")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if state, _ := hub.State(); state != process.Running {
		if err := hub.Start(); err != nil {
			return nil, nil, err
		}
	}
	own = &ownHub{hub}
	err = hub.WaitReady(ctx, hubStart, func(ctx context.Context) error {
		config, err = answers(ctx, filepath.Join(data, "hub.kubeconfig"))
		return err
	})
	if err != nil {
		own.stop(ctx)
		return nil, nil, err
	}
	return config, own, nil
}

// ownHub is a hub that was started for a fleet, and ends with it.
type ownHub struct{ process.Spec }

func (h *ownHub) stop(ctx context.Context) {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*hubStop)
	defer cancel()
	_ = h.Stop(ctx, hubStop) // its log says how it ended
}

// serves until ctx ends; an error once the hub has ended by itself, since nobody else
// starts it again.
func (h *ownHub) serves(ctx context.Context) error {
	if h == nil {
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := h.Ended(); err != nil {
				return fmt.Errorf("the hub of this fleet: %w", err)
			}
		}
	}
}

// answers gives the way to a hub that serves.
func answers(ctx context.Context, kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return config, client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// invite makes a token for each group, for as many agents as are to join.
func invite(ctx context.Context, config *rest.Config, o Options) (invitation, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return invitation{}, err
	}
	hub, err := dynamic.NewForConfig(config)
	if err != nil {
		return invitation{}, err
	}
	var out invitation
	// A hub that has just come up takes a moment to say where agents dial.
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		info, err := kube.CoreV1().ConfigMaps(atoll.SystemNamespace).Get(ctx, "hub-info", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		out.hubs, out.caHash = strings.Split(info.Data["gateway"], ","), info.Data["caHash"]
		return out.hubs[0] != "" && trust.ValidHash(out.caHash), nil
	})
	if err != nil {
		return out, fmt.Errorf("the hub does not say where agents dial: %w", err)
	}
	admin := handshake.Admin{Hub: hub}
	uses := (o.Agents + o.Groups - 1) / o.Groups
	for g := range o.Groups {
		t, err := admin.CreateToken(ctx, handshake.TokenSpec{
			Lifetime: tokenLife, Uses: uses, NamePattern: o.Prefix + "-*", AutoAccept: true, CheckIn: o.CheckIn,
			Set: "fleet-" + o.Prefix, Labels: map[string]string{GroupLabel: fmt.Sprintf("g%d", g)},
		}, time.Now())
		if err != nil {
			return out, fmt.Errorf("make a token for group %d: %w", g, err)
		}
		out.tokens = append(out.tokens, t.Reveal())
	}
	return out, nil
}
