// Package agent is the command `atoll agent`, which runs beside one member.
//
// Contract: the command runs until its context ends, logs to standard error, and
// returns an error only for what trying again cannot mend.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/command/jointoken"
	"atoll.dev/atoll/internal/logging"
	"atoll.dev/atoll/internal/trust"
)

type agentOptions struct {
	hubs                      []string
	token                     jointoken.TokenFlags
	tokenSecret               string
	keepToken                 bool
	caHash, name              string
	balancerCA                string
	kubeconfig, kubeContext   string
	metricsAddress, logFormat string
	verbose                   bool
}

// NewCommand makes the command.
func NewCommand() *cobra.Command {
	o := &agentOptions{}
	cmd := &cobra.Command{
		Use:   "agent --name NAME --hub HOST:PORT --ca-hash HASH --token-file FILE [--kubeconfig MEMBER]",
		Short: "Run the agent of a member cluster",
		Long: `Run the agent of a member cluster.

The agent joins the hub, applies in its own cluster what the hub places there,
keeps it so, also while the hub is away, and reports. It keeps its state in the
member's namespace atoll-system and may be restarted anywhere. "atoll join" runs
it inside the member.

The join token is needed until the hub has let the agent in. From --token-secret the
agent then removes it.

Without --kubeconfig the agent uses the service account of the pod that it runs in.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the cluster (required)")
	f.StringSliceVar(&o.hubs, "hub", nil, "HOST:PORT of the hub's gateway (required); repeated, or by commas, for several hubs on one etcd, each of which serves agents")
	f.StringVar(&o.caHash, "ca-hash", "", "hash of the hub's CA, sha256:... (required)")
	f.StringVar(&o.balancerCA, "balancer-ca", "", "file with the CAs, in PEM, of a load balancer that terminates TLS before the hub, beside the system's (default: what $ATOLL_BALANCER_CA holds, in PEM)")
	o.token.AddTo(f, "Once the cluster has joined, it may be missing or empty")
	f.StringVar(&o.tokenSecret, "token-secret", "", "Secret in atoll-system of the member with the join token as its key \"token\", which the agent removes once the cluster has joined")
	f.BoolVar(&o.keepToken, "keep-token", false, "leave the join token in the Secret of --token-secret")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the member (default: in-cluster)")
	f.StringVar(&o.kubeContext, "context", "", "context in the kubeconfig (default: its current one)")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "HOST:PORT for /metrics and /healthz (default: none)")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	for _, required := range []string{"name", "hub", "ca-hash"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err)
		}
	}
	return cmd
}

func (o *agentOptions) run(ctx context.Context, stdin io.Reader, warnings io.Writer) error {
	if !trust.IsValidKeyHash(o.caHash) {
		return fmt.Errorf("--ca-hash: %q is no CA hash; it looks like sha256:<64 hexadecimal digits>", o.caHash)
	}
	for _, hub := range o.hubs {
		if _, _, err := net.SplitHostPort(hub); err != nil {
			return fmt.Errorf("--hub: %q is not HOST:PORT: %w", hub, err)
		}
	}
	balancerCA, err := o.readBalancerCAs()
	if err != nil {
		return err
	}
	config, err := o.memberConfig()
	if err != nil {
		return err
	}
	token, err := o.joinToken(stdin, warnings)
	if err != nil {
		return err
	}
	log, err := o.newLogger()
	if err != nil {
		return err
	}
	limit, err := memlimit.FromCgroup()
	if err != nil {
		limit = 0 // no cgroup bounds the agent
	}
	tuneForMemory(limit)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go releasePagesRepeatedly(ctx, releaseProgramPages)
	if o.metricsAddress != "" {
		stop, err := serveMetricsAndHealth(o.metricsAddress, registry, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	return agent.RunAgent(ctx, agent.Options{
		MemberConfig: config, HubAddress: strings.Join(o.hubs, ","), CAHash: o.caHash, Name: o.name,
		Token: token, TokenSecret: o.tokenSecret, KeepToken: o.keepToken,
		BalancerCA: balancerCA, MemoryLimit: limit, Registry: registry, Log: log,
	})
}

// joinToken returns the join token of the command line; empty where the agent reads a Secret, and
// where there is none any more.
func (o *agentOptions) joinToken(stdin io.Reader, warnings io.Writer) (string, error) {
	switch {
	case o.tokenSecret == "" && o.keepToken:
		return "", errors.New("--keep-token goes with --token-secret")
	case o.tokenSecret != "" && o.token.AreSet():
		return "", errors.New("--token-secret excludes --token and --token-file")
	case o.tokenSecret != "":
		return "", nil
	}
	token, err := o.token.Read(stdin, warnings)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return token, err
}

// readBalancerCAs returns the CAs of load balancers, in PEM.
func (o *agentOptions) readBalancerCAs() ([]byte, error) {
	from, pem := "$ATOLL_BALANCER_CA", []byte(os.Getenv("ATOLL_BALANCER_CA"))
	if o.balancerCA != "" {
		file, err := os.ReadFile(o.balancerCA)
		if err != nil {
			return nil, fmt.Errorf("--balancer-ca: %w", err)
		}
		from, pem = "--balancer-ca", file
	} else if len(pem) == 0 {
		return nil, nil
	}
	if _, err := trust.PoolFromPEM(pem); err != nil {
		return nil, fmt.Errorf("%s holds no certificate in PEM", from)
	}
	return pem, nil
}

func (o *agentOptions) memberConfig() (*rest.Config, error) {
	if o.kubeconfig == "" && o.kubeContext == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("this is no pod with a service account; give the member's --kubeconfig: %w", err)
		}
		return config, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.kubeContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	return config, nil
}

// tuneForMemory trades a little CPU for memory, and more of it near the memory limit of the pod, unless the
// environment sets otherwise. The limit is 0 where there is none.
func tuneForMemory(limit uint64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
	if os.Getenv("GOMEMLIMIT") == "" && limit > 0 {
		debug.SetMemoryLimit(int64(min(limit/10*9, math.MaxInt64)))
	}
	releaseProgramPages()
}

const (
	// startTime is when the agent has joined, listed and compared what the member has.
	startTime = time.Minute
	// dropEvery is how often pages are dropped that rare work has read since.
	dropEvery = 10 * time.Minute
)

// releasePagesRepeatedly drops pages of the program after the start, and again after rare work. It
// returns with ctx.
func releasePagesRepeatedly(ctx context.Context, drop func()) {
	next := time.NewTimer(startTime)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			drop()
			next.Reset(dropEvery)
		case <-ctx.Done():
			return
		}
	}
}

func (o *agentOptions) newLogger() (*slog.Logger, error) {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log, err := logging.New(os.Stderr, o.logFormat, level)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(log.With("from", "client-go"))
	return log, nil
}

// serveMetricsAndHealth serves metrics and liveness at the address until stop.
func serveMetricsAndHealth(address string, registry *prometheus.Registry, log *slog.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "err", err)
		}
	}()
	return func() { _ = server.Close() }, nil
}
