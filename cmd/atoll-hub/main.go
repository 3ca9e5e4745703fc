// Command atoll-hub is the hub: one process with the Kubernetes API that people
// use, the store below it, and everything that decides and delivers.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // time zones of change windows, also in an image without them

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/hub"
	"atoll.dev/atoll/internal/logging"
	"atoll.dev/atoll/internal/memberproxy"
	"atoll.dev/atoll/internal/profile"
	"atoll.dev/atoll/internal/sources/builders"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/renderchild"
	"atoll.dev/atoll/internal/tracing"
)

func main() {
	// Linked components leave flags of their own in the global set.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newHubCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-hub:", err)
		os.Exit(1)
	}
}

func newHubCommand() *cobra.Command {
	var o hub.Options
	var verbose bool
	var logFormat string
	cmd := &cobra.Command{
		Use:   "atoll-hub --data-dir DIR",
		Short: "Run the hub: one Kubernetes API for many clusters",
		Long: `Run the hub: one Kubernetes API for many clusters.

The hub serves the real Kubernetes API with Atoll's kinds, on an embedded etcd or
on yours. It writes DIR/hub.kubeconfig for its administrator. What is to be kept is
etcd and DIR/keys; ` + "`atoll-hub backup`" + ` saves both. Where a hub runs in a container,
` + "`atoll-hub kubeconfig`" + ` and ` + "`atoll-hub keys`" + ` print what lies in DIR.

Several hubs may share one etcd (--etcd-servers). All of them serve the API and agents,
and one, which they elect, decides; where it ends, or cannot renew its lease
kube-system/atoll-hub, another one follows within ` + hub.TakeoverTime.String() + `. They share one key set:
take it from the first hub with ` + "`atoll-hub backup`" + ` and give it to each other one, which
has a data directory of its own, with ` + "`atoll-hub restore`" + `. A hub that loses its lease
ends with exit code 1, so let something start it again. Agents need the gateway
address of every hub: give all hubs the same --gateway-address with all of them.`,
		Version:       atoll.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(logFormat, verbose)
			if err != nil {
				return err
			}
			o.API.Logger, o.API.Version = log, atoll.Version
			return hub.RunHub(cmd.Context(), o)
		},
	}
	f, a := cmd.Flags(), &o.API
	f.StringVar(&a.DataDir, "data-dir", "", "directory for etcd, keys and hub.kubeconfig (required)")
	f.StringVar(&a.KeysDir, "keys-dir", "", "directory with the key set that hubs of one etcd share, which is only read (default: DIR/keys, where a new hub makes it)")
	f.StringVar(&a.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on; 0.0.0.0 for all")
	f.IntVar(&a.Port, "port", 0, "port of the API; 0 keeps that of the last start, at the first start 6443 or a free one")
	f.StringVar(&a.AdvertiseAddress, "advertise-address", "", "IP address at which clients and agents reach the hub (default: the bind address, or the first global one)")
	f.StringSliceVar(&a.ExtraSANs, "tls-san", nil, "further names and IP addresses in the serving certificate")
	f.StringVar(&a.ServingCert, "tls-cert-file", "", "serving certificate of your own, with --tls-private-key-file")
	f.StringVar(&a.ServingKey, "tls-private-key-file", "", "key of --tls-cert-file")
	f.DurationVar(&a.CertificateLifetime, "certificate-lifetime", 365*24*time.Hour, "how long certificates live that the hub makes for its own API and gateway; they are renewed at each twelfth of that, without a restart")
	f.DurationVar(&o.AgentCertificateLifetime, "agent-certificate-lifetime", hub.DefaultAgentCertificateLifetime, "how long agents' certificates live, from 30s to 43800h; agents renew them at about half of that. Give all hubs of one etcd the same")
	f.IntVar(&o.GatewayPort, "gateway-port", 0, "port that agents dial; 0 keeps that of the last start, at the first start 6444 or a free one")
	f.StringVar(&o.GatewayTransport, "gateway-transport", "h2", "server of agents' connections: h2, which costs little for a quiet agent, or grpc, the one of grpc-go")
	f.StringVar(&o.WebSocketBind, "websocket-bind", "", "HOST:PORT where load balancers that terminate TLS reach the gateway in plain HTTP, for agents' WebSockets (default: none; those that speak TLS use the gateway's port)")
	f.StringVar(&o.GatewayAddress, "gateway-address", "", "HOST:PORT that agents dial, those of several hubs by commas (default: the advertise address and the gateway's port)")
	f.IntVar(&o.ProxyLimits.PerUser, "proxy-requests-per-cluster", memberproxy.DefaultLimits.PerUser, "requests that one user may have under way at one cluster through this hub; what runs there and is shown here has as many besides. More than the 1,000 connections of an agent have no effect")
	f.IntVar(&o.ProxyLimits.PerUserAll, "proxy-requests-per-user", memberproxy.DefaultLimits.PerUserAll, "requests that one user may have under way at all clusters through this hub")
	f.IntVar(&o.ProxyLimits.All, "proxy-requests", memberproxy.DefaultLimits.All, "requests that all users may have under way at clusters through this hub; each may take 64 KiB of memory and more")
	f.StringVar(&o.APIAddress, "api-address", "", "HOST:PORT that ClusterProfiles publish for the API, the same for all hubs of one etcd (default: the advertise address and the API's port)")
	f.StringSliceVar(&a.EtcdServers, "etcd-servers", nil, "URLs of each member of an existing etcd, which several hubs may share. While it refuses writes for lack of room, the hubs compact and defragment it. Without URLs, etcd is embedded")
	f.Int64Var(&a.EtcdQuotaBytes, "etcd-quota-bytes", apiserver.DefaultEtcdQuotaBytes, fmt.Sprintf("size limit of the embedded etcd, from %d to %d. When 90 %% are in use, writes of users that grow the store are refused", apiserver.MinEtcdQuotaBytes, int64(apiserver.MaxEtcdQuotaBytes)))
	f.StringVar(&a.EtcdCAFile, "etcd-cafile", "", "CA of --etcd-servers")
	f.StringVar(&a.EtcdCertFile, "etcd-certfile", "", "client certificate for --etcd-servers")
	f.StringVar(&a.EtcdKeyFile, "etcd-keyfile", "", "key of --etcd-certfile")
	f.StringVar(&a.AuthenticationConfig, "authentication-config", "", "upstream's AuthenticationConfiguration, for OIDC")
	f.StringVar(&a.AuditPolicyFile, "audit-policy-file", "", "upstream's audit Policy")
	f.StringVar(&a.AuditLogPath, "audit-log-path", "", "file for the audit log; - for standard output")
	f.StringVar(&a.EncryptionProviderConfig, "encryption-provider-config", "", "upstream's EncryptionConfiguration (default: Secrets under a key of the hub's own)")
	f.StringVar(&o.DefaultPlacement, "default-placement", "None", "where a new hub sends objects that no policy and no annotation places: None, All, ClusterSet/NAME or ClusterPlacement/NAME. It counts at the first start; later change spec.defaultPlacement of `kubectl edit hubsettings hub`")
	addAllowedNetworks(f, &o)
	f.StringVar(&o.Tracing.Endpoint, "tracing-endpoint", "", "OTLP collector for traces of changes, by gRPC: HOST:PORT without TLS, or a URL such as https://HOST:PORT (default: no traces)")
	f.IntVar(&o.Tracing.SamplingRatePerMillion, "tracing-sampling-rate-per-million", tracing.DefaultSamplingRate, "how many of a million changes are traced. A request with a traceparent decides by itself. Give all hubs of one etcd the same")
	addConsoleFlags(f, &o)
	f.BoolVar(&a.Profiling, "profiling", false, "serve /debug/pprof to users with the RBAC right")
	f.Bool("version", false, "print the version and end")
	f.BoolVar(&verbose, "verbose", false, "log details")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err)
	}
	cmd.MarkFlagsMutuallyExclusive("etcd-servers", "etcd-quota-bytes")
	profile.AddProfileFlag(cmd)
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.AddCommand(newBackupCommand(), newRestoreCommand(), newPrintKubeconfigCommand(), newPrintKeysCommand(), newVersionCommand(), newFetchCommand(), newRenderCommand())
	return cmd
}

// addAllowedNetworks adds the flags of the networks that the hub dials although it refuses them.
func addAllowedNetworks(f *pflag.FlagSet, o *hub.Options) {
	f.StringSliceVar(&o.PushAllowedCIDRs, "push-allowed-cidrs", nil, "networks such as 127.0.0.0/8 that the hub dials for members in push mode and their proxies. Without it the hub refuses loopback, link-local, multicast and unspecified addresses, and those of clouds' metadata services")
	f.StringSliceVar(&o.SourceAllowedCIDRs, "source-allowed-cidrs", nil, "networks such as 10.0.0.5/32 that the hub dials for Repositories although it refuses them: loopback, link-local, multicast and unspecified addresses, those of the hub's own machine, and those of clouds' metadata services")
	f.StringSliceVar(&o.GateAllowedCIDRs, "gate-allowed-cidrs", nil, "networks such as 10.0.0.5/32 that the hub dials for prometheus and webhook gates of rollouts although it refuses them, as for Repositories")
	f.StringSliceVar(&o.NotificationAllowedCIDRs, "notification-allowed-cidrs", nil, "networks such as 10.0.0.5/32 that the hub dials for targets of Notifications although it refuses them, as for Repositories")
}

// addConsoleFlags adds the flags of the web console.
func addConsoleFlags(f *pflag.FlagSet, o *hub.Options) {
	f.BoolVar(&o.Console, "console", true, "serve the web console at /console/ of the API's address")
	s := &o.ConsoleSignIn
	f.StringVar(&s.URL, "console-oidc-issuer", "", "URL of an issuer in --authentication-config at which people sign in to the console by OpenID Connect (default: they paste tokens)")
	f.StringVar(&s.ClientID, "console-oidc-client-id", "", "client id of the console at --console-oidc-issuer (default: the first audience of the issuer in --authentication-config)")
	f.StringVar(&s.ClientSecretFile, "console-oidc-client-secret-file", "", "file with the secret of that client (default: a public client, which PKCE protects)")
	f.StringSliceVar(&s.Scopes, "console-oidc-scopes", nil, "scopes that the console requests in addition to openid, such as email,groups,offline_access")
	f.StringVar(&s.Address, "console-address", "", "HOST or HOST:PORT at which browsers reach the console: the issuer knows its redirect URL https://HOST:PORT/console/oidc/callback (default: the address that the browser uses)")
}

// newFetchCommand makes the command that the hub runs as a child to read one repository.
func newFetchCommand() *cobra.Command {
	return &cobra.Command{
		Use: fetch.ChildCommand, Short: "Read a repository for the hub", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetch.ServeChild(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// newRenderCommand makes the command that the hub, and atoll source render, run as a child to render charts and
// kustomizations.
func newRenderCommand() *cobra.Command {
	return &cobra.Command{
		Use: renderchild.ChildCommand, Short: "Render content of a repository", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return builders.ServeChild(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func newLogger(format string, verbose bool) (*slog.Logger, error) {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return logging.New(os.Stderr, format, level)
}
