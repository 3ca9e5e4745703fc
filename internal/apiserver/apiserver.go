// Package apiserver is the hub's Kubernetes API: the upstream kube-apiserver, linked
// in and composed for a cluster in which nothing runs. It has an embedded or an external etcd, and
// the few upstream controllers that such an API needs.
//
// Contract: Start returns a server that passes its own readiness checks, or an
// error and nothing left running. Everything that the server keeps is in etcd
// and in the key set below the data directory; a server that was killed at any
// moment starts again from them with every acknowledged write. Two servers on
// one data directory, or a data directory of a newer version, are refused.
// While an embedded etcd is nearly full, users' writes that grow it are refused, and reads,
// deletions and the hub's own writes go on.
// Objects that would steer a cluster (webhooks, admission policies, quotas and
// their like) are stored but do not act here unless they are labelled to. One
// Server runs per process at a time; its methods are safe for concurrent use.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/apiserver/conversion"
	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/direct"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/inprocess"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/apiserver/upstreamlog"
)

// Options specify where and how the API server runs. The zero value of a field is
// its default unless stated otherwise.
type Options struct {
	// DataDir holds keys/, etcd/ and what the server writes on start, among it
	// hub.kubeconfig. Required.
	DataDir string
	// KeysDir holds the key set, whole, and is only read. Default: DataDir/keys, where a new
	// hub makes it.
	KeysDir string
	// BindAddress is the IP address to listen on. Default: 127.0.0.1.
	BindAddress string
	// Port to listen on. 0 takes the port of the last start, which must be free; at
	// the first start 6443 when it is free, else a free one.
	Port int
	// AdvertiseIP is the IP address that clients reach the hub at.
	// Default: BindAddress, or the first global address of this machine.
	AdvertiseAddress string
	// ExtraSANs are further IP addresses and names in the serving certificate.
	ExtraSANs []string
	// ServingCert and ServingKey are files with a serving certificate of the
	// operator's own. Default: one signed by the cluster CA, renewed in time.
	ServingCert, ServingKey string

	// EtcdServers are the URLs of an existing etcd. Default: an embedded one.
	EtcdServers []string
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile secure the connection to
	// EtcdServers.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// EtcdQuotaBytes is the size limit of the embedded etcd, from MinEtcdQuotaBytes to
	// MaxEtcdQuotaBytes. Default: DefaultEtcdQuotaBytes.
	EtcdQuotaBytes int64

	// AuthenticationConfig, AuditPolicyFile, AuditLogPath and
	// EncryptionProviderConfig are upstream's flags of the same names. Without
	// EncryptionProviderConfig, Secrets are encrypted with the key set's key.
	AuthenticationConfig, AuditPolicyFile, AuditLogPath, EncryptionProviderConfig string
	// Profiling serves /debug/pprof to users with the RBAC right.
	Profiling bool

	// Admission are Atoll's own admission plugins, in the order in which they
	// run: after upstream's, before quota.
	Admission []AdmissionPlugin
	// NoControllers leaves upstream's controllers to the caller, which runs them with
	// RunControllers: of several hubs on one etcd only one may.
	NoControllers bool
	// Handlers wraps the API's handler, inside authentication and
	// authorization, for HTTP endpoints of the hub itself.
	Handlers func(http.Handler) http.Handler

	// Front returns what wraps the whole chain of the API, from authentication on. hubKey is that of the
	// key set. Default: the chain stays as it is.
	Front func(hubKey []byte) (func(api http.Handler) http.Handler, error)

	// Authorize wraps the API's authorizer; default: it stays as it is. All of the API uses the
	// result, reviews of access included.
	Authorize func(authorizer.Authorizer) authorizer.Authorizer

	// Storage may put other storage of built-in kinds in the place of upstream's;
	// default: it stays as it is.
	Storage StorageHook

	// Groups are API groups that are served beside the built-in ones. They have no
	// APIService, so that one of their name is a template of users' like any other.
	Groups []*genericapiserver.APIGroupInfo

	// Metrics of what goes past the API are registered here; default: nowhere.
	Metrics prometheus.Registerer
	// Version is the version of Atoll that runs, as vMAJOR.MINOR.PATCH.
	// Required.
	Version string
	// Logger takes the logs of the API server, etcd and the controllers.
	// Required. klog has one destination per process: the last Start wins.
	Logger *slog.Logger
	// CertificateLifetime of what the hub issues for itself, which it renews each twelfth
	// of that; default a year.
	CertificateLifetime time.Duration
	// UnsafeNoFsync makes the embedded etcd lose acknowledged writes when the
	// machine stops. Only for tests.
	UnsafeNoFsync bool
}

// Server is a running hub API server.
type Server struct {
	options Options
	dir     *datadir.DataDir
	keys    *keys.KeySet
	// authorities are the set's, or those that a rotation has put in their place.
	authorities authorities
	former      formerUsers
	store       *store
	identities  *internalUsers
	direct      direct.Stores
	// definitions is set once the server of custom resources is built.
	definitions *Late[conversion.Backend]
	loopback    *rest.Config
	inside      *inprocess.HandlerTransport
	kubeconfig  string
	address     string

	quiet    atomic.Bool
	stages   []func(context.Context) // what to do on shutdown, last one first
	stopOnce sync.Once
	stopping chan struct{}
	done     chan struct{}
	failure  error // valid once done is closed

	served        chan struct{}
	controllerErr chan error
	serveErr      error // valid once served is closed
}

const readyTimeout = 2 * time.Minute

// The quota of the embedded etcd, and its bounds.
const (
	DefaultEtcdQuotaBytes = etcd.DefaultQuotaBytes
	MinEtcdQuotaBytes     = etcd.MinQuotaBytes
	MaxEtcdQuotaBytes     = etcd.MaxQuotaBytes
)

// StartAPIServer runs the API server and returns when it is ready. ctx bounds the start
// only; Stop ends the server.
func StartAPIServer(ctx context.Context, o Options) (_ *Server, err error) {
	if err := o.completeOptions(); err != nil {
		return nil, err
	}
	s := &Server{
		options:       o,
		definitions:   NewLate[conversion.Backend](),
		stopping:      make(chan struct{}),
		done:          make(chan struct{}),
		served:        make(chan struct{}),
		controllerErr: make(chan error, 1),
	}
	s.quiet.Store(true)
	s.options.Logger = slog.New(quietable{o.Logger.Handler(), &s.quiet})
	upstreamlog.RedirectLogs(s.options.Logger.With("component", "apiserver").Handler())
	defer func() {
		if err != nil {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
			defer cancel()
			s.shutdownOnce(bounded, err)
		}
	}()
	if s.dir, err = datadir.OpenLocked(o.DataDir, o.Version); err != nil {
		return nil, err
	}
	s.onStop(func(context.Context) { s.dir.Close() })
	if err := s.openStore(ctx); err != nil {
		return nil, err
	}
	if err := s.startServing(ctx); err != nil {
		return nil, err
	}
	s.startControllers(ctx)
	if err := s.dir.RecordRunningVersion(); err != nil {
		return nil, err
	}
	if err := s.store.recordRunningVersion(ctx, o.Version); err != nil {
		return nil, err
	}
	s.quiet.Store(false)
	if s.store.embedded != nil {
		s.store.embedded.LogSpaceShortage()
	}
	go s.shutdownOnFailure(context.WithoutCancel(ctx))
	return s, nil
}

// completeOptions fills defaults in and refuses what cannot work.
func (o *Options) completeOptions() error {
	switch {
	case o.DataDir == "":
		return errors.New("no data directory given")
	case o.Logger == nil:
		return errors.New("no logger given")
	case o.Version == "":
		return errors.New("no version given")
	case (o.ServingCert == "") != (o.ServingKey == ""):
		return errors.New("a serving certificate and its key must be given together")
	}
	if err := o.validateEtcd(); err != nil {
		return err
	}
	if o.CertificateLifetime <= 0 {
		o.CertificateLifetime = 365 * 24 * time.Hour
	}
	if o.BindAddress == "" {
		o.BindAddress = "127.0.0.1"
	}
	if net.ParseIP(o.BindAddress) == nil {
		return fmt.Errorf("bind address %q is not an IP address", o.BindAddress)
	}
	if o.AdvertiseAddress == "" {
		o.AdvertiseAddress = defaultAdvertiseAddress(o.BindAddress)
	}
	if net.ParseIP(o.AdvertiseAddress) == nil {
		return fmt.Errorf("advertise address %q is not an IP address", o.AdvertiseAddress)
	}
	abs, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("find the absolute path of %s: %w", o.DataDir, err)
	}
	o.DataDir = abs
	return nil
}

func (o *Options) validateEtcd() error {
	if (o.EtcdCertFile == "") != (o.EtcdKeyFile == "") {
		return errors.New("an etcd client certificate and its key must be given together")
	}
	if o.EtcdQuotaBytes != 0 && (o.EtcdQuotaBytes < MinEtcdQuotaBytes || o.EtcdQuotaBytes > MaxEtcdQuotaBytes) {
		return fmt.Errorf("the quota of the embedded etcd is %d bytes: it is from %d to %d", o.EtcdQuotaBytes, int64(MinEtcdQuotaBytes), int64(MaxEtcdQuotaBytes))
	}
	return nil
}

// LoopbackConfig returns a new configuration for clients of the hub's own
// controllers, which need no connection. Its identity may do everything and sees
// everything, other than the API server's own identity, which does not see what
// must not act on the hub.
func (s *Server) LoopbackConfig() *rest.Config {
	c := s.inProcessClientConfig(HubUser)
	// The API server's own speaks protobuf, which custom resources do not.
	c.ContentType, c.AcceptContentTypes = "", ""
	return c
}

// AdminKubeconfigPath is the file with an administrator's credentials.
func (s *Server) AdminKubeconfigPath() string { return s.kubeconfig }

// AdvertiseIP is the IP address at which others reach the server: that of the options, else the one
// that it listens on, else the machine's first global one.
func (s *Server) AdvertiseIP() string { return s.options.AdvertiseAddress }

// LocalAddress is the host and port at which this machine reaches the server.
func (s *Server) LocalAddress() string { return s.address }

// AdvertisedAddress is the host and port at which others reach the server.
func (s *Server) AdvertisedAddress() string {
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return s.address // it does not serve yet
	}
	return net.JoinHostPort(s.options.AdvertiseAddress, port)
}

// KeySet is the key set that the server runs with.
func (s *Server) KeySet() *keys.KeySet { return s.keys }

// EtcdClient is a client of the server's etcd. Only Stop closes it.
func (s *Server) EtcdClient() *clientv3.Client { return s.store.client }

// Done is closed when the server has ended, by Stop or by a failure; Err returns which.
func (s *Server) Done() <-chan struct{} { return s.done }

// EndError is why the server ended before it was stopped; nil until Done is closed,
// and after a Stop.
func (s *Server) EndError() error {
	select {
	case <-s.done:
		return s.failure
	default:
		return nil
	}
}

// Stop ends the server: controllers first, then the API server, which answers
// what it has begun, then etcd. It returns when all is down, or with an error
// when ctx ends before that; the rest is then cut short.
func (s *Server) Stop(ctx context.Context) error {
	s.shutdownOnce(ctx, nil)
	return ctx.Err()
}

// onStop adds something to do on shutdown; what was added last goes first.
func (s *Server) onStop(f func(context.Context)) { s.stages = append(s.stages, f) }

// shutdownOnce takes everything down, once; cause is why, or nil after a call of Stop.
func (s *Server) shutdownOnce(ctx context.Context, cause error) {
	s.stopOnce.Do(func() {
		close(s.stopping)
		s.quiet.Store(true)
		for i := len(s.stages) - 1; i >= 0; i-- {
			s.stages[i](ctx)
		}
		s.failure = cause
		close(s.done)
	})
}

// shutdownOnFailure takes everything down when etcd or the API server ends by
// itself: half a hub is worse than none.
func (s *Server) shutdownOnFailure(ctx context.Context) {
	var cause error
	select {
	case <-s.stopping:
		return
	case err := <-s.store.etcdFailures():
		cause = fmt.Errorf("the embedded etcd has failed: %w", err)
	case <-s.served:
		cause = s.serveErr
	case err := <-s.controllerErr:
		cause = fmt.Errorf("the controllers of the API have failed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	s.shutdownOnce(ctx, cause)
}
