package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/process"
)

const (
	// hubStart is the time in which a hub must serve; a hub with a million rows starts
	// slowly.
	hubStart = 5 * time.Minute
	// hubStop is the time in which a hub that the fleet started must end.
	hubStop = 10 * time.Second
	// tokenLife is the lifetime of the tokens by which the fleet joins.
	tokenLife = 24 * time.Hour
	// GroupLabel is the group label of simulated clusters.
	GroupLabel = "group"
)

// invitation is the data with which a fleet joins.
type invitation struct {
	hubs   []string
	caHash string
	tokens []string // by group
}

// hubKubeconfig returns the kubeconfig path of the hub in a directory: of a lab's hub or of
// a hub alone.
func hubKubeconfig(dir string) string {
	at := filepath.Join(dir, "hub.kubeconfig")
	if _, err := os.Stat(at); err == nil {
		return at
	}
	return filepath.Join(dir, "hub", "hub.kubeconfig")
}

// ensureHub starts the hub in the directory unless it serves already. own is the started
// hub; nil if none was started.
func ensureHub(ctx context.Context, dir string, args []string) (config *rest.Config, own *ownHub, err error) {
	if config, err := configOfReadyHub(ctx, hubKubeconfig(dir)); err == nil {
		return config, nil, nil
	}
	if l, err := lab.OpenExisting(dir); err == nil {
		if err := l.StartComponent(ctx, "hub"); err != nil {
			return nil, nil, err
		}
		config, err := configOfReadyHub(ctx, hubKubeconfig(dir))
		return config, nil, err
	}
	program, err := lab.ProgramPath("atoll-hub")
	if err != nil {
		return nil, nil, err
	}
	data := filepath.Join(dir, "hub")
	hub := process.ProcessSpec{
		Name: "hub", Owner: dir, EndsWithStarter: true, Command: append([]string{program, "--data-dir", data}, args...),
		Log: filepath.Join(dir, "logs", "hub.log"), Identity: filepath.Join(dir, "run", "hub.json"),
	}
	// The file contains the hub's address. An old one would report it too early.
	if err := os.Remove(filepath.Join(data, "hub.kubeconfig")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if state, _ := hub.CurrentState(); state != process.Running {
		if err := hub.Start(); err != nil {
			return nil, nil, err
		}
	}
	own = &ownHub{hub}
	err = hub.WaitReady(ctx, hubStart, func(ctx context.Context) error {
		config, err = configOfReadyHub(ctx, filepath.Join(data, "hub.kubeconfig"))
		return err
	})
	if err != nil {
		own.stop(ctx)
		return nil, nil, err
	}
	return config, own, nil
}

// ownHub is a hub that the fleet started and that ends with it.
type ownHub struct{ process.ProcessSpec }

func (h *ownHub) stop(ctx context.Context) {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*hubStop)
	defer cancel()
	_ = h.Stop(ctx, hubStop) // its log contains the reason of its end
}

// waitForHubExit waits until ctx ends. It returns an error if the hub ends by itself, because
// nothing restarts it.
func (h *ownHub) waitForHubExit(ctx context.Context) error {
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
			if err := h.CheckRunning(); err != nil {
				return fmt.Errorf("the hub of this fleet: %w", err)
			}
		}
	}
}

// configOfReadyHub returns the client configuration of a hub that serves.
func configOfReadyHub(ctx context.Context, kubeconfig string) (*rest.Config, error) {
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

// createTokens creates one join token for each group, for the number of its agents.
func createTokens(ctx context.Context, config *rest.Config, o Options) (invitation, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return invitation{}, err
	}
	hub, err := dynamic.NewForConfig(config)
	if err != nil {
		return invitation{}, err
	}
	var out invitation
	// A hub that has just started needs a moment until it publishes its gateway address.
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		out.hubs, out.caHash, err = lab.ReadGateway(ctx, kube)
		if apierrors.IsNotFound(err) || errors.Is(err, lab.ErrNoGateway) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return out, fmt.Errorf("the hub has no gateway address: %w", err)
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
		out.tokens = append(out.tokens, t.RevealSecret())
	}
	return out, nil
}
