// Package etcd runs the hub's embedded etcd and looks after it.
//
// Contract: one member, reachable only through a unix socket below its own data
// directory, which only the hub's user may enter, and by calls within the process; there
// is no network listener, neither for clients nor for peers. Writes are on disk before they are
// acknowledged. History is compacted every minute, and the file is defragmented
// in quiet moments when that gives back enough. While the store is nearly full, both happen within
// seconds, and etcd takes writes again as soon as there is room. The caller holds the lock of the
// data directory; two servers on one directory cannot be detected here. A Server is safe for
// concurrent use.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/metrictable"
)

const (
	memberName = "hub"
	// peerAddress is never listened on; a member must have one to be named by.
	peerAddress  = "unix://hub:1"
	clusterToken = "atoll-hub"
	clientSocket = "client.sock"
	// httpSocket takes what is not gRPC off the clients' socket.
	httpSocket = "http.sock"
	// DefaultQuotaBytes is the size from which on etcd takes no more writes.
	DefaultQuotaBytes = 8 << 30
	readyTimeout      = time.Minute
	dialTimeout       = 20 * time.Second
	// snapshotCount is how many writes lie between two snapshots of raft's log, which
	// a start replays and holds in memory from the last one on; catchUpEntries is how
	// many are held otherwise, for followers, of which there are none. Entries are as
	// large as what was written, so upstream's 10,000 and 5,000 can be a gigabyte.
	snapshotCount  = 2000
	catchUpEntries = 100
	// slowRequest is what a disk takes when it is in trouble.
	slowRequest = time.Second
)

// Options specify where and how the embedded etcd runs.
type Options struct {
	// Dir is its data directory; made with mode 0700 when absent.
	Dir string
	// Logger takes etcd's log. Required.
	Logger *slog.Logger
	// QuotaBytes is the size limit of the database; 0 means DefaultQuotaBytes. A database that is
	// nearly as large at the start has some room above it, until the next start.
	QuotaBytes int64
	// UnsafeNoFsync loses acknowledged writes when the machine stops. Only for
	// tests.
	UnsafeNoFsync bool

	snapshotCount uint64 // 0 means the constant of this name
}

// EmbeddedEtcd is a running embedded etcd.
type EmbeddedEtcd struct {
	etcd     *embed.Etcd
	inside   *inProcessKV
	sockets  *socketDir
	endpoint string
	quota    int64 // as stated
	limit    int64 // at which etcd refuses writes
	logger   *zap.Logger
	stopOnce sync.Once
	keeper   func()

	unmeasured   bool      // maintenance dropped history after the last defragmentation
	defragmented time.Time // the last defragmentation

	space     atomic.Pointer[StoreSpace]
	committed atomic.Int64 // revision at which Space last made a commit
	spaceMu   sync.Mutex   // held while the state changes and is reported
	onSpace   func(StoreSpace)
}

// HasEtcdData reports whether an etcd has run in dir before.
func HasEtcdData(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "member"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Start runs etcd and returns once it takes requests, or with an error when it
// is not ready within a minute or ctx ends.
func Start(ctx context.Context, o Options) (*EmbeddedEtcd, error) {
	if o.QuotaBytes == 0 {
		o.QuotaBytes = DefaultQuotaBytes
	}
	limit, err := prepareDir(o)
	if err != nil {
		return nil, err
	}
	sockets, err := openShortSocketDir(o.Dir)
	if err != nil {
		return nil, err
	}
	logger := newEtcdLogger(ctx, o.Logger)
	c := embedConfig(o, sockets.path, logger)
	c.QuotaBackendBytes = limit
	e, err := embed.StartEtcd(c)
	if err != nil {
		sockets.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	s := &EmbeddedEtcd{
		etcd: e, inside: &inProcessKV{}, sockets: sockets, quota: o.QuotaBytes, limit: limit,
		endpoint: "unix://" + filepath.Join(sockets.path, clientSocket), logger: logger,
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case <-e.Server.ReadyNotify():
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("not ready after %v", readyTimeout)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	s.inside.kv = v3rpc.NewQuotaKVServer(e.Server)
	s.space.Store(&StoreSpace{Since: time.Now()})
	if err := s.clearAlarmAtStart(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	return s, nil
}

// prepareDir makes the data directory, and returns the quota that etcd gets, by the size of its database.
func prepareDir(o Options) (limit int64, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return 0, fmt.Errorf("make etcd directory %s: %w", o.Dir, err)
	}
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return 0, fmt.Errorf("protect etcd directory %s: %w", o.Dir, err)
	}
	info, err := os.Stat(filepath.Join(o.Dir, "member", "snap", "db"))
	if errors.Is(err, fs.ErrNotExist) {
		return o.QuotaBytes, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the size of the database in %s: %w", o.Dir, err)
	}
	return startQuota(o.QuotaBytes, info.Size()), nil
}

// clearAlarmAtStart takes back an alarm of the last run, because this start has room above the database.
func (s *EmbeddedEtcd) clearAlarmAtStart(ctx context.Context) error {
	if s.hasAlarm() {
		client, err := s.NewClient(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		s.clearSpaceAlarm(ctx, client)
	}
	s.updateSpace(s.hasAlarm())
	return nil
}

// RegisterMetrics registers the sizes of the database and of its quota, and its state.
func RegisterMetrics(r prometheus.Registerer, space func() StoreSpace) error {
	var errs []error
	for _, gauge := range []struct {
		metric metrictable.Definition
		value  func(StoreSpace) int64
	}{
		{metrictable.StoreSize, func(now StoreSpace) int64 { return now.FileBytes }},
		{metrictable.StoreUsed, func(now StoreSpace) int64 { return now.UsedBytes }},
		{metrictable.StoreQuota, func(now StoreSpace) int64 { return now.QuotaBytes }},
		{metrictable.StoreSpace, func(now StoreSpace) int64 { return int64(now.State) }},
	} {
		errs = append(errs, r.Register(gauge.metric.NewGaugeFunc(func() float64 { return float64(gauge.value(space())) })))
	}
	return errors.Join(errs...)
}

// ClientEndpoint is the address for etcd clients in this process.
func (s *EmbeddedEtcd) ClientEndpoint() string { return s.endpoint }

// NewClient returns a new client of this server; the caller closes it.
func (s *EmbeddedEtcd) NewClient(ctx context.Context) (*clientv3.Client, error) {
	return newClient(ctx, s.endpoint, s.logger)
}

// Failures reports a failure after which the server does not serve any more.
func (s *EmbeddedEtcd) Failures() <-chan error { return s.etcd.Err() }

// Stop ends the server; acknowledged writes are on disk before and after.
func (s *EmbeddedEtcd) Stop() {
	s.stopOnce.Do(func() {
		if s.keeper != nil {
			s.keeper()
		}
		s.inside.stop()
		s.etcd.Close()
		s.sockets.Close()
	})
}

// ConnectRunning returns a client of an etcd that another process of the same user
// runs in dir, or an error that wraps fs.ErrNotExist when none does. close
// releases it.
func ConnectRunning(ctx context.Context, dir string) (client *clientv3.Client, close func(), err error) {
	if _, err := os.Stat(filepath.Join(dir, clientSocket)); err != nil {
		return nil, nil, fmt.Errorf("find the socket of a running etcd: %w", err)
	}
	sockets, err := openShortSocketDir(dir)
	if err != nil {
		return nil, nil, err
	}
	client, err = newClient(ctx, "unix://"+filepath.Join(sockets.path, clientSocket), zap.NewNop())
	if err != nil {
		sockets.Close()
		return nil, nil, err
	}
	return client, func() { client.Close(); sockets.Close() }, nil
}

func newClient(ctx context.Context, endpoint string, logger *zap.Logger) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:          []string{endpoint},
		DialTimeout:        dialTimeout,
		Context:            ctx,
		Logger:             logger,
		MaxCallRecvMsgSize: 1 << 30,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", endpoint, err)
	}
	return c, nil
}

func embedConfig(o Options, socketPath string, logger *zap.Logger) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = o.Dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	c.LogLevel = "warn"
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = "1m"
	c.UnsafeNoFsync = o.UnsafeNoFsync
	// One member has no one to wait for: short terms only make it lead sooner.
	c.TickMs = 20
	c.ElectionMs = 100
	c.EnableGRPCGateway = false
	c.AuthToken = ""
	c.WarningApplyDuration = slowRequest
	c.WarningUnaryRequestDuration = slowRequest
	c.MaxRequestBytes = 8 << 20
	c.MaxTxnOps = 10000
	c.SnapshotCount, c.SnapshotCatchUpEntries = cmp.Or(o.snapshotCount, snapshotCount), catchUpEntries

	client := url.URL{Scheme: "unix", Path: filepath.Join(socketPath, clientSocket)}
	peer := url.URL{Scheme: "unix", Host: "hub:1"}
	c.ListenClientUrls = []url.URL{client}
	c.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(socketPath, httpSocket)}}
	c.AdvertiseClientUrls = []url.URL{peer}
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{peer}
	c.InitialClusterToken = clusterToken
	c.InitialCluster = memberName + "=" + peerAddress
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ReadBufferSize(8 << 10),
		grpc.WriteBufferSize(8 << 10),
	}
	return c
}
